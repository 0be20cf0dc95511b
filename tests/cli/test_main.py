"""The front door: the list of commands, the version, and a reader who stops early."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from deniable.cli import COMMANDS, main


def test_no_argument_lists_the_commands(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 0
    assert {line.split()[0] for line in capsys.readouterr().out.splitlines()[5:-2]} == set(COMMANDS)


@pytest.mark.parametrize("arguments", [("--help",), ("--version",), ("plan", "--help")])
@pytest.mark.parametrize("buffered", [True, False])
def test_nobody_has_to_read_the_help(arguments: tuple[str, ...], buffered: bool) -> None:
    """`deniable --help | head`: no traceback, whenever Python writes its output."""
    reading, writing = os.pipe()
    os.close(reading)
    python = [sys.executable] if buffered else [sys.executable, "-u"]
    done = subprocess.run(
        [*python, "-m", "deniable", *arguments],
        stdout=writing,
        stderr=subprocess.PIPE,
        env={name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"},
        check=False,
    )
    os.close(writing)
    assert (done.returncode, done.stderr) == (0, b"")

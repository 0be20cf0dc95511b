"""Commands called as a stranger would: on a store of their own, with what they say and how they end."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias

import pytest

from deniable.cli import main

Call: TypeAlias = Callable[..., tuple[int, str, str]]
"""Arguments of one command -> exit status, output, errors."""


def new_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The URL of a store that is not there yet, which commands take without being told."""
    monkeypatch.delenv("DENIABLE_VISITOR_KEY", raising=False)
    url = f"sqlite:///{tmp_path / 'store.db'}"
    monkeypatch.setenv("DENIABLE_STORE", url)
    return url


def caller(capsys: pytest.CaptureFixture[str], command: str) -> Call:
    """Calls one command."""

    def called(*arguments: str) -> tuple[int, str, str]:
        status = main([command, *arguments])
        told = capsys.readouterr()
        return status, told.out, told.err

    return called


def ok(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    """What a command prints that works."""
    assert main(arguments) == 0, capsys.readouterr().err
    return capsys.readouterr().out


def failed(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    """What a command says that fails: one line."""
    assert main(arguments) == 2
    error = capsys.readouterr().err
    assert error.startswith("error: ")
    assert error.count("\n") == 1
    return error

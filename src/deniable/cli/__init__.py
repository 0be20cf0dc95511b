"""The command line: one table of commands, one file for each, one way to fail.

`deniable --help` reads only this table; a command's module, and with it Typer, NumPy and the rest, is
imported when the command is called.
"""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, redirect_stdout
from contextvars import copy_context
from functools import partial
from importlib import import_module
from typing import TextIO, cast

COMMANDS: dict[str, str] = {
    "allocate": "Divide a firm's privacy budget over its experiments.",
    "apply": "Bring the store to the state described in a file.",
    "audit": "Check whether the promise of an experiment or the firm is kept.",
    "backup": "Copy the store to a file, with the heads of its ledger.",
    "document": "Issue a document to sign, or verify one against the ledger.",
    "erase": "Erase visitors; totals and promises stay.",
    "experiment": "Create, start, pause, stop and list experiments.",
    "export": "Write an experiment's decisions to a file.",
    "init": "Create a store, set the firm's budget and print an admin key.",
    "keys": "Create, list and revoke API keys.",
    "leak": "Measure what an exposure log reveals to a tracker.",
    "ledger": "Verify, show or export the append-only ledger.",
    "mask": "Give each visitor one private label for life.",
    "migrate": "Bring the store's schema to the one of this version.",
    "plan": "Plan the privacy budget of one experiment.",
    "purge": "Erase visitors of old decisions.",
    "restore": "Restore a backup and commit what may be spent twice.",
    "results": "Show what an experiment has learned, valid at any time.",
    "rewards": "Import rewards from a CSV or Parquet file.",
    "serve": "Serve decisions over HTTP, on SQLite or PostgreSQL.",
    "simulate": "Compare policies on known click rates.",
    "status": "Show the firm's budget, and where experiments stand.",
    "users": "Invite and disable people, set their roles, end their sessions.",
}
"""Command name -> its one-line summary; the code is in `deniable.cli.<name>`, as `app`."""

EXTRAS: dict[str, str] = {
    **dict.fromkeys(("apply", "audit", "document", "erase", "experiment"), "server"),
    **dict.fromkeys(("export", "init", "keys", "users"), "server"),
    **dict.fromkeys(
        ("ledger", "migrate", "purge", "results", "rewards", "serve", "status"), "server"
    ),
    "allocate": "data",
    "simulate": "simulate",
}
"""Command -> the extra that it needs as a whole; the others run without one."""

USAGE_ERROR = 2
INTERRUPTED = 130


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit status: 0, or 2 for a mistake told in one line.

    Without arguments, they are those of this process, which ends with the command.
    """
    if arguments is None:
        with _collected_seldom():
            return main(sys.argv[1:])
    with redirect_stdout(cast(TextIO, _Output(sys.stdout))):
        status = _run(*arguments) if arguments else _run("--help")
        sys.stdout.flush()
    return status


@contextmanager
def _collected_seldom() -> Iterator[None]:
    """Run the garbage collector less often, and not when the process ends: up to a fifth of a command.

    Importing creates many objects that live as long as the process, in cycles or not.
    """
    gc.set_threshold(50_000, 10, 10)
    try:
        yield
    finally:
        gc.freeze()


def _run(name: str, *rest: str) -> int:
    if name in ("-h", "--help"):
        _write(_help())
        return 0
    if name == "--version":
        from importlib.metadata import version

        _write(f"deniable {version('deniable')}")
        return 0
    if name not in COMMANDS:
        return _fail(f"no command {name!r}; `deniable --help` lists them")
    return _call(name, list(rest))


def _call(name: str, rest: list[str]) -> int:
    import typer
    from typer.exceptions import TyperException

    from deniable._extras import missing_extra
    from deniable.errors import DeniableError, MissingExtraError

    try:
        app = import_module(f"deniable.cli.{name.replace('-', '_')}").app
        command = typer.main.get_command(app)
        run = partial(command.main, rest, prog_name=f"deniable {name}", standalone_mode=False)
        status = copy_context().run(run)  # who acts in it is not who acts after it
    except TyperException as error:  # bad flags and values
        describe = getattr(error, "format_message", error.__str__)
        return _fail(describe())
    except (MissingExtraError, ModuleNotFoundError) as error:
        module = error.module if isinstance(error, MissingExtraError) else error.name
        missing = missing_extra(module or "", preferred=EXTRAS.get(name))
        if missing is None:
            raise
        return _fail(str(missing))
    except DeniableError as error:
        return _fail(str(error))
    except OSError as error:  # a file that is missing, unreadable or not writable
        return _fail(f"{error.filename}: {error.strerror}" if error.filename else str(error))
    except (KeyboardInterrupt, typer.Abort):
        _write("interrupted", stream=sys.stderr)
        return INTERRUPTED
    return status if isinstance(status, int) else 0


class _Output:
    """Standard output whose reader may stop early (`| head`). That is no error of the command.

    It goes on to its end: files are written, and the exit status says what was found.
    """

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def __getattr__(self, name: str) -> object:
        return getattr(self._stream, name)

    def write(self, text: str) -> int:
        """Write, or do nothing once nobody reads."""
        with self._for_nobody():
            self._stream.write(text)
        return len(text)

    def flush(self) -> None:
        """Flush, or do nothing once nobody reads."""
        with self._for_nobody():
            self._stream.flush()

    @contextmanager
    def _for_nobody(self) -> Iterator[None]:
        try:
            yield
        except BrokenPipeError:
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, self._stream.fileno())
            os.close(nowhere)


def _help() -> str:
    width = max(map(len, COMMANDS))
    rows = "\n".join(f"  {name:<{width}}  {summary}" for name, summary in COMMANDS.items())
    return (
        "Usage: deniable COMMAND [OPTIONS]\n\n"
        "Bandit experiments whose shown arm keeps every visitor's segment deniable.\n\n"
        f"Commands:\n{rows}\n\n"
        "Run `deniable COMMAND --help` for a command's options, `deniable --version` for the version."
    )


def _fail(message: str) -> int:
    _write("error: " + " ".join(message.split()), stream=sys.stderr)
    return USAGE_ERROR


def _write(text: str, stream: TextIO | None = None) -> None:
    print(text, file=stream or sys.stdout)

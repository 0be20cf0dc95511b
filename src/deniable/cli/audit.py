"""`deniable audit`: what was designed, stored, answered and spent. One table of what can be audited.

`deniable audit KEY` means `deniable audit experiment KEY`. New experiments may not be named like a
subcommand (`service.drafts.RESERVED_KEYS`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import typer
from typer.core import TyperGroup

from deniable.cli.audit_experiment import audit_experiment
from deniable.cli.audit_firm import audit_firm
from deniable.cli.audit_live import audit_live
from deniable.cli.audit_log import audit_log

SUBCOMMANDS: dict[str, Callable[..., None]] = {
    "experiment": audit_experiment,
    "firm": audit_firm,
    "live": audit_live,
    "log": audit_log,
}
"""What can be audited -> its command, each in a module of its own."""

_HELP = ("-h", "--help")


class AuditGroup(TyperGroup):
    """A group whose first argument may also be an experiment's key, or an option of its audit."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Take what is no subcommand for the arguments of `experiment`."""
        if args and args[0] not in (*self.commands, *_HELP):
            args = ["experiment", *args]
        return super().parse_args(ctx, args)


app = typer.Typer(
    cls=AuditGroup,
    add_completion=False,
    help="Check whether the promise is kept. "
    "`deniable audit KEY` is short for `deniable audit experiment KEY`.",
)
for name, command in SUBCOMMANDS.items():
    app.command(name)(command)

"""The firm's name and approval rules: the newest `settings` entry in the chain."""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields

from sqlalchemy import Connection

from deniable._types import JsonObject
from deniable.errors import NANO
from deniable.storage.commitments import linked, lock_chain, record
from deniable.storage.schema import commitments

_OURS = (commitments.c.experiment_id.is_(None), commitments.c.kind == "settings")


@dataclass(frozen=True)
class FirmSettings:
    """The firm's name and approval rules.

    Attributes:
        name: name on documents; empty if none was given.
        start_above_nano: starting an experiment that costs more than this needs a second person;
            None if none does.
        approve_budget: whether raising the firm's budget, or shortening its window, needs one.
        approve_erasure: whether erasing visitors needs one.
    """

    name: str = ""
    start_above_nano: int | None = None
    approve_budget: bool = False
    approve_erasure: bool = False

    def rules(self) -> tuple[int | None, bool, bool]:
        """Which actions need a second person."""
        return self.start_above_nano, self.approve_budget, self.approve_erasure

    def weaker_than(self, before: FirmSettings) -> bool:
        """Whether these rules require a second person less often.

        >>> FirmSettings(start_above_nano=2).weaker_than(FirmSettings(start_above_nano=1))
        True
        >>> FirmSettings(approve_budget=True).weaker_than(FirmSettings())
        False
        """
        starts = before.start_above_nano is not None and (
            self.start_above_nano is None or self.start_above_nano > before.start_above_nano
        )
        return (
            starts
            or (before.approve_budget and not self.approve_budget)
            or (before.approve_erasure and not self.approve_erasure)
        )

    def rules_in_words(self) -> str:
        """Format the rules for people.

        >>> FirmSettings(start_above_nano=1_500_000_000, approve_erasure=True).rules_in_words()
        'starting above 1.5 nats, erasing'
        >>> FirmSettings().rules_in_words()
        'nothing'
        """
        parts = []
        if self.start_above_nano is not None:
            parts.append(f"starting above {self.start_above_nano / NANO:g} nats")
        if self.approve_budget:
            parts.append("raising the firm’s budget")
        if self.approve_erasure:
            parts.append("erasing")
        return ", ".join(parts) or "nothing"


def read(connection: Connection) -> FirmSettings:
    """Return the newest settings, checked against their link; the defaults if there are none."""
    newest = linked(connection, *_OURS, newest=1)
    return of_detail(newest[0].detail) if newest else FirmSettings()


def of_detail(detail: JsonObject) -> FirmSettings:
    """Return the settings of an entry; unknown members are ignored."""
    known = {field.name for field in fields(FirmSettings)}
    return FirmSettings(**{name: value for name, value in detail.items() if name in known})


def write(connection: Connection, settings: FirmSettings) -> FirmSettings:
    """Record the settings, unless they are unchanged."""
    lock_chain(connection)
    if read(connection) != settings:
        record(connection, "settings", None, **asdict(settings))
    return settings

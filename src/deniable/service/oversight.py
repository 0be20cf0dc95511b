"""Oversight: the ledger, its verification, exports, retention and erasure."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from pathlib import Path
from typing import Literal, TypeAlias

from deniable.storage.ledger import Verification
from deniable.storage.records import Commitment
from deniable.storage.store import Store

Shape: TypeAlias = Literal["private", "public", "open-bandit", "vowpal-wabbit"]


class Oversight:
    """The part of `Deniable` that looks back."""

    _store: Store
    _key: bytes

    def ledger(self) -> list[Commitment]:
        """Everything that touched the firm's budget or an experiment's state, oldest first."""
        raise NotImplementedError

    def verify_ledger(self) -> Verification:
        """Check both kinds of chains, the counters and the totals; says what is wrong first."""
        raise NotImplementedError

    def export(self, path: str | Path, *, experiment: str, shape: Shape = "private") -> int:
        """Write decisions to a file by its ending (.parquet, .csv, .jsonl, .vw); returns the rows.

        Args:
            path: the file; its ending is the format.
            experiment: whose decisions.
            shape: `private` (segment, greedy, shown, propensities, risk, version, reward), `public`
                (what a tracker sees: arm and time), `open-bandit` or `vowpal-wabbit` for off-policy
                tools. All but `public` hold segments: keep them in the trusted zone.
        """
        raise NotImplementedError

    def erase(self, visitors: Iterable[str]) -> Erasure:
        """Forget these visitors in every experiment; totals and promise stay.

        Their arm memory goes too: in a running experiment they can be drawn a second time. That
        second spend, the largest risk they were given, is debited from the firm; where it does not
        fit, the experiment is exhausted and serves new visitors uniformly from then on.
        """
        raise NotImplementedError

    def purge(self, *, before: datetime, running: bool = False) -> Erasure:
        """Forget all visitors decided before a time: of stopped experiments, or of all with a debit."""
        raise NotImplementedError


class Erasure:
    """What an erasure did (see `deniable.storage.erasure`)."""

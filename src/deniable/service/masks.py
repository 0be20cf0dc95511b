"""Masks in the service: one label for life for each visitor, given by one put-if-absent.

A mask commits its budget once. Experiments on it, and everything else that reads only labels, commit
nothing. The segment is turned into a label inside the transaction that stores it, and is stored
nowhere.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from decimal import Decimal

from sqlalchemy import Connection

from deniable.errors import WrongStateError
from deniable.masks.mask import Mask, key_fingerprint
from deniable.service.approvals import Approvals
from deniable.service.ids import MaskKey
from deniable.service.jobs import label_job
from deniable.service.writer import Waiting, Writer
from deniable.storage import masks
from deniable.storage.masks import Coverage, StoredMask
from deniable.storage.store import Store


class Masks:
    """The part of `Deniable` for labels.

    >>> from deniable import open
    >>> with open("memory:") as service:
    ...     _ = service.firm.set(budget=2)
    ...     _ = service.masks.create("interest", segments=["sports", "music", "garden"], budget=2)
    ...     first = service.masks.label("interest", "v-1", "sports")
    ...     again = service.masks.label("interest", "v-1", "music")  # the first segment counts
    >>> first == again
    True
    """

    def __init__(self, store: Store, key: MaskKey, approvals: Approvals, writer: Writer) -> None:
        self._store = store
        self._key = key
        self._approvals = approvals
        self._writer = writer

    def all(self) -> list[StoredMask]:
        """Return all masks, oldest first."""
        with self._store.read() as connection:
            return masks.everything_masked(connection)

    def get(self, name: str) -> StoredMask:
        """Return the newest mask of this name, or raise UnknownNameError."""
        with self._store.read() as connection:
            return masks.named(connection, name)

    def coverage(self, mask: StoredMask) -> Coverage:
        """Return how many visitors have each label."""
        with self._store.read() as connection:
            return masks.coverage(connection, mask)

    def create(
        self,
        name: str,
        *,
        segments: Sequence[str],
        budget: float | str | Decimal,
        groups: Mapping[str, Sequence[str]] | None = None,
        version: int = 1,
        period: str = "life",
    ) -> StoredMask:
        """Create a mask and commit its budget. Another one of this name ends, and keeps counting.

        Args:
            name: lower-case letters, digits and hyphens.
            segments: all segments.
            budget: in nats; a text is taken exactly as typed.
            groups: label name -> its segments; without it, each segment is a label of its own.
            version: raise it when the groups or the budget change.
            period: a new period draws new labels.

        Raises:
            InsufficientBudgetError: with the remaining and the requested budget.
            ApprovalNeededError: the firm's rules require a second person.
            WrongStateError: this version and period exist, or the key is another one.
        """
        with self._store.read() as connection:
            known = masks.everything_masked(connection)
        key = self._key() if known else self._key.created()
        if key is None:
            raise WrongStateError(
                "the key of the firm's masks is missing: restore its file, or set DENIABLE_MASK_KEY"
            )
        mask = Mask(
            segments=segments,
            budget=budget,
            key=key,
            name=name,
            version=version,
            period=period,
            groups=groups,
        )
        if any(one.period == period and one.key != key_fingerprint(key) for one in known):
            raise WrongStateError(
                f"the period {period!r} has labels from another key: restore that key, or choose a new "
                "period, which is a new commitment"
            )

        def commit(connection: Connection) -> StoredMask:
            self._approvals.require_start(
                connection, f"mask {name}", int(mask.budget * 10**9), 1, mask.channel_hash
            )
            return masks.create(connection, mask)

        with self._approvals.asking():
            return self._store.retried(commit)

    def end(self, name: str) -> StoredMask:
        """End a mask: it gives no more labels, and counts until a window after its last answer."""
        return self._store.retried(lambda connection: masks.end(connection, name))

    def label(self, name: str, visitor: str, segment: str | None = None) -> str:
        """Return a visitor's label, after it has been stored durably.

        Args:
            name: the mask.
            visitor: 1 to 256 printable ASCII characters without spaces, compared as they are.
            segment: None if it is not known. The first known one counts; later ones are not looked at.
        """
        return self.label_batch(name, [(visitor, segment)])[0]

    def label_batch(self, name: str, visitors: Iterable[tuple[str, str | None]]) -> list[str]:
        """Return the labels of (visitor, segment) pairs, in order, in one transaction."""
        pairs = list(visitors)
        waiting = Waiting()
        job = label_job(name, [v for v, _ in pairs], [s for _, s in pairs], waiting)
        self._writer.submit(job)
        waiting.finished(None)
        if job.error is not None:
            raise job.error
        return job.answers

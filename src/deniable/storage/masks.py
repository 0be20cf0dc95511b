"""Masks of the service: what the chain says about each, and erasing first labels.

A mask is its entry `mask`, which also commits its budget, until an entry `end_mask`. There is no other
record that could disagree. The first label of each visitor is a row of `mask_labels`, written by the
transaction that first needs it (`HotTransaction.put_labels`). No row holds a segment.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from sqlalchemy import Connection, bindparam, func, or_, select, update

from deniable._types import JsonObject
from deniable.errors import NANO, UnknownNameError, WrongStateError
from deniable.masks.definition import defined_mask, definition
from deniable.masks.mask import Mask
from deniable.storage import account, times
from deniable.storage.commitments import checked, linked_query, lock_chain, record
from deniable.storage.experiments import change, everything
from deniable.storage.schema import commitments, mask_labels


@dataclass(frozen=True)
class StoredMask:
    """What the chain says about a mask. Its key is not stored.

    Attributes:
        id: 16 random bytes.
        name: its name. The newest mask of a name is the one that experiments use.
        version: raised when groups or budget change.
        period: the period for which labels are drawn.
        budget_nano: what it commits of the firm's budget, once.
        groups: label name -> its segments, in declared order.
        channel: hash of groups and probabilities.
        key: fingerprint of the key.
        definition: all of it, as `Mask` files have it.
        created_at: since when it counts.
        ended_at: when it ended; None while it gives labels.
    """

    id: bytes
    name: str
    version: int
    period: str
    budget_nano: int
    groups: dict[str, tuple[str, ...]]
    channel: str
    key: str
    definition: JsonObject
    created_at: datetime
    ended_at: datetime | None = None

    @property
    def budget(self) -> float:
        """The budget in nats."""
        return self.budget_nano / NANO

    @property
    def labels(self) -> tuple[str, ...]:
        """All labels as they are written, such as ~sports."""
        return tuple(f"~{name}" for name in self.groups)

    def with_key(self, key: bytes) -> Mask:
        """Return the mask that draws labels; raise MaskFileError if the key is another one."""
        return defined_mask(self.definition, key, f"mask {self.name}")

    def drawn_by(self, key: bytes = bytes(32)) -> Mask:
        """Return a mask with the same channel and another key, which draws other labels."""
        plain = self.definition
        return Mask(
            segments=plain["segments"],
            budget=plain["budget"],
            key=key,
            name=self.name,
            version=self.version,
            period=self.period,
            groups=plain["groups"],
        )


KINDS = ("mask", "end_mask", "erase_labels")
"""Kinds of entries about a mask. They name it by its id, where others name an experiment."""

_ENTRIES = linked_query(or_(commitments.c.kind == "mask", commitments.c.kind == "end_mask"))


def everything_masked(connection: Connection) -> list[StoredMask]:
    """Return all masks, oldest first."""
    found: dict[bytes, StoredMask] = {}
    for entry in checked(connection, _ENTRIES):
        identity, at = entry.experiment_id or b"", times.as_datetime(entry.recorded_at)
        if entry.kind == "end_mask":
            found[identity] = replace(found[identity], ended_at=at)
            continue
        plain = {**entry.detail, "groups": dict(entry.detail["groups"])}
        plain["key"] = plain.pop("fingerprint")
        found[identity] = StoredMask(
            id=identity,
            name=plain["mask"],
            version=plain["version"],
            period=plain["period"],
            budget_nano=entry.amount_nano,
            groups={label: tuple(members) for label, members in plain["groups"].items()},
            channel=plain["channel"],
            key=plain["key"],
            definition=plain,
            created_at=at,
        )
    return list(found.values())


def named(connection: Connection, name: str) -> StoredMask:
    """Return the newest mask of this name, or raise UnknownNameError."""
    for mask in reversed(everything_masked(connection)):
        if mask.name == name:
            return mask
    raise UnknownNameError("mask", name)


def create(connection: Connection, mask: Mask) -> StoredMask:
    """Commit a mask's budget and chain its definition; an earlier one of this name ends.

    Raises:
        InsufficientBudgetError: the firm's budget has no room for it.
        WrongStateError: this version and period were given out already, or running experiments have
            other labels.
    """
    lock_chain(connection)
    earlier = [known for known in everything_masked(connection) if known.name == mask.name]
    if any((known.version, known.period) == (mask.version, mask.period) for known in earlier):
        raise WrongStateError(
            f"mask {mask.name!r} has a version {mask.version} for the period {mask.period!r} already: "
            "another version or period is a new commitment"
        )
    if any(known.labels != mask.labels_in_order for known in earlier) and _users(
        connection, mask.name
    ):
        raise WrongStateError(
            f"experiments on mask {mask.name!r} have its earlier labels: stop them first, or keep the "
            "names of the labels"
        )
    detail = definition(mask)
    detail["fingerprint"] = detail.pop("key")
    # The chain sorts members of objects, and the order of the labels counts.
    detail["groups"] = [[label, list(members)] for label, members in mask.groups.items()]
    account.commit_mask(connection, os.urandom(16), int(mask.budget * NANO), detail)
    for known in earlier:
        if known.ended_at is None:
            _end(connection, known)
    _reread(connection, mask.name)
    return named(connection, mask.name)


def end(connection: Connection, name: str) -> StoredMask:
    """End a mask: it gives no more labels, and counts until a window after its last answer.

    Raises:
        WrongStateError: it has ended, or experiments still use it.
    """
    lock_chain(connection)
    mask = named(connection, name)
    if mask.ended_at is not None:
        raise WrongStateError(f"mask {name!r} has ended already")
    if using := _users(connection, name):
        raise WrongStateError(f"experiments still use mask {name!r}: stop {', '.join(using)} first")
    _end(connection, mask)
    return named(connection, name)


def _end(connection: Connection, mask: StoredMask) -> None:
    last_answer = account.last_hour(connection, mask.id)
    record(connection, "end_mask", mask.id, last_answer=last_answer, mask=mask.name)


def _users(connection: Connection, name: str) -> list[str]:
    """Return the keys of running and paused experiments on a mask."""
    live = ("running", "paused")
    return [one.key for one in everything(connection) if one.mask == name and one.status in live]


def _reread(connection: Connection, name: str) -> None:
    """Make writers read experiments on a mask again."""
    for experiment in everything(connection):
        if experiment.mask == name:
            change(connection, experiment)


# -- erasing ---------------------------------------------------------------------------------------


def labels_of(connection: Connection, mask: bytes, visitor: bytes) -> list[int]:
    """Return the number of a visitor's stored label, if there is one."""
    found = connection.execute(_LABEL, {"mask": mask, "wanted": visitor}).scalar()
    return [] if found is None else [int(found)]


def erase(connection: Connection, mask: StoredMask, visitors: Sequence[bytes]) -> int:
    """Strip visitors' rows of their labels; return how many there were.

    The rows stay as tombstones: whoever returns has equal chances of each label until the mask ends.
    """
    lock_chain(connection)
    which = {"mask": mask.id, "wanted": list(visitors)}
    erased = connection.execute(_ERASE, which).rowcount
    if erased:
        record(connection, "erase_labels", mask.id, mask=mask.name, labels=erased)
    return erased


@dataclass(frozen=True)
class Coverage:
    """How many visitors have a label of a mask.

    Attributes:
        known: label -> visitors whose label was drawn for a known segment, or made elsewhere.
        unknown: visitors whose segment is not known yet.
        erased: erased visitors.
    """

    known: dict[str, int]
    unknown: int
    erased: int


def coverage(connection: Connection, mask: StoredMask) -> Coverage:
    """Count the visitors of a mask."""
    known, unknown, erased = dict.fromkeys(mask.labels, 0), 0, 0
    for label, is_known, visitors in connection.execute(_COUNTED, {"mask": mask.id}):
        if label is None:
            erased += visitors
        elif is_known:
            known[mask.labels[label]] += visitors
        else:
            unknown += visitors
    return Coverage(known, unknown, erased)


_OF_MASK = mask_labels.c.mask_id == bindparam("mask")
_LABEL = select(mask_labels.c.label).where(_OF_MASK, mask_labels.c.visitor == bindparam("wanted"))
_ERASE = (
    update(mask_labels)
    .where(
        _OF_MASK,
        mask_labels.c.visitor.in_(bindparam("wanted", expanding=True)),
        mask_labels.c.label.is_not(None),
    )
    .values(label=None)
)
_COUNTED = (
    select(mask_labels.c.label, mask_labels.c.known, func.count())
    .where(_OF_MASK)
    .group_by(mask_labels.c.label, mask_labels.c.known)
)

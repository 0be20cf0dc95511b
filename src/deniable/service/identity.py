"""Who this process is among the writers: a leased chain of decisions that it alone extends.

A writer holds one row of `writers` under a random owner's mark and extends its lease with every
batch, in the batch's own transaction. A lease that ran out may be taken over: the new owner continues
the chain and the counters, and the old one's next batch fails on its mark and takes another chain.
Clocks that differ between machines can therefore cost a new chain, never a broken one.
"""

from __future__ import annotations

import os
from dataclasses import dataclass

from sqlalchemy import Connection, insert, select, update

from deniable.storage import times
from deniable.storage.chain import GENESIS
from deniable.storage.schema import COMMITMENT_CHAIN, writers

LEASE_MICROSECONDS = 60_000_000


@dataclass(frozen=True)
class Identity:
    """A writer's id and the mark that proves ownership."""

    writer: int
    owner: bytes


def claim(connection: Connection) -> Identity:
    """Take over a chain whose lease has run out, or begin a new one."""
    now, owner = times.now(), os.urandom(16)
    free = connection.execute(
        select(writers.c.id)
        .where(writers.c.id > COMMITMENT_CHAIN, writers.c.lease_until < now)
        .limit(1)
    ).scalar()
    if free is not None:
        taken = connection.execute(
            update(writers)
            .where(writers.c.id == free, writers.c.lease_until < now)  # again: others may be faster
            .values(owner=owner, lease_until=now + LEASE_MICROSECONDS)
        )
        if taken.rowcount == 1:
            return Identity(free, owner)
    return _begin(connection, int.from_bytes(os.urandom(4), "big") >> 1 or 1)


def claim_scratch(connection: Connection) -> Identity:
    """Begin a chain for a scratch copy: its number is negative, and nobody takes it over."""
    return _begin(connection, -(int.from_bytes(os.urandom(4), "big") >> 1 or 1))


def _begin(connection: Connection, fresh: int) -> Identity:
    now, owner = times.now(), os.urandom(16)
    connection.execute(
        insert(writers).values(
            id=fresh, owner=owner, lease_until=now + LEASE_MICROSECONDS, seq=0, head=GENESIS
        )
    )
    return Identity(fresh, owner)


def release(connection: Connection, identity: Identity) -> None:
    """Give the chain back, for the next process to continue."""
    connection.execute(
        update(writers)
        .where(writers.c.id == identity.writer, writers.c.owner == identity.owner)
        .values(lease_until=0)
    )

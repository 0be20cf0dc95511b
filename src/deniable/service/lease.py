"""A process's lease of a chain of decisions, which makes it a writer: only it extends the chain.

A writer holds one row of `writers`, marked with a random owner id, and renews its lease in the
transaction of every batch. An expired lease can be taken over: the new owner continues the chain
and the counters, and the old owner's next batch fails the ownership check and takes another chain.
Clock differences between machines can therefore cost an extra chain, but cannot break one.
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
    """A writer's number and the owner id that proves ownership."""

    writer: int
    owner: bytes


def claim(connection: Connection) -> Identity:
    """Take over a chain with an expired lease, or start a new one."""
    now, owner = times.now(), os.urandom(16)
    free = connection.execute(
        select(writers.c.id)
        .where(writers.c.id > COMMITMENT_CHAIN, writers.c.lease_until < now)
        .limit(1)
    ).scalar()
    if free is not None:
        taken = connection.execute(
            update(writers)
            # Checked again, because another process may be faster.
            .where(writers.c.id == free, writers.c.lease_until < now)
            .values(owner=owner, lease_until=now + LEASE_MICROSECONDS)
        )
        if taken.rowcount == 1:
            return Identity(free, owner)
    fresh = int.from_bytes(os.urandom(4), "big") >> 1 or 1
    connection.execute(
        insert(writers).values(
            id=fresh, owner=owner, lease_until=now + LEASE_MICROSECONDS, seq=0, head=GENESIS
        )
    )
    return Identity(fresh, owner)


def release(connection: Connection, identity: Identity) -> None:
    """Release the chain, for the next process to continue."""
    connection.execute(
        update(writers)
        .where(writers.c.id == identity.writer, writers.c.owner == identity.owner)
        .values(lease_until=0)
    )

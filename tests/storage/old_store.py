"""A store as it was before migration 0004, written with the hash formats of that time."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import Connection, text

from deniable.service.ids import VisitorHash, fingerprint, group_scope
from deniable.storage import times
from deniable.storage.chain import (
    GENESIS,
    commitment_hash,
    old_decision_hash,
    old_salted_hash,
)
from deniable.storage.connect import _upgrade

KEY = bytes.fromhex("5a" * 32)
"""As in the fixture `store_url`."""

NAT = 10**9
ERASABLE = ("visitor", "salt", "segment", "greedy", "shown", "clock", "risk_nano")


@dataclass
class OldStore:
    """Writes as the service did at 0003."""

    connection: Connection
    writer: int = 77
    seq: int = 0
    head: bytes = GENESIS
    ids: dict[str, bytes] = field(default_factory=dict)

    def make(self, revision: str = "0003") -> None:
        """The schema, the key's fingerprint and one writer."""
        _upgrade(self.connection, revision)
        self._insert("facts", name="visitor_key", value=fingerprint(KEY))
        self._insert("writers", id=self.writer, owner=None, lease_until=0, seq=0, head=GENESIS)

    def firm(self, budget_nano: int) -> None:
        """A new period; the one before is closed."""
        self._execute("UPDATE periods SET current = :off", off=False)
        self._insert(
            "periods",
            id=os.urandom(16),
            budget_nano=budget_nano,
            committed_nano=0,
            starts_at=times.now(),
            ends_at=None,
            current=True,
        )
        self.record("period", None, 0, budget_nano=budget_nano, ends_at=None)

    def create(self, key: str, group: str | None = None, budget_nano: int = NAT) -> None:
        """A draft with the arms `a` and `b` and the segments `x` and `y`."""
        self.ids[key] = identity = os.urandom(16)
        self._insert(
            "experiments",
            id=identity,
            tag=int.from_bytes(identity[:4], "big", signed=True),
            key=key,
            status="draft",
            strategy="constant",
            budget_nano=budget_nano,
            group_name=group,
            default_arm=0,
            attribution_seconds=600,
            version=1,
            exhausted=False,
            revision=1,
            created_at=times.now(),
        )
        for position, name in enumerate("ab"):
            self._insert("arms", experiment_id=identity, position=position, key=name, label=name)
        for position, name in enumerate("xy"):
            self._insert("segments", experiment_id=identity, position=position, name=name)
        self._insert("clocks", experiment_id=identity, clock=0)
        self.record(
            "create",
            key,
            0,
            key=key,
            arms=[["a", None], ["b", None]],
            segments=2,
            strategy="constant",
            budget_nano=budget_nano,
            group=group,
        )

    def start(self, key: str, amount_nano: int = NAT) -> None:
        self._change(key, status="running", started_at=times.now())
        self.record("start", key, amount_nano, firm="00")

    def stop(self, key: str, winner: str | None = None) -> None:
        position = None if winner is None else "ab".index(winner)
        self._change(key, status="stopped", stopped_at=times.now(), winner=position)
        self.record("stop", key, 0, winner=winner)

    def decide(
        self, key: str, visitor: str, segment: int, shown: int, reward: int | None = None
    ) -> bytes:
        """A decision with its counter and perhaps its reward; returns its id."""
        identity, now = self.ids[key], times.now()
        self.seq += 1
        decision, salt = identity[:4] + os.urandom(12), os.urandom(16)
        hashed = VisitorHash(KEY, identity)(visitor)
        erasable = (hashed, salt, segment, shown, shown, self.seq, NAT)
        committed = old_salted_hash(*erasable)
        self.head = old_decision_hash(
            self.head, identity, decision, 1, now, self.writer, self.seq, committed
        )
        self._insert(
            "decisions",
            experiment_id=identity,
            id=decision,
            **dict(zip(ERASABLE, erasable, strict=True)),
            version=1,
            decided_at=now,
            writer_id=self.writer,
            seq=self.seq,
            hash=self.head,
        )
        self._count(identity, segment, shown, 1, reward or 0)
        if reward is not None:
            self._insert(
                "rewards",
                experiment_id=identity,
                decision_id=decision,
                value=reward,
                rewarded_at=now,
            )
        self._execute(
            "UPDATE writers SET seq = :seq, head = :head WHERE id = :id",
            seq=self.seq,
            head=self.head,
            id=self.writer,
        )
        return decision

    def member(self, group: str, visitor: str, key: str) -> None:
        self._insert(
            "memberships",
            group_name=group,
            visitor=VisitorHash(KEY, group_scope(group))(visitor),
            experiment_id=self.ids[key],
        )

    def erase(self, key: str, decision: bytes, amount_nano: int) -> None:
        """As erasures were: a debit, the reward deleted."""
        row = self._execute("SELECT * FROM decisions WHERE id = :id", id=decision).one()
        committed = old_salted_hash(*(getattr(row, name) for name in ERASABLE))
        gone = ", ".join(f"{name} = NULL" for name in ERASABLE)
        self._execute(
            f"UPDATE decisions SET {gone}, commitment = :committed WHERE id = :id",
            committed=committed,
            id=decision,
        )
        self._execute("DELETE FROM rewards WHERE decision_id = :id", id=decision)
        self.record("erase", key, amount_nano, decisions=1, exhausted=False)

    def record(self, kind: str, key: str | None, amount_nano: int, /, **detail: object) -> None:
        """An entry of the commitment chain."""
        end = self._execute("SELECT seq, head FROM writers WHERE id = 0").one()
        identity = None if key is None else self.ids[key]
        seq, now, told = end.seq + 1, times.now(), json.dumps(detail, sort_keys=True)
        link = commitment_hash(end.head, seq, kind, identity, amount_nano, told, now)
        self._insert(
            "commitments",
            seq=seq,
            kind=kind,
            experiment_id=identity,
            amount_nano=amount_nano,
            detail=told,
            recorded_at=now,
            hash=link,
        )
        self._execute(
            "UPDATE writers SET seq = :seq, head = :head WHERE id = 0", seq=seq, head=link
        )

    def _count(self, identity: bytes, segment: int, arm: int, shows: int, clicks: int) -> None:
        values = {"experiment_id": identity, "segment": segment, "arm": arm}
        values |= {"writer_id": self.writer, "shows": shows, "clicks": clicks}
        names = ", ".join(values)
        self._execute(
            f"INSERT INTO counters ({names}) VALUES ({', '.join(f':{name}' for name in values)}) "
            "ON CONFLICT (experiment_id, segment, arm, writer_id) DO UPDATE SET "
            "shows = counters.shows + excluded.shows, clicks = counters.clicks + excluded.clicks",
            **values,
        )

    def _change(self, key: str, **values: object) -> None:
        sets = ", ".join(f"{name} = :{name}" for name in values)
        self._execute(f"UPDATE experiments SET {sets} WHERE key = :key", key=key, **values)

    def _insert(self, table: str, **values: object) -> None:
        names, places = ", ".join(values), ", ".join(f":{name}" for name in values)
        self._execute(f"INSERT INTO {table} ({names}) VALUES ({places})", **values)

    def _execute(self, statement: str, **values: object) -> Any:
        return self.connection.execute(text(statement), values)

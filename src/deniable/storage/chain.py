"""Hash chains: the canonical encoding of chained entries.

A decision's hash covers the previous hash, the permanent fields, and the hash of the erasable fields
with a random salt.

    salted hash = SHA-256(visitor, salt, segment, shown)
    hash        = SHA-256(previous hash, "D", experiment, id, version, table, role, time, writer, seq,
                          salted hash)

Rewards are in the same chain. Their salted hash uses the salt of the decision:

    salted hash = SHA-256(salt of the decision, metric, value)
    hash        = SHA-256(previous hash, "R", experiment, decision, metric, time, writer, seq,
                          salted hash)

Erasing a visitor deletes the salt and the hashed values. The salted hashes stay (in columns named
`commitment`), so the chain still verifies, and without the salt they reveal nothing about those
values.
"""

from __future__ import annotations

import json
from hashlib import sha256
from struct import Struct

GENESIS = bytes(32)
"""The hash before a chain's first entry."""

pack_erasable = Struct(">16s16shh").pack
"""Packs the input of `salted_hash`: visitor, salt, segment, shown."""

pack_decision = Struct(">32sc16s16sIIhqiq32s").pack
"""Packs the input of `decision_hash`: its arguments, with b"D" after the first."""

_encode = json.JSONEncoder(separators=(",", ":"), ensure_ascii=True).encode
_valued = Struct(">16shq").pack
_rewarded = Struct(">32sc16s16shqiq32s").pack


def salted_hash(visitor: bytes, salt: bytes, segment: int, shown: int) -> bytes:
    """Hash the erasable fields of a decision with its salt."""
    return sha256(pack_erasable(visitor, salt, segment, shown)).digest()


def decision_hash(
    previous: bytes,
    experiment_id: bytes,
    decision_id: bytes,
    version: int,
    table_number: int,
    role: int,
    decided_at: int,
    writer: int,
    seq: int,
    salted: bytes,
) -> bytes:
    """Link one decision to the previous entry."""
    return sha256(
        pack_decision(
            previous,
            b"D",
            experiment_id,
            decision_id,
            version,
            table_number,
            role,
            decided_at,
            writer,
            seq,
            salted,
        )
    ).digest()


def reward_salted_hash(salt: bytes, metric: int, value: int) -> bytes:
    """Hash the value of a reward with its decision's salt."""
    return sha256(_valued(salt, metric, value)).digest()


def reward_hash(
    previous: bytes,
    experiment_id: bytes,
    decision_id: bytes,
    metric: int,
    rewarded_at: int,
    writer: int,
    seq: int,
    salted: bytes,
) -> bytes:
    """Link one reward to the previous entry."""
    return sha256(
        _rewarded(
            previous,
            b"R",
            experiment_id,
            decision_id,
            metric,
            rewarded_at,
            writer,
            seq,
            salted,
        )
    ).digest()


def commitment_hash(
    previous: bytes,
    seq: int,
    kind: str,
    experiment_id: bytes | None,
    amount_nano: int,
    detail: str,
    recorded_at: int,
) -> bytes:
    """Link one entry of the commitment chain to the previous entry.

    >>> commitment_hash(GENESIS, 1, "firm", None, 0, "{}", 0).hex()[:16]
    '4528e175db64034a'
    """
    experiment = experiment_id.hex() if experiment_id is not None else None
    entry = [seq, kind, experiment, amount_nano, detail, recorded_at]
    return sha256(previous + _encode(entry).encode("ascii")).digest()

"""Hash chains: the canonical encoding of what is chained, and nothing else.

A decision's hash covers the previous hash, what is kept for good (ids, version, time, place in the
chain) and a commitment, which is the hash of what can be erased under a random salt:

    commitment = SHA-256(visitor, salt, segment, greedy, shown, clock, risk)
    hash       = SHA-256(previous hash, experiment, id, version, time, writer, seq, commitment)

Erasing a visitor removes the salt and the committed values. The commitment stays, so the chain still
verifies, and without the salt it tells nothing about what it was made from.
"""

from __future__ import annotations

import json
from hashlib import sha256
from struct import Struct

GENESIS = bytes(32)
"""The hash before the first entry of a chain."""

_erasable = Struct(">16s16shhhqq").pack
_linked = Struct(">32s16s16sIqiq32s").pack


def commitment(
    visitor: bytes, salt: bytes, segment: int, greedy: int, shown: int, clock: int, risk_nano: int
) -> bytes:
    """Hides and fixes the erasable half of a decision."""
    packed = _erasable(visitor, salt, segment, greedy, shown, clock, risk_nano)
    return sha256(packed).digest()


def decision_hash(
    previous: bytes,
    experiment_id: bytes,
    decision_id: bytes,
    version: int,
    decided_at: int,
    writer: int,
    seq: int,
    committed: bytes,
) -> bytes:
    """The link of one decision to the one before it."""
    return sha256(
        _linked(previous, experiment_id, decision_id, version, decided_at, writer, seq, committed)
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
    """The link of one entry of the commitment chain.

    >>> commitment_hash(GENESIS, 1, "period", None, 0, "{}", 0).hex()[:16]
    'b35c9e55d88ab1e3'
    """
    experiment = experiment_id.hex() if experiment_id is not None else None
    entry = [seq, kind, experiment, amount_nano, detail, recorded_at]
    encoded = json.dumps(entry, separators=(",", ":"), ensure_ascii=True).encode("ascii")
    return sha256(previous + encoded).digest()

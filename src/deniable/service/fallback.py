"""Answers when nothing can be stored: a uniform arm of the same shape, independent of everything.

Such an answer is not remembered. That costs no privacy (a uniform arm tells nothing) and the visitor
is drawn for, once, when the store is back.
"""

from __future__ import annotations

import hmac
from itertools import count

from deniable.service.entropy import EntropyError, EntropyPool
from deniable.service.runtime import Runtime
from deniable.storage.records import Decision

_serial = count()


def unstored(runtime: Runtime, key: bytes) -> Decision:
    """A decision that was not stored: uniform over the active arms, or the fixed arm after a stop.

    Without entropy it is the default arm, and the id comes from the visitor key and a counter.
    """
    try:
        pool = EntropyPool(24)
        arm = runtime.active[runtime.uniform.draw(0, pool)]
        identity = pool(16)
    except EntropyError:
        serial = next(_serial).to_bytes(8, "big")
        identity = hmac.digest(key, b"unstored" + serial, "sha256")[:16]
        return Decision(identity.hex(), runtime.fixed_arm)
    if not runtime.serves_draws:
        return Decision(identity.hex(), runtime.fixed_arm)
    return Decision(identity.hex(), runtime.arm_keys[arm])

"""One decision at once, for a store in memory: no queue, no batch, nothing to sync.

The same draw, chain and counters as a batch of one, without what a batch needs to be durable, shared
and retried. Whatever is not the usual case (an experiment changed, grouped, not running, its counters
forgotten because a batch failed) is left to the batch.
"""

from __future__ import annotations

from deniable.service.batch import drawn
from deniable.service.engine import Engine
from deniable.service.runtime import NEVER
from deniable.storage import times
from deniable.storage.memory import MemoryStore
from deniable.storage.records import UNKNOWN_SEGMENT, Decision


class Direct:
    """Decides for one visitor at a time, on the state that the engine keeps.

    Args:
        store: in memory.
        engine: the one that runs this store's batches.
    """

    def __init__(self, store: MemoryStore, engine: Engine) -> None:
        self._transaction = store.hot()
        self._engine = engine

    def decide(self, experiment: str, visitor: str, segment: str | None) -> Decision | None:
        """The visitor's decision, or None where this is not the usual case."""
        transaction, engine = self._transaction, self._engine
        with transaction.lock:
            runtime, chain, identity = engine.state(experiment)
            if (
                transaction.stale
                or runtime is None
                or chain is None
                or identity is None
                or runtime.status != "running"
                or runtime.group is not None
                or runtime.shared_clock
                or runtime.refreshed_at == NEVER
            ):
                return None
            hashed = runtime.visitor_hash(visitor)
            known = transaction.known(runtime.id, hashed)
            if known is not None:
                return Decision(known[0].hex(), runtime.arm_keys[known[1]])
            position = runtime.segments.get(segment, UNKNOWN_SEGMENT)
            writer, now = identity.writer, times.now()
            closed = runtime.closed(now)
            new = drawn(runtime, ((hashed, position, closed),), now, writer, chain)
            row = new.rows[0]
            arm = row[5]
            shows, clicks = runtime.own_shows[position][arm], runtime.own_clicks[position][arm]
            transaction.add_decisions(new)
            transaction.save_counters(((runtime.id, position, arm, writer, shows, clicks),))
            after = engine.extend(row[8:])
            transaction.extend(writer, identity.owner, after, now)
            return Decision(row[0].hex(), runtime.arm_keys[arm])

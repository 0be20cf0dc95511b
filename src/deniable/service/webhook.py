"""Webhook: ledger entries are sent to one address of the firm, signed, in order, at least once.

A message says which kind of entry, of which experiment, by whom and when: never a visitor, a segment, an
arm or a budget. One process at a time sends; where the other side does not answer 2xx, the same message
is tried again, later and later, and given up after some hours so that it holds nothing up for good.
"""

from __future__ import annotations

import hmac
import json
import logging
import os
import threading
import time
from collections.abc import Callable
from urllib.parse import urlsplit

import httpx2 as httpx
from sqlalchemy import Connection, insert, select, update

from deniable.errors import DeniableError, InvalidArgumentError
from deniable.service.service import Deniable
from deniable.storage import commitments, times
from deniable.storage.records import Commitment
from deniable.storage.schema import commitments as chain
from deniable.storage.schema import facts, leases
from deniable.storage.store import Store

_log = logging.getLogger("deniable.webhook")

SECONDS = 5.0
"""How often the ledger is looked at."""

TIMEOUT_SECONDS = 10.0
FIRST_WAIT_SECONDS, MOST_WAIT_SECONDS, MOST_TRIES = 5.0, 3_600.0, 14
LEASE_SECONDS = 120
PAGE = 100
PURPOSE = b"webhook"
UNTOLD = frozenset({"table", "scores", "key", "migrate", "scratch", "scratch_end"})
"""Kinds that are no news: there are many of them, or nobody caused them."""

_CURSOR = "webhook_seq"
_LEASE = "webhook"
SIGNATURE = "Deniable-Signature"


def checked_url(url: str) -> str:
    """The address, or InvalidArgumentError."""
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname or not url.isprintable():
        raise InvalidArgumentError("webhook_url", url, "https://HOST/PATH")
    return url


def signature(secret: bytes, moment: int, body: bytes) -> str:
    """What the header says: when it was sent, and the HMAC-SHA256 of that and the body.

    >>> signature(b"key", 0, b"{}")[:20]
    't=0,v1=7314351dd949a'
    """
    signed = hmac.digest(secret, f"{moment}.".encode() + body, "sha256").hex()
    return f"t={moment},v1={signed}"


def message(entry: Commitment) -> bytes:
    """What is sent about an entry."""
    told = {
        "id": entry.seq,
        "kind": entry.kind,
        "experiment": entry.experiment,
        "by": entry.actor,
        "recorded_at": entry.recorded_at.isoformat(),
    }
    return json.dumps(told, separators=(",", ":")).encode()


class Webhook(threading.Thread):
    """Tells the ledger's news to one address.

    Args:
        service: whose ledger.
        url: where to.
        clock: seconds, for the waits between tries; another one in tests.
    """

    def __init__(
        self, service: Deniable, url: str, clock: Callable[[], float] = time.monotonic
    ) -> None:
        super().__init__(name="deniable-webhook", daemon=True)
        self._place = _Place(service._store)
        self._secret = secret_of(service)
        self._url = checked_url(url)
        self._clock = clock
        self._ended = threading.Event()
        self._tries = 0
        self._not_before = 0.0
        self._client = httpx.Client(
            timeout=TIMEOUT_SECONDS, follow_redirects=False, trust_env=False
        )

    def run(self) -> None:
        """See threading.Thread."""
        while not self._ended.wait(SECONDS):
            try:
                self.tell()
            except DeniableError as error:  # the store is away; it may come back
                _log.warning("webhook: %s", type(error).__name__)

    def end(self) -> None:
        """Send no more."""
        self._ended.set()
        if self.is_alive():
            self.join()
        self._client.close()

    def tell(self) -> int:
        """Send what is new, as far as the other side takes it; returns how many messages it took."""
        if self._clock() < self._not_before or not self._place.claimed():
            return 0
        taken = 0
        for entry in self._place.news():
            if self._ended.is_set() or not self._place.claimed():
                break
            if entry.kind not in UNTOLD and not self._sent(entry):
                self._tries += 1
                if self._tries < MOST_TRIES:
                    wait = min(MOST_WAIT_SECONDS, FIRST_WAIT_SECONDS * 2.0 ** (self._tries - 1))
                    self._not_before = self._clock() + wait
                    break
                _log.error("webhook: gave up on entry %d of the ledger", entry.seq)
            self._tries = 0
            taken += entry.kind not in UNTOLD
            self._place.reached(entry.seq)
        return taken

    def _sent(self, entry: Commitment) -> bool:
        body = message(entry)
        headers = {
            "Content-Type": "application/json",
            "User-Agent": "deniable",
            SIGNATURE: signature(self._secret, int(time.time()), body),
        }
        try:
            with self._client.stream("POST", self._url, content=body, headers=headers) as answer:
                return 200 <= answer.status_code < 300
        except (httpx.HTTPError, OSError) as error:
            _log.warning("webhook: %s", type(error).__name__)
            return False


def secret_of(service: Deniable) -> bytes:
    """The secret of the signatures, as text in bytes: the same in every process of a store."""
    return service.derived_key(PURPOSE).hex().encode()


class _Place:
    """How far the ledger was told, in the store; and which process tells it."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._owner = os.urandom(16)

    def claimed(self) -> bool:
        """Whether it is this process that tells now."""
        return self._store.retried(self._claim)

    def _claim(self, connection: Connection) -> bool:
        now = times.now()
        row = connection.execute(
            select(leases).where(leases.c.name == _LEASE).with_for_update()
        ).one_or_none()
        until = now + LEASE_SECONDS * 1_000_000
        if row is None:
            connection.execute(insert(leases).values(name=_LEASE, owner=self._owner, until=until))
            return True
        if row.owner != self._owner and row.until > now:
            return False
        connection.execute(
            update(leases).where(leases.c.name == _LEASE).values(owner=self._owner, until=until)
        )
        return True

    def news(self) -> list[Commitment]:
        """Entries that were not told yet, oldest first; the first time, none of before."""
        with self._store.read() as connection:
            stored = connection.execute(
                select(facts.c.value).where(facts.c.name == _CURSOR)
            ).scalar()
            if stored is not None:
                after = int.from_bytes(stored, "big")
                return commitments.entries(connection, after=after, limit=PAGE)
            newest = connection.execute(
                select(chain.c.seq).order_by(chain.c.seq.desc()).limit(1)
            ).scalar()
        self.reached(newest or 0)
        return []

    def reached(self, seq: int) -> None:
        """Remember that everything up to here was told."""
        value = seq.to_bytes(8, "big")

        def work(connection: Connection) -> None:
            here = facts.c.name == _CURSOR
            if not connection.execute(update(facts).where(here).values(value=value)).rowcount:
                connection.execute(insert(facts).values(name=_CURSOR, value=value))

        self._store.retried(work)

"""Webhook: sends ledger entries to one URL of the firm, signed, in order, at least once.

A message contains the kind of entry, the experiment, the actor and the time, but never a visitor, a
segment, an arm or a budget. One process at a time sends. If the receiver does not respond with 2xx,
the message is retried with increasing delays, and dropped after some hours so that it does not
block later ones.
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
"""Interval between checks of the ledger."""

TIMEOUT_SECONDS = 10.0
FIRST_WAIT_SECONDS, MOST_WAIT_SECONDS, MOST_TRIES = 5.0, 3_600.0, 14
LEASE_SECONDS = 120
PAGE = 100
PURPOSE = b"webhook"
UNTOLD = frozenset({"table", "key"})
"""Kinds of entries that are not sent, because they are frequent or not caused by a person."""

_CURSOR = "webhook_seq"
_LEASE = "webhook"
SIGNATURE = "Deniable-Signature"


def checked_url(url: str) -> str:
    """Validate the URL."""
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname or not url.isprintable():
        raise InvalidArgumentError("webhook_url", url, "https://HOST/PATH")
    return url


def signature(secret: bytes, moment: int, body: bytes) -> str:
    """Return the signature header: the time of sending, and the HMAC-SHA256 of time and body.

    >>> signature(b"key", 0, b"{}")[:20]
    't=0,v1=7314351dd949a'
    """
    signed = hmac.digest(secret, f"{moment}.".encode() + body, "sha256").hex()
    return f"t={moment},v1={signed}"


def message(entry: Commitment) -> bytes:
    """Return the message for an entry."""
    content = {
        "id": entry.seq,
        "kind": entry.kind,
        "experiment": entry.experiment,
        "by": entry.actor,
        "recorded_at": entry.recorded_at.isoformat(),
    }
    return json.dumps(content, separators=(",", ":")).encode()


class Webhook(threading.Thread):
    """Sends new ledger entries to one URL.

    Args:
        service: the service with the ledger.
        url: the receiver.
        clock: time in seconds, for delays between retries; replaced in tests.
    """

    def __init__(
        self, service: Deniable, url: str, clock: Callable[[], float] = time.monotonic
    ) -> None:
        super().__init__(name="deniable-webhook", daemon=True)
        self._place = _Cursor(service._store)
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
            except DeniableError as error:  # the store is unavailable; it may come back
                _log.warning("webhook: %s", type(error).__name__)

    def end(self) -> None:
        """Stop sending."""
        self._ended.set()
        if self.is_alive():
            self.join()
        self._client.close()

    def tell(self) -> int:
        """Send new entries as far as the receiver accepts them; return the number accepted."""
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
    """Return the signing secret as ASCII bytes, identical in every process of a store."""
    return service.derived_key(PURPOSE).hex().encode()


class _Cursor:
    """The position in the ledger up to which entries were sent, and which process sends."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._owner = os.urandom(16)

    def claimed(self) -> bool:
        """Whether this process is the current sender."""
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
        """Return entries not sent yet, oldest first. The first call skips existing entries."""
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
        """Record that everything up to here was sent."""
        value = seq.to_bytes(8, "big")

        def work(connection: Connection) -> None:
            here = facts.c.name == _CURSOR
            if not connection.execute(update(facts).where(here).values(value=value)).rowcount:
                connection.execute(insert(facts).values(name=_CURSOR, value=value))

        self._store.retried(work)

"""Approval by a second person, for the actions where the firm's rules require it.

If a rule applies, the action is refused and leaves a request. A privacy officer or an admin other
than the requester grants it in the web pages. Then exactly the same action is allowed for a day.
Requests and answers are `approval` entries in the ledger. The request is stored as a keyed hash,
and as a description that names no visitor.
"""

from __future__ import annotations

import hmac
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import Literal, TypeAlias

from sqlalchemy import Connection, delete, insert, select, update

from deniable.errors import ApprovalNeededError, UnknownNameError, WrongStateError
from deniable.service.ids import id_bytes
from deniable.storage import commitments, times
from deniable.storage.account import FirmSettings, read_settings
from deniable.storage.commitments import current_actor
from deniable.storage.schema import StoredRow, approvals
from deniable.storage.store import Store

Kind: TypeAlias = Literal["start", "budget", "erase", "rules"]

SECOND = 1_000_000
VALID_SECONDS = 24 * 3600
"""How long an action stays allowed after it was granted."""

WAITS_SECONDS = 7 * 24 * 3600
"""How long a request stays open."""

_START = "start "


@dataclass(frozen=True)
class Request:
    """A request that is open or was answered recently.

    Attributes:
        id: the request's id.
        kind: kind of the action.
        words: description of the action.
        asked_by: the requester; see `deniable.storage.commitments`.
        asked_at: time of the request.
        answered_by: who granted or refused it; None while it is open.
        answered_at: when.
        granted: whether it was granted.
    """

    id: str
    kind: str
    words: str
    asked_by: str
    asked_at: datetime
    answered_by: str | None
    answered_at: datetime | None
    granted: bool

    @property
    def experiment(self) -> str | None:
        """The experiment that is to be started, if that was asked for."""
        if self.kind != "start":
            return None
        return self.words.removeprefix(_START).rpartition(": ")[0]


class Approvals:
    """The part of `Deniable` that handles approvals.

    Args:
        store: the store.
        key: 32 secret bytes, for hashing requests.
        clock: current time in the stored format; replaced in tests.
    """

    def __init__(self, store: Store, key: bytes, clock: Callable[[], int] = times.now) -> None:
        self._store = store
        self._key = key
        self._clock = clock

    @contextmanager
    def asking(self) -> Iterator[None]:
        """Create a request if the action in this block raises ApprovalNeededError."""
        try:
            yield
        except ApprovalNeededError as needed:
            self._ask(needed)
            raise

    def require(self, connection: Connection, kind: Kind, words: str, *exactly: object) -> None:
        """Raise ApprovalNeededError unless another person granted exactly this action.

        Args:
            connection: the transaction of the action itself.
            kind: kind of the action.
            words: description for the approver; must not mention a visitor or a segment.
            exactly: parameters that must be identical when the action is repeated.
        """
        actor, digest = current_actor() or "", self._digest(kind, exactly)
        since = self._clock() - VALID_SECONDS * SECOND
        granted = connection.execute(
            select(approvals.c.id).where(
                approvals.c.digest == digest,
                approvals.c.asked_by == actor,
                approvals.c.granted.is_(True),
                approvals.c.answered_at > since,
            )
        ).first()
        if granted is None:
            raise ApprovalNeededError(kind, words, digest)

    def require_start(
        self, connection: Connection, key: str, cost_nano: int, *exactly: object
    ) -> None:
        """Require approval for starting an experiment or mask above the limit for one person."""
        limit = read_settings(connection).start_above_nano
        if limit is not None and cost_nano > limit:
            words = f"{_START}{key}: {cost_nano / 1e9:g} nats"
            self.require(connection, "start", words, key, cost_nano, *exactly)

    def require_budget(self, connection: Connection, budget_nano: int, window_days: int) -> None:
        """Require approval for raising the firm's budget or shortening its window."""
        if read_settings(connection).approve_budget:
            words = f"set the firm’s budget to {budget_nano / 1e9:g} nats in any {window_days} days"
            self.require(connection, "budget", words, budget_nano, window_days)

    def require_erasure(self, connection: Connection, words: str, *exactly: object) -> None:
        """Require approval for erasing visitors."""
        if read_settings(connection).approve_erasure:
            self.require(connection, "erase", words, *exactly)

    def require_rules(
        self, connection: Connection, before: FirmSettings, after: FirmSettings
    ) -> None:
        """Require approval for rules that require approval less often than before."""
        if after.weaker_than(before):
            words = f"ask less often for a second person: {after.rules_in_words()}"
            self.require(connection, "rules", words, after.rules())

    # -- listing and answering ----------------------------------------------------------------

    def all(self) -> list[Request]:
        """Return open and recently answered requests, newest first."""
        old = self._clock() - WAITS_SECONDS * SECOND
        query = (
            select(approvals)
            .where(approvals.c.asked_at > old)
            .order_by(approvals.c.asked_at.desc())
        )
        with self._store.read() as connection:
            return [_request(row) for row in connection.execute(query)]

    def usable(self, request: Request) -> bool:
        """Whether the requester can do now what was granted."""
        valid = times.as_datetime(self._clock() - VALID_SECONDS * SECOND)
        return request.granted and request.answered_at is not None and request.answered_at > valid

    def answer(self, request_id: str, *, grant: bool) -> Request:
        """Grant or refuse a request, as a person other than the requester.

        Raises:
            UnknownNameError: there is no such open request.
            WrongStateError: no person is signed in, or it is the requester.
        """
        actor = current_actor() or ""
        if not actor.startswith("user:"):
            raise WrongStateError("only a person who is signed in by name can be the second person")
        identity = id_bytes("request", request_id)

        def work(connection: Connection) -> Request:
            commitments.lock_chain(connection)
            here = approvals.c.id == identity
            row = connection.execute(select(approvals).where(here)).one_or_none()
            now = self._clock()
            waits = row is not None and row.answered_at is None
            if row is None or not waits or row.asked_at <= now - WAITS_SECONDS * SECOND:
                raise UnknownNameError("request that waits", request_id)
            if row.asked_by == actor:
                raise WrongStateError("the second person is somebody other than who asked")
            connection.execute(
                update(approvals)
                .where(here)
                .values(answered_by=actor, answered_at=now, granted=grant)
            )
            act = "grant" if grant else "refuse"
            commitments.record(
                connection, "approval", None, act=act, what=row.kind, words=row.words
            )
            return _request(connection.execute(select(approvals).where(here)).one())

        return self._store.retried(work)

    def _ask(self, needed: ApprovalNeededError) -> None:
        actor, now = current_actor() or "", self._clock()

        def work(connection: Connection) -> None:
            commitments.lock_chain(connection)
            old = approvals.c.asked_at <= now - 2 * WAITS_SECONDS * SECOND
            connection.execute(delete(approvals).where(old))
            same = (approvals.c.digest == needed.digest) & (approvals.c.asked_by == actor)
            waits = select(approvals.c.id).where(
                same,
                approvals.c.answered_at.is_(None),
                approvals.c.asked_at > now - WAITS_SECONDS * SECOND,
            )
            if connection.execute(waits).first() is not None:
                return
            connection.execute(
                insert(approvals).values(
                    id=os.urandom(16),
                    kind=needed.kind,
                    words=needed.words,
                    digest=needed.digest,
                    asked_by=actor,
                    asked_at=now,
                )
            )
            commitments.record(
                connection, "approval", None, act="ask", what=needed.kind, words=needed.words
            )

        self._store.retried(work)

    def _digest(self, kind: str, exactly: tuple[object, ...]) -> bytes:
        return hmac.digest(self._key, repr((kind, exactly)).encode("utf-8", "replace"), "sha256")


def _request(row: StoredRow) -> Request:
    return Request(
        id=row.id.hex(),
        kind=row.kind,
        words=row.words,
        asked_by=row.asked_by,
        asked_at=times.as_datetime(row.asked_at),
        answered_by=row.answered_by,
        answered_at=None if row.answered_at is None else times.as_datetime(row.answered_at),
        granted=bool(row.granted),
    )

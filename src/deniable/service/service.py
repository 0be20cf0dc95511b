"""`deniable.open`: the in-process decision service, used by HTTP, the command line and tests.

>>> import deniable
>>> with deniable.open("memory:") as service:
...     _ = service.firm.set(budget=3)
...     _ = service.experiments.create("checkout", arms=["old", "new"], segments=["a", "b"], budget=1)
...     _ = service.experiments.start("checkout")
...     first = service.decide("checkout", visitor="v-1", segment="a")
...     again = service.decide("checkout", visitor="v-1", segment="b")
...     service.reward(first.id, 1)
>>> first == again, first.arm in ("old", "new"), len(first.id)
(True, True, 32)
"""

from __future__ import annotations

import hmac
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, Self

from sqlalchemy import func, select

from deniable.errors import InvalidArgumentError
from deniable.service.apikeys import ApiKeys
from deniable.service.approvals import Approvals
from deniable.service.audits import Audits
from deniable.service.documents import Documents
from deniable.service.experiments import Experiments
from deniable.service.firm import FirmBudget
from deniable.service.ids import MaskKey, check_key, has_key, visitor_key
from deniable.service.jobs import RewardJob, decide_job, reward_job
from deniable.service.ledger import Ledger
from deniable.service.limits import DEFAULT_STORE
from deniable.service.masks import Masks
from deniable.service.people import People
from deniable.service.publisher import Publisher
from deniable.service.sessions import Sessions
from deniable.service.visitor_requests import VisitorRequests
from deniable.service.writer import Figures, Waiting, Writer
from deniable.storage import times
from deniable.storage.connect import connect, schema_problem
from deniable.storage.idempotency import Idempotency
from deniable.storage.records import Decision
from deniable.storage.schema import experiments, tables
from deniable.storage.store import Store

if TYPE_CHECKING:
    from deniable.service.reward_import import ImportSummary


_OLDEST_TABLE = (
    select(func.min(tables.c.published_at))
    .join(experiments, experiments.c.id == tables.c.experiment_id)
    .where(experiments.c.status == "running", tables.c.number == experiments.c.table_number)
)


class StoreFigures(NamedTuple):
    """What metrics tell of the store.

    Attributes:
        free_bytes: free space of its disk; None if the store is on another machine.
        table_age: seconds since the oldest table in force was published; None without any.
    """

    free_bytes: int | None
    table_age: float | None


def open(  # noqa: A001 - the public name is deniable.open
    url: str = DEFAULT_STORE,
    *,
    key_file: str | Path | None = None,
    mask_key_file: str | Path | None = None,
    queue_limit: int = 20_000,
    queue_seconds: float | None = None,
    decide_seconds: float | None = None,
) -> Deniable:
    """Open the service on the store at `url`, creating its schema if it is empty.

    Args:
        url: `sqlite:///path`, `postgresql://user@host/database`, or `memory:` (not persistent).
        key_file: file with the key for visitor HMACs, created (mode 0600) if missing. By default,
            it is next to the SQLite file. The environment variable DENIABLE_VISITOR_KEY takes
            precedence.
        mask_key_file: file with the key of the firm's masks, created with the first mask. By default,
            it is next to the SQLite file. The environment variable DENIABLE_MASK_KEY takes
            precedence.
        queue_limit: maximum number of queued decisions and rewards; more are refused with
            OverloadedError.
        queue_seconds: how long they may wait during overload before they are refused; None means
            indefinitely.
        decide_seconds: how long to wait for the store before a decision is answered without it;
            None waits indefinitely.

    Returns:
        A `Deniable`; close it, or use it in a `with` statement.

    >>> with open("memory:") as service:
    ...     service.experiments.all()
    []
    """
    store = connect(url)
    try:
        with store.read() as connection:
            new = not has_key(connection)
        key = visitor_key(url, key_file, new=new)
        store.retried(lambda connection: check_key(connection, key))
    except BaseException:
        store.close()
        raise
    return Deniable(
        store,
        key,
        MaskKey(url, mask_key_file),
        queue_limit=queue_limit,
        queue_seconds=queue_seconds,
        decide_seconds=decide_seconds,
    )


class Deniable:
    """Decide, reward, administer. Any number of threads and processes may share one store.

    Attributes:
        writer: stores decisions and rewards; `AsyncDecisions` submits to it.
        experiments: create, start, pause and stop experiments; read their counts and tables.
        firm: the firm's budget.
        masks: one label for life: create and end masks, and give labels.
        visitors: show, look up and erase stored visitor data.
        ledger: the event history, its verification and exports.
        audits: promises, and checks of whether they were kept.
        documents: numbered documents for signature, generated from the ledger.
        keys: API keys.
        approvals: actions that wait for a second person's approval.
        people: named users, their roles, invitations and passwords.
        sessions: signed-in users of the web pages.
        idempotency: stored responses to administrative requests, replayed when a request is
            repeated.

    >>> with open("memory:") as service:
    ...     service.ready()
    True
    """

    def __init__(
        self,
        store: Store,
        key: bytes,
        mask_key: MaskKey,
        *,
        queue_limit: int = 20_000,
        queue_seconds: float | None = None,
        decide_seconds: float | None = None,
    ) -> None:
        self._store = store
        self._key = key
        self._publisher = Publisher(store)
        self.writer = Writer(
            store,
            key,
            self._publisher,
            mask_key=mask_key,
            queue_limit=queue_limit,
            queue_seconds=queue_seconds,
        )
        self._decide_seconds = decide_seconds
        self.approvals = Approvals(store, self.derived_key(b"approvals"))
        self.experiments = Experiments(store, self._publisher, self.approvals)
        self.firm = FirmBudget(store, self.approvals)
        self.masks = Masks(store, mask_key, self.approvals, self.writer)
        self.visitors = VisitorRequests(store, key, self.approvals)
        self.ledger = Ledger(store, key)
        self.audits = Audits(store, key)
        self.documents = Documents(store)
        self.keys = ApiKeys(store)
        self.people = People(store, self.derived_key(b"sign-in attempts"))
        self.sessions = Sessions(store)
        self.idempotency = Idempotency(store)

    # -- decide and reward -------------------------------------------------------------------

    def decide(
        self,
        experiment: str,
        visitor: str,
        segment: str | None = None,
        *,
        context: str | None = None,
        observed: bool = True,
    ) -> Decision:
        """Return the arm for this visitor, after it has been stored durably.

        A visitor who already has a decision in this context gets the same one again, whatever the
        segment.

        Args:
            experiment: the experiment's key.
            visitor: your id of the visitor; only its keyed HMAC is stored.
            segment: the visitor's segment; unlisted ones, and None, share one row.
            context: the value that trackers know, for experiments on contexts; unlisted ones, and
                None, share the row `other`.
            observed: False says that no third party sees what comes of this visit, and that the
                experiment is one of those.

        Raises:
            UnknownNameError: there is no such experiment.
            WrongStateError: the experiment is observed, and this visit is not, or the reverse.
            OverloadedError: the queue is full.
        """
        contexts = None if context is None else (context,)
        return self._decided(experiment, (visitor,), (segment,), contexts, observed)[0]

    def decide_batch(
        self,
        experiment: str,
        visitors: Iterable[tuple[str, str | None]],
        *,
        contexts: Sequence[str | None] | None = None,
        observed: bool = True,
    ) -> list[Decision]:
        """Decide for (visitor, segment) pairs, in order, in one transaction.

        Args:
            experiment: the experiment's key.
            visitors: the pairs.
            contexts: one for each of them; None for none.
            observed: as in `decide`.
        """
        pairs = list(visitors)
        if contexts is not None and len(contexts) != len(pairs):
            raise InvalidArgumentError(
                "contexts", len(contexts), f"{len(pairs)}, one for each pair"
            )
        segments = [segment for _, segment in pairs]
        return self._decided(experiment, [v for v, _ in pairs], segments, contexts, observed)

    def reward(self, decision: str, value: float, metric: str | None = None) -> None:
        """Record the reward of a decision. Only the first reward per metric counts.

        Unknown ids, repeated rewards and late rewards are accepted silently and change nothing.

        Args:
            decision: the id that `decide` returned.
            value: from 0 to the metric's cap; 0 or 1 if no cap was declared.
            metric: defaults to the experiment's deciding metric.
        """
        self.reward_batch([(decision, value, metric)])

    def reward_batch(
        self, rewards: Iterable[tuple[str, float] | tuple[str, float, str | None]]
    ) -> None:
        """Record (decision, value) or (decision, value, metric) tuples in one transaction."""
        waiting = Waiting()
        job = reward_job(list(rewards), waiting)
        self.writer.submit(job)
        if not waiting.finished(self._decide_seconds):
            self.writer.answer_late(job)
        elif job.error is not None:
            raise job.error

    def import_rewards(
        self,
        path: str | Path,
        *,
        experiment: str | None = None,
        metric: str | None = None,
        currency: str | None = None,
        columns: Mapping[str, str] | None = None,
        skip_bad: bool = False,
        allow_unknown: bool = False,
        progress: Callable[[str, int, int], None] | None = None,
    ) -> ImportSummary:
        """Import rewards from a CSV or Parquet file, by decision id or by visitor and experiment.

        The whole file is checked before anything is applied. Importing it twice changes nothing.

        Args:
            path: the file, with columns `value`, and `decision` or `visitor`; optionally
                `experiment`, `metric` and `currency`.
            experiment: experiment of all rows.
            metric: metric of all rows; defaults to the deciding metric if the file has no such
                column.
            currency: currency of the values; rows in other currencies are bad.
            columns: maps "value", "decision" and so on to the column names in the file.
            skip_bad: apply the good rows even if there are bad ones.
            allow_unknown: apply the file even if more than a tenth of its ids are unknown.
            progress: callback that receives the current step, the rows done and the total.

        Raises:
            InvalidArgumentError: the file is invalid; the message says why in one line. Nothing was
                applied.
        """
        from deniable.service.reward_import import applied, checked_file, silent

        report = progress or silent
        with self._store.read() as connection:
            checked = checked_file(
                connection,
                Path(path),
                key=self._key,
                experiment=experiment,
                metric=metric,
                currency=currency,
                columns=columns or {},
                skip_bad=skip_bad,
                allow_unknown=allow_unknown,
                progress=report,
            )
        return applied(checked, self._applied, report)

    def _applied(self, rewards: Sequence[tuple[bytes, str | None, int]]) -> dict[str, int]:
        """Apply rewards in one transaction and return the outcome counts."""
        waiting = Waiting()
        job = RewardJob(rewards, waiting, outcomes={})
        self.writer.submit(job)
        waiting.finished(None)
        if job.error is not None:
            raise job.error
        assert job.outcomes is not None
        return job.outcomes

    # -- lifecycle----------------------------------------------------------------------------

    @property
    def figures(self) -> Figures:
        """Counts since the start and the queue length; nothing about segments or arms."""
        return self.writer.figures

    def beat(self) -> None:
        """Record once a day that the service is running: only recorded time frees budget."""
        self.writer.engine.beat()

    def store_figures(self) -> StoreFigures:
        """Return the free space of the store's disk, and the age of the oldest table in force."""
        with self._store.read() as connection:
            published = connection.execute(_OLDEST_TABLE).scalar()
        age = None if published is None else max(0.0, (times.now() - published) / 1e6)
        return StoreFigures(self._store.free_bytes(), age)

    def schema_problem(self) -> str | None:
        """Return why this version cannot use the store's schema any more; None if it can."""
        with self._store.read() as connection:
            return schema_problem(connection)

    def ready(self) -> bool:
        """Whether a decision could be drawn and stored right now."""
        return self.writer.ready()

    def derived_key(self, purpose: bytes) -> bytes:
        """Derive a 32-byte secret for one purpose, identical in every process that uses this store."""
        return hmac.digest(self._key, b"derived for " + purpose, "sha256")

    def close(self, timeout_seconds: float | None = None) -> bool:
        """Finish everything queued, then release all resources. Safe to call twice.

        Args:
            timeout_seconds: how long to wait for a store that does not respond.

        Returns:
            False if the store did not respond in time and could not be closed cleanly.
        """
        if not self.writer.close(timeout_seconds):
            return False
        self._publisher.close()
        self._store.close()
        return True

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: object) -> None:
        self.close()

    def _decided(
        self,
        experiment: str,
        visitors: Sequence[str],
        segments: Sequence[str | None],
        contexts: Sequence[str | None] | None,
        observed: bool,
    ) -> list[Decision]:
        waiting = Waiting()
        job = decide_job(
            experiment, visitors, segments, waiting, contexts=contexts, observed=observed
        )
        self.writer.submit(job)
        if not waiting.finished(self._decide_seconds):
            return self.writer.answer_late(job)
        if job.error is not None:
            raise job.error
        return job.answers

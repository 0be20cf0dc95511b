"""Audits: reads promises and decisions from the store and passes them to `deniable.audit` as plain
data.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from sqlalchemy import Connection, func, select

from deniable._types import JsonObject
from deniable.audit.promise import AuditedTable, Lottery, Promise
from deniable.errors import NANO, BrokenPromiseError, InvalidTableError
from deniable.privacy.tables import stored_table
from deniable.storage import account_rules, commitments, experiments, masks, promises, times
from deniable.storage.account import last_hours
from deniable.storage.commitments import Entry
from deniable.storage.erasure import tombstone
from deniable.storage.ledger import Verification, chained, verify
from deniable.storage.promise_entries import PromisedTable, promised_table, table_problem
from deniable.storage.records import SLOTS, Experiment, Role
from deniable.storage.schema import (
    Query,
    counters,
    decisions,
    rewarded_decisions,
    rewards,
    tables,
    tombstones,
)
from deniable.storage.schema import commitments as commitment_rows
from deniable.storage.store import Store

if TYPE_CHECKING:
    import polars as pl

    from deniable.audit.checks import Check
    from deniable.audit.firm_report import ExperimentLine, FirmAudit
    from deniable.audit.report import Audit

STEPS = (
    "verifying the hash chains",
    "reading the decisions",
    "counting them again, table by table",
    "rehearsing decisions of made-up visitors",
    "checking the draws",
)
"""What an audit of one experiment does, in order."""

_PAGE = 20_000
_COLUMNS = (
    "visitor",
    "segment",
    "shown",
    "table",
    "role",
    "version",
    "reward",
    "writer",
    "seq",
    "reward_writer",
    "reward_seq",
)


class Audits:
    """The part of `Deniable` that checks its promises."""

    def __init__(self, store: Store, key: bytes) -> None:
        self._store = store
        self._key = key

    def promise(self, key: str) -> Promise:
        """Return what an experiment promises, over all its versions."""
        with self._store.read() as connection:
            return _promise(connection, experiments.by_key(connection, key))

    def run(
        self, key: str, *, record: bool = False, progress: Callable[[int], None] | None = None
    ) -> Audit:
        """Audit an experiment: its promise exactly, and all its decisions.

        Args:
            key: the experiment.
            record: add the verdict to the ledger, where it cannot be changed.
            progress: called with the number of finished `STEPS`.
        """
        from deniable.audit.checks import Check
        from deniable.audit.decisions import DecisionLog
        from deniable.audit.recount import recounted
        from deniable.audit.report import audit
        from deniable.service.rehearsal import Rehearsal

        done = progress or (lambda step: None)
        rehearsal = Rehearsal(self._store, self._key, key)  # read first: tables may follow
        with self._store.read() as connection:
            experiment = experiments.by_key(connection, key)
            promise = _promise(connection, experiment)
            verified = verify(connection, {})
            chain = _chain_checks(connection, experiment, verified)
            done(1)
            frame = _frame(connection, experiment)
            cells, erased = _counted(connection, experiment)
            lottery = _lottery(connection, experiment)
            chain.append(_tombstone_check(connection, experiment, self._key, frame))
            chain += _label_checks(connection, experiment)
        done(2)
        chain += recounted(promise, frame).checks()
        done(3)
        chain += rehearsal.checks(promise)
        done(4)
        try:
            log = DecisionLog.from_frame(frame, promise)
        except InvalidTableError as error:
            # This row was not written by the service. The design is audited nevertheless.
            chain.append(Check("the decisions", "broken", f"{error}."))
            found = audit(promise, chain=chain)
        else:
            found = audit(promise, log, lottery=lottery, counted=cells, erased=erased, chain=chain)
        found = replace(found, heads=verified.heads)
        if record:
            self._record(
                experiment,
                sound=found.sound,
                verdict=found.verdict,
                decisions=found.decisions,
                broken=_broken(found.checks),
                power=found.power,
                figures=found.to_dict()["evidence"],
            )
        return found

    def firm(self, *, record: bool = False) -> FirmAudit:
        """Audit the whole firm from the chain: windows, layers, debits, and every experiment's tables.

        Args:
            record: add the verdict to the ledger.
        """
        from deniable.audit.firm import recomputed
        from deniable.audit.firm_report import FirmAudit, ends, firm_checks

        with self._store.read() as connection:
            verified = verify(connection, {})
            # If the chain is broken, its entries cannot be added up.
            entries = [] if verified.chain == "commitments" else list(chained(connection))
            last = {bytes.fromhex(name): at for name, at in verified.last_decided.items()}
            recomputed_account = recomputed(entries, last, commitments.account_time(connection))
            lines = _lines(connection, entries, ends(recomputed_account), last) if entries else []
            unobserved = _unobserved_checks(connection)
        problems = [] if verified.problem is None else [verified.problem]
        found = FirmAudit(
            made_at=datetime.now(UTC),
            account=recomputed_account,
            experiments=tuple(lines),
            commitments=verified.commitments,
            decisions=verified.decisions,
            heads=verified.heads,
            checks=(
                *firm_checks(recomputed_account, lines, problems),
                *_channel_checks(entries),
                *unobserved,
            ),
        )
        if record:
            peak = recomputed_account.peaks[-1] if recomputed_account.peaks else None
            self._record(
                None,
                sound=found.sound,
                verdict=found.verdict,
                decisions=found.decisions,
                broken=_broken(found.checks),
                experiments=len(lines),
                peak_nano=None if peak is None else peak.nano,
            )
        return found

    def _record(self, experiment: Experiment | None, **detail: object) -> None:
        def work(connection: Connection) -> None:
            commitments.lock_chain(connection)
            commitments.record(connection, "audit", experiment, 0, **detail)

        self._store.retried(work)


def _broken(checks: Sequence[Check]) -> list[str]:
    return [check.name for check in checks if check.outcome == "broken"]


def _promise(connection: Connection, experiment: Experiment) -> Promise:
    """Read the promise from the chain, not from the experiment's row, which could be modified."""
    chained_promise = promises.promise_of(connection, experiment)
    off = promises.switched_off(connection, experiment)
    published = [
        AuditedTable.stored(
            table.number,
            table.version,
            table.rows,
            table.counts,
            decisions=table.decisions,
            published_at=times.as_stored(table.published_at),
            n_segments=len(chained_promise.rows),
            n_arms=len(chained_promise.arms),
        )
        for table in experiments.published(connection, experiment)
    ]
    return Promise.chained(chained_promise, off, published)


def _chain_checks(
    connection: Connection, experiment: Experiment, verified: Verification
) -> list[Check]:
    """Check ledger, rows and tables against each other, and the sum of budgets that counted together."""
    from deniable.audit.checks import Check, chain_check
    from deniable.audit.firm import recomputed, within

    problems = [] if verified.problem is None else [verified.problem]
    if verified.chain == "commitments":  # its entries cannot be added up
        return [chain_check(problems)]
    entries = [entry for entry in chained(connection) if entry.kind != "table"]
    last = {bytes.fromhex(name): at for name, at in verified.last_decided.items()}
    account = recomputed(entries, last, commitments.account_time(connection))
    found = [chain_check(problems)]
    peak = within(account, bytes.fromhex(experiment.id))
    if peak is None:
        found.append(Check("every window", "not tested", "It has not been started."))
        return found
    counted, budget, days = peak
    found.append(
        Check(
            "every window",
            "kept" if counted <= budget else "broken",
            f"At most {counted / NANO:g} nats were in use at any time, counting {days} days after the "
            f"last new visitor, recomputed from the audit log; the firm guarantees {budget / NANO:g}.",
        )
    )
    return found


def _counted(
    connection: Connection, experiment: Experiment
) -> tuple[Counter[tuple[int, int, int, int]], int]:
    """Return shows by (table, role, segment, arm), and the number of erased decisions."""
    mine = bytes.fromhex(experiment.id)
    keys = (counters.c.table_number, counters.c.role, counters.c.segment, counters.c.arm)
    rows = connection.execute(
        select(*keys, func.sum(counters.c.shows))
        .where(
            counters.c.experiment_id == mine,
            counters.c.metric == 0,
            counters.c.table_number > 0,
        )
        .group_by(*keys)
    )
    cells = Counter(
        {(number, role, segment, arm): int(n) for number, role, segment, arm, n in rows if n}
    )
    erased = connection.execute(
        select(func.count()).where(
            decisions.c.experiment_id == mine,
            decisions.c.salt.is_(None),
        )
    ).scalar_one()
    return cells, erased


def _tombstone_check(
    connection: Connection, experiment: Experiment, key: bytes, frame: pl.DataFrame
) -> Check:
    """Check that nobody who was erased was drawn for again at a risk."""
    import polars as pl

    from deniable.audit.checks import Check

    mine = tombstones.c.experiment_id == bytes.fromhex(experiment.id)
    stones = set(connection.execute(select(tombstones.c.visitor).where(mine)).scalars())
    members = frame.filter(pl.col("role") == Role.MEMBER)["visitor"].drop_nulls() if stones else ()
    count = sum(tombstone(key, visitor) in stones for visitor in members)
    return Check(
        "erased visitors",
        "broken" if count else "kept",
        f"{count:,} decisions at a risk are of visitors who had been erased."
        if count
        else f"None of {len(stones):,} erased visitors was drawn for again at a risk.",
    )


def _channel_checks(entries: Sequence[Entry]) -> list[Check]:
    """Check every mask's channel exactly, against the budget that its entry commits."""
    from deniable.audit.labels import channel_check

    made = [entry for entry in entries if entry.kind == "mask"]
    checks = [channel_check(entry.detail, entry.amount_nano) for entry in made]
    return [
        replace(check, name=f"labels of {entry.detail['mask']}")
        for check, entry in zip(checks, made, strict=True)
    ]


def _unobserved_checks(connection: Connection) -> list[Check]:
    """Check that what unobserved visits brought counts in no other experiment."""
    from deniable.audit.checks import Check

    everything = experiments.everything(connection)
    unobserved = {bytes.fromhex(one.id) for one in everything if not one.observed}
    if not unobserved:
        return []
    identity = decisions.c.experiment_id
    query = select(identity, func.count()).group_by(identity)
    stored: dict[bytes, int] = {row[0]: row[1] for row in connection.execute(query)}
    identity = counters.c.experiment_id
    query = select(identity, func.sum(counters.c.shows)).group_by(identity)
    counted: dict[bytes, int] = {row[0]: int(row[1]) for row in connection.execute(query)}
    wrong = sum(stored.get(one, 0) != counted.get(one, 0) for one in stored.keys() | counted.keys())
    own = (rewards.c.experiment_id == decisions.c.experiment_id) & (
        rewards.c.decision_id == decisions.c.id
    )
    strays = select(func.count()).select_from(rewards.outerjoin(decisions, own))
    stray = connection.execute(strays.where(decisions.c.id.is_(None))).scalar_one()
    visits = sum(stored.get(one, 0) for one in unobserved)
    total = sum(stored.values())
    return [
        Check(
            "unobserved visits",
            "broken" if wrong or stray else "kept",
            f"{wrong:,} experiments do not count the decisions that they made, and {stray:,} rewards "
            "count in an experiment that did not make their decision."
            if wrong or stray
            else f"{visits:,} of {total:,} decisions were for visits declared unobserved. Every "
            "experiment counts its own decisions and rewards, and no others.",
        )
    ]


def _label_checks(connection: Connection, experiment: Experiment) -> list[Check]:
    """Check the mask of an experiment: its channel exactly, its labels against it, its erasures."""
    from deniable.audit.checks import Check
    from deniable.audit.labels import channel_check, shares_check

    if experiment.mask is None:
        return []
    mask = masks.named(connection, experiment.mask)
    covered = masks.coverage(connection, mask)
    mine = commitment_rows.c.experiment_id == mask.id
    entries = commitments.linked(connection, mine, commitment_rows.c.kind == "erase_labels")
    erased = sum(entry.detail["labels"] for entry in entries)
    return [
        channel_check(mask.definition, mask.budget_nano),
        shares_check(mask.definition, list(covered.known.values())),
        Check(
            "erased labels",
            "kept" if covered.erased == erased else "broken",
            f"{covered.erased:,} rows have no label, and the ledger says {erased:,}.",
        ),
    ]


def _lottery(connection: Connection, experiment: Experiment) -> Lottery | None:
    """Return how members are chosen, per the chain; None before the start."""
    promise = promises.promise_of(connection, experiment)
    if promise.status == "draft":
        return None
    slots = SLOTS if promise.slots is None else int.from_bytes(promise.slots, "little").bit_count()
    return Lottery(slots=slots, holdout=promise.holdout)


def _lines(
    connection: Connection,
    entries: Sequence[Entry],
    until: Mapping[bytes, datetime | None],
    last_decided: Mapping[bytes, int],
) -> list[ExperimentLine]:
    """Return one line per experiment that is in the chain or has a row."""
    from deniable.audit.firm_report import ExperimentLine, TableTally

    acts: dict[bytes, list[Entry]] = {}
    promised_tables: dict[tuple[bytes, int], PromisedTable] = {}
    for entry in entries:
        if entry.experiment_id is None or entry.kind in masks.KINDS:
            continue
        acts.setdefault(entry.experiment_id, []).append(entry)
        if entry.kind == "table":
            entry_table = promised_table(entry)
            promised_tables[entry.experiment_id, entry_table.number] = entry_table
    for identity in [one for one, mine in acts.items() if promises.discarded(e.kind for e in mine)]:
        del acts[identity]
    rows = {bytes.fromhex(one.id): one for one in experiments.everything(connection)}
    stones: dict[bytes, int] = {
        row[0]: row[1]
        for row in connection.execute(
            select(tombstones.c.experiment_id, func.count()).group_by(tombstones.c.experiment_id)
        )
    }
    totals: dict[bytes, int] = {
        row[0]: int(row[1])
        for row in connection.execute(
            select(counters.c.experiment_id, func.sum(counters.c.shows)).group_by(
                counters.c.experiment_id
            )
        )
    }
    hours, chained = last_hours(connection), account_rules.chained_hours(entries)
    said: dict[bytes, promises.Promise] = {}
    problems: dict[bytes, list[str]] = {identity: [] for identity in (*acts, *rows)}
    for identity in problems:
        row = rows.get(identity)
        try:
            mine = [e for e in acts.get(identity, []) if promises.matters(e)]
            said[identity] = promises.promise_from(row.key if row else identity.hex(), mine)
        except BrokenPromiseError as problem:
            problems[identity].append(str(problem))
            continue
        if row is None:
            problems[identity].append("its row was removed")
            continue
        wrong = promises.differences(row, said[identity])
        if wrong:
            problems[identity].append(f"its row is not what the ledger says: {', '.join(wrong)}")
        if stones.get(identity, 0) != said[identity].tombstones:
            problems[identity].append("tombstones were removed or added")
        newest = last_decided.get(identity, 0) // account_rules.HOUR
        answered = hours.get(identity, 0)
        if answered is None:
            problems[identity].append("its last answer is no hour")
        elif row.budget_nano and answered < newest:
            problems[identity].append("its last answer was moved back behind its newest decision")
        elif answered < chained.get(identity, 0):
            problems[identity].append("its last answer was moved back behind the one in the ledger")
    tallies = {identity: TableTally(promise) for identity, promise in said.items()}
    missing = dict(promised_tables)
    query = select(tables).order_by(tables.c.experiment_id, tables.c.number)
    with connection.execute(query.execution_options(yield_per=50)) as found:
        for stored in found:
            identity = stored.experiment_id
            promised = missing.pop((identity, stored.number), None)
            wrong_table = table_problem(stored, promised)
            if wrong_table is not None:
                problems.setdefault(identity, []).append(f"table {stored.number} {wrong_table}")
            elif promised is not None and identity in tallies:
                shape = len(said[identity].rows), len(said[identity].arms)
                table = stored_table(stored.rows, stored.counts, *shape)
                tallies[identity].add(table, promised)
    for identity, number in missing:
        problems[identity].append(f"table {number} was removed")
    lines = []
    for identity, promise in said.items():
        tally = tallies[identity]
        tally.finish()
        audited = [e for e in acts.get(identity, []) if e.kind == "audit"]
        erased = sum(e.detail["decisions"] for e in acts[identity] if e.kind in ("erase", "purge"))
        lines.append(
            ExperimentLine(
                key=promise.key,
                status=promise.status,
                strategy=promise.strategy,
                budget_nano=promise.budget_nano,
                layer=promise.layer,
                slots=0
                if promise.slots is None
                else int.from_bytes(promise.slots, "little").bit_count(),
                decisions=totals.get(identity, 0),
                erased=erased,
                tables=tally.tables,
                tombstones=promise.tombstones,
                counts_until=until.get(identity),
                audited=None
                if not audited
                else (
                    times.as_datetime(audited[-1].recorded_at),
                    bool(audited[-1].detail["sound"]),
                ),
                problems=(*problems[identity], *tally.problems),
            )
        )
    lines += [
        ExperimentLine(
            identity.hex(), "?", "?", 0, None, 0, totals.get(identity, 0), 0, 0, 0, None, None,
            tuple(own_problems),
        )
        for identity, own_problems in problems.items()
        if identity not in said
    ]  # fmt: skip
    return sorted(lines, key=lambda line: line.key)


def _frame(connection: Connection, experiment: Experiment) -> pl.DataFrame:
    """Return all decisions that name a table, oldest first; of erased ones, what is left.

    Decisions made before tables were published have no table to compare with. The ledger's chain
    covers them.
    """
    import polars as pl

    whole = dict.fromkeys(_COLUMNS, pl.Int64)
    schema: JsonObject = {**whole, "visitor": pl.Binary}
    with connection.execution_options(yield_per=_PAGE).execute(_query(experiment)) as found:
        pages = [
            pl.DataFrame([tuple(row) for row in page], schema=schema, orient="row")
            for page in found.partitions()
        ]
    return pl.concat(pages) if pages else pl.DataFrame(schema=schema)


def _query(experiment: Experiment) -> Query:
    return (
        select(
            decisions.c.visitor,
            decisions.c.segment,
            decisions.c.shown,
            decisions.c.table_number,
            decisions.c.role,
            decisions.c.version,
            rewards.c.value,
            decisions.c.writer_id,
            decisions.c.seq,
            rewards.c.writer_id,
            rewards.c.seq,
        )
        .select_from(rewarded_decisions)
        .where(
            decisions.c.experiment_id == bytes.fromhex(experiment.id),
        )
        .order_by(decisions.c.decided_at, decisions.c.writer_id, decisions.c.seq)
    )

"""Faults as somebody might really build them in, each with what must catch it."""

from __future__ import annotations

import json
import logging
import math
import os
import random
import time
from collections.abc import Callable, Sequence
from copy import copy
from dataclasses import dataclass, replace
from hashlib import sha256
from typing import Any

import pytest
from sqlalchemy import func, select, update
from tests.audit.faults.catchers import SEGMENTS, World
from tests.audit.recipes import MakeTable, publishes
from tests.promise.support import taught

from deniable.errors import InvalidArgumentError
from deniable.privacy.tables import Row, Table, draw, thresholds
from deniable.service import batch, experiment_state, jobs, table_making
from deniable.service.batch import ENTROPY, MARK_BYTES, JobBatch
from deniable.service.drafts import NewArm
from deniable.service.experiment_state import ExperimentState, system_bytes
from deniable.service.http import decide_routes, metrics
from deniable.service.http.decide_routes import padded
from deniable.service.http.ofrep import evaluation
from deniable.service.ids import VisitorHash
from deniable.service.jobs import checked_segment
from deniable.storage import account, promises, sqlite_connections
from deniable.storage.records import Decision, Role
from deniable.storage.schema import answers, experiments, tombstones
from deniable.storage.schema import rewards as reward_rows
from deniable.strategies.recipe import Recipe
from deniable.strategies.rules import Counts

SPACE = 2**64
Patch = pytest.MonkeyPatch


@dataclass(frozen=True)
class Fault:
    """A fault.

    Attributes:
        name: in words.
        caught_by: all of these catch it.
        plant: builds it in before the service starts.
        afterwards: what is done to a service that runs.
        running: whether it is built into a service that runs and has learned.
        decisions: visitors of each segment that audits need to notice it.
        arms: of the experiment.
        checks: of the checks of `audit experiment`, those that must find it.
    """

    name: str
    caught_by: tuple[str, ...]
    plant: Callable[[Patch], None] = lambda _patch: None
    afterwards: Callable[[World], None] = lambda _world: None
    running: bool = False
    decisions: int = 3_000
    arms: tuple[str | NewArm, ...] = ("x", "y", "z")
    checks: tuple[str, ...] = ()


def tilted(row: Row, nats: float) -> Row:
    """A row whose likeliest arm has its odds multiplied by e^nats."""
    top = max(range(len(row)), key=lambda arm: row[arm])
    rest = SPACE - row[top]
    odds = row[top] / rest * math.exp(nats)
    wanted = int(SPACE * odds / (1 + odds))
    found = [entry * (SPACE - wanted) // rest for entry in row]
    found[top] = SPACE - sum(found) + found[top]
    return tuple(found)


def _unchecked(patch: Patch, make: MakeTable) -> None:
    """Tables come from here, and nobody looks at them before they are served."""
    publishes(patch, make)
    patch.setattr(promises, "check_table", lambda *_: None)


def _honest_excess(patch: Patch) -> None:
    def loose(recipe: Recipe, counts: Counts) -> Table:
        table = Recipe.table(recipe, counts)
        return Table(tuple(tilted(row, 0.05) for row in table.rows), table.unlisted)

    _unchecked(patch, loose)


def _lying_excess(patch: Patch) -> None:
    real = thresholds
    patch.setattr(experiment_state, "thresholds", lambda row: real(tilted(row, 0.05)))
    # The fault is in the rows. With other draws it could be missed once in a long while.
    patch.setattr(batch, "system_bytes", random.Random(5).randbytes)


def _lying_rows(patch: Patch) -> None:
    """One visitor in twenty is answered the segment's best arm, and another one is stored."""
    real = JobBatch.decide

    def decide(self: JobBatch, state: ExperimentState, jobs: Sequence[Any]) -> None:
        before = len(self.answers)
        real(self, state, jobs)
        for place in range(before, len(self.answers)):
            job, answers = self.answers[place]
            best = {SEGMENTS[0]: "x", SEGMENTS[1]: "y"}
            changed = [
                Decision(one.id, best.get(segment or "", one.arm)) if one.id[-1] == "0" else one
                for one, segment in zip(answers, job.segments, strict=True)
            ]
            self.answers[place] = (job, changed)

    patch.setattr(JobBatch, "decide", decide)


def _fresh_draws(patch: Patch) -> None:
    patch.setattr(VisitorHash, "__call__", lambda _self, _visitor: os.urandom(16))


def _hash_bucketing(patch: Patch) -> None:
    real = batch.drawn

    def drawn(state: Any, visitors: Sequence[Any], _random: bytes, *more: Any) -> Any:
        hashed = b"".join(
            sha256(visitor).digest()[:8] + os.urandom(ENTROPY.size - 8)
            for visitor, _, _ in visitors
        )
        return real(state, visitors, os.urandom(MARK_BYTES) + hashed, *more)

    patch.setattr(batch, "drawn", drawn)


def _weights_by_segment(patch: Patch) -> None:
    real = ExperimentState.__init__

    def made(self: ExperimentState, *given: Any, **more: Any) -> None:
        real(self, *given, **more)
        if self.rows:
            self.rows[0] = [min(SPACE, end + end // 5) for end in self.rows[0]]

    patch.setattr(ExperimentState, "__init__", made)


ARM_BUDGETS = (NewArm("x", budget=0.2), NewArm("y", budget=1.0), NewArm("z", budget=1.0))


def _segment_clocks(patch: Patch) -> None:
    """Each arm's risk is at most what the segment's clock allows, so that its weights depend on it."""

    def make(recipe: Recipe, counts: Counts) -> Table:
        budgets = [nano / 1e9 for nano in recipe.budgets]
        rows = []
        for place, shown in enumerate(counts.shows):
            allowed = min(1.0, (1 + sum(shown)) / (800 if place else 40))
            odds = [1 / math.expm1(min(allowed, one)) for one in budgets]
            weights = [one / (1 + sum(odds)) for one in odds]
            weights[place % len(weights)] += 1 - sum(weights)
            rows.append(_whole(weights))
        return Table(tuple(rows), rows[0])

    _unchecked(patch, make)


def _whole(weights: Sequence[float]) -> Row:
    found = [int(weight * SPACE) for weight in weights]
    return (SPACE - sum(found[1:]), *found[1:])


def _refusal(patch: Patch) -> None:

    def checked(segment: object) -> str | None:
        if segment == SEGMENTS[1]:
            raise InvalidArgumentError("segment", "...", "another segment")
        return checked_segment(segment)

    patch.setattr(jobs, "checked_segment", checked)


def _in_answers(patch: Patch) -> None:
    def told_more(body: bytes, *more: Any) -> bytes:
        told = json.loads(body)
        for one in told.get("decisions", [told] if "arm" in told else []):
            one["propensity"] = 0.5
        return padded(json.dumps(told, separators=(",", ":")).encode(), *more)

    patch.setattr(decide_routes, "padded", told_more)


def _in_metadata(patch: Patch) -> None:
    def told_more(key: str, decision: Decision) -> dict[str, Any]:
        told = evaluation(key, decision)
        return {**told, "metadata": {**told["metadata"], "explored": decision.arm == "x"}}

    patch.setattr(decide_routes, "evaluation", told_more)


def _in_ids(patch: Patch) -> None:
    """The last bit of the id is that of "the draw was in the upper half"."""

    def marked(size: int) -> bytes:
        found = bytearray(system_bytes(size))
        for start in range(MARK_BYTES, size, ENTROPY.size):
            place = start + 15
            found[place] = found[place] & 0xFE | found[start + 7] >> 7
        return bytes(found)

    patch.setattr(batch, "system_bytes", marked)


def _in_logs(patch: Patch) -> None:
    real = JobBatch.decide

    def decide(self: JobBatch, state: ExperimentState, jobs: Sequence[Any]) -> None:
        logging.getLogger("deniable").debug("deciding for %s", [job.segments for job in jobs])
        real(self, state, jobs)

    patch.setattr(JobBatch, "decide", decide)


def _in_metrics(patch: Patch) -> None:
    seen: set[str] = set()
    real, exposition = JobBatch.decide, metrics.Tally.exposition

    def decide(self: JobBatch, state: ExperimentState, jobs: Sequence[Any]) -> None:
        seen.update(str(segment) for job in jobs for segment in job.segments)
        real(self, state, jobs)

    def exposed(self: metrics.Tally) -> bytes:
        lines = "".join(f'deniable_decisions{{segment="{one}"}} 1\n' for one in sorted(seen))
        return exposition(self) + lines.encode()

    patch.setattr(JobBatch, "decide", decide)
    patch.setattr(metrics.Tally, "exposition", exposed)


def _seeded(patch: Patch) -> None:
    patch.setattr(batch, "system_bytes", random.Random(7).randbytes)


def _early_answers(patch: Patch) -> None:
    real = JobBatch.store

    def store(self: JobBatch) -> Any:
        for job, given in self.answers:
            job.answers = given
            job.done(job)
            job.done = lambda _job: None
        return real(self)

    patch.setattr(JobBatch, "store", store)


def _synchronous(value: str) -> Callable[[Patch], None]:
    return lambda patch: patch.setattr(sqlite_connections, "SYNCHRONOUS", value)


def _float_table(patch: Patch) -> None:
    """Probabilities as floats, rounded to integers one by one; nobody checks what comes of it."""

    def make(recipe: Recipe, counts: Counts) -> Table:
        budget, width = max(recipe.budgets) / 1e9, len(recipe.budgets)
        least = 1 / (width - 1 + math.exp(budget))
        rows = []
        for shown, earned in zip(counts.shows, counts.rewards, strict=True):
            rate = [gain / max(1, count) for gain, count in zip(earned, shown, strict=True)]
            best = rate.index(max(rate))
            row = [math.floor(least * 2**53) << 11] * width  # what a float between 0 and 1 resolves
            row[best] = SPACE - sum(row) + row[best]
            rows.append(tuple(row))
        return Table(tuple(rows), _whole([1 / width] * width))

    publishes(patch, make)


def _float_table_unchecked(patch: Patch) -> None:
    _float_table(patch)
    patch.setattr(promises, "check_table", lambda *_: None)


def _first_come(patch: Patch) -> None:
    """Of a layer, the first half of the visitors belong to the first experiment."""

    def role(self: ExperimentState, _visitor: str) -> Role:
        came = self.__dict__.setdefault("came", [])
        came.append(None)
        return Role.MEMBER if len(came) <= 30 else Role.OTHER_SLOT

    patch.setattr(ExperimentState, "role", role)


def _refill(patch: Patch) -> None:
    """Every start finds the whole budget again."""
    patch.setattr(account, "counted", lambda *_, **__: [])


def _edited(world: World) -> None:
    with world.service._store.begin() as connection:
        connection.execute(
            update(experiments)
            .where(experiments.c.key == "checkout")
            .values(budget_nano=5_000_000_000)
        )


def _no_tombstones(patch: Patch) -> None:
    patch.setattr(batch, "tombstone", lambda *_: os.urandom(16))


def _erased_and_back(world: World) -> None:
    names = [f"gone-{number}" for number in range(20)]
    for _ in range(2):
        world.service.decide_batch("checkout", [(name, SEGMENTS[0]) for name in names])
        world.service.visitors.erase(names[:-1])
    world.service.decide_batch("checkout", [(name, SEGMENTS[0]) for name in names])


def _table_after_click(patch: Patch) -> None:
    """Where there is a reward since the last table, the next one is made at once."""
    real = table_making.growth
    rewards: list[int] = []

    def growth(connection: Any, experiment: Any) -> Any:
        grown = real(connection, experiment)
        rewards.append(connection.execute(select(func.count()).select_from(reward_rows)).scalar())
        clicked = len(rewards) > 1 and rewards[-1] > rewards[-2]
        return grown._replace(due=sum(grown.stored.values())) if clicked else grown

    patch.setattr(table_making, "growth", growth)


def _table_waits_for_click(patch: Patch) -> None:
    """A table that is due is not made before there is a reward since the last one."""
    real = table_making.growth
    counted = [0]

    def growth(connection: Any, experiment: Any) -> Any:
        grown = real(connection, experiment)
        rewards = connection.execute(select(func.count()).select_from(reward_rows)).scalar()
        if grown.due is not None and rewards == counted[0]:
            return grown._replace(due=None, look_after=1)
        counted[0] = rewards
        return grown

    patch.setattr(table_making, "growth", growth)


def _click(world: World) -> None:
    for number in range(2):
        shown = world.service.decide("checkout", f"clicker-{number}", SEGMENTS[0])
        world.service.reward(shown.id, 1)
        world.service._publisher.publish("checkout")


def _previous_table(*, named: bool) -> Callable[[Patch], None]:
    """One segment is drawn for from the table before the one in force."""

    def plant(patch: Patch) -> None:
        made, real = ExperimentState.__init__, JobBatch.decide
        states: dict[int, ExperimentState] = {}

        def remembered(self: ExperimentState, *given: Any, **more: Any) -> None:
            made(self, *given, **more)
            states[self.table_number] = self

        def decide(self: JobBatch, state: ExperimentState, jobs: Sequence[Any]) -> None:
            before = states.get(state.table_number - 1)
            if before is None or {segment for job in jobs for segment in job.segments} != {
                SEGMENTS[1]
            }:
                real(self, state, jobs)
                return
            older = copy(before if named else state)
            older.rows = before.rows
            real(self, older, jobs)
            self.new_decisions[state] += self.new_decisions.pop(older, 0)

        patch.setattr(ExperimentState, "__init__", remembered)
        patch.setattr(JobBatch, "decide", decide)

    return plant


def _minds_changed(world: World) -> None:
    """Segments swap their favourites, so that the newest table is not like the one before."""
    best = dict(zip(SEGMENTS, "yx", strict=True))
    taught(world.service, "checkout", best, visitors=1_000, name="changed")


def _drawn_by_segment(patch: Patch) -> None:
    """Visitors are remembered together with their segment."""
    real = JobBatch.decide

    def decide(self: JobBatch, state: ExperimentState, jobs: Sequence[Any]) -> None:
        before = len(self.answers)
        real(
            self,
            state,
            [
                replace(
                    job,
                    visitors=tuple(
                        f"{visitor} {segment}"
                        for visitor, segment in zip(job.visitors, job.segments, strict=True)
                    ),
                )
                for job in jobs
            ],
        )
        given = [decided for _, decided in self.answers[before:]]
        self.answers[before:] = list(zip(jobs, given, strict=True))

    patch.setattr(JobBatch, "decide", decide)


def _coarse_draws(patch: Patch) -> None:
    patch.setattr(batch, "draw", lambda row, point: draw(row, point >> 48 << 48))


def _coarse_entropy(patch: Patch) -> None:
    """Two random bytes in eight."""

    def coarse(size: int) -> bytes:
        random = bytearray(system_bytes(size))
        for start in range(MARK_BYTES, size, ENTROPY.size):
            random[start : start + 6] = bytes(6)
        return bytes(random)

    patch.setattr(batch, "system_bytes", coarse)


def _stone_replaced(world: World) -> None:
    _erased_and_back(world)
    with world.service._store.begin() as connection:
        first = connection.execute(select(tombstones.c.visitor).limit(1)).scalar()
        connection.execute(
            update(tombstones).where(tombstones.c.visitor == first).values(visitor=bytes(16))
        )


def _answer_moved_back(world: World) -> None:
    with world.service._store.begin() as connection:
        connection.execute(update(answers).values(hour=1))


def _slower(patch: Patch) -> None:
    real = JobBatch.decide

    def decide(self: JobBatch, state: ExperimentState, jobs: Sequence[Any]) -> None:
        if any(segment == SEGMENTS[1] for job in jobs for segment in job.segments):
            time.sleep(0.002)
        real(self, state, jobs)

    patch.setattr(JobBatch, "decide", decide)


_EXACT = ("audit experiment", "audit firm", "audit log")

FAULTS = (
    Fault("excess of .05, and the published table says so", _EXACT, _honest_excess),
    Fault(
        "excess of .05, and the published table says otherwise",
        ("audit experiment", "audit log"),
        _lying_excess,
        decisions=40_000,
    ),
    Fault("another arm stored than answered", ("stored as answered",), _lying_rows),
    Fault(
        "fresh draw each visit",
        ("audit experiment", "one arm per visitor"),
        _fresh_draws,
        checks=("rehearsed visits",),
    ),
    Fault(
        "hash bucketing",
        ("audit experiment", "system entropy"),
        _hash_bucketing,
        checks=("ranges of draws",),
    ),
    Fault("weights by segment", ("audit experiment", "audit log"), _weights_by_segment),
    Fault(
        "the paper's arm-specific dynamic on segment clocks",
        _EXACT,
        _segment_clocks,
        arms=ARM_BUDGETS,
    ),
    Fault("refusal by segment", ("shape of answers",), _refusal, running=True),
    Fault("propensity in the answer", ("shape of answers",), _in_answers),
    Fault("explored flag in the metadata", ("shape of answers",), _in_metadata),
    Fault("explored flag in the id", ("ids tell nothing",), _in_ids),
    Fault("segment in the log", ("logs and metrics",), _in_logs),
    Fault("segment in a metric", ("logs and metrics",), _in_metrics),
    Fault("seeded generator", ("system entropy",), _seeded),
    Fault("answer before commit", ("commit before answer",), _early_answers),
    Fault("synchronous OFF as shipped", ("shipped durability",), _synchronous("OFF")),
    Fault("synchronous NORMAL as shipped", ("shipped durability",), _synchronous("NORMAL")),
    Fault("float table", ("exact check at publication",), _float_table, running=True),
    Fault("float table that nobody checks", _EXACT, _float_table_unchecked),
    Fault("group by first come", ("order of visits",), _first_come),
    Fault("refill", ("audit firm", "firm's budget"), _refill),
    Fault(
        "budget row edited",
        ("audit experiment", "audit firm", "ledger verify"),
        afterwards=_edited,
    ),
    Fault(
        "tombstones ignored",
        ("audit experiment",),
        _no_tombstones,
        afterwards=_erased_and_back,
        checks=("erased visitors", "rehearsed visits"),
    ),
    Fault(
        "a table because somebody clicked",
        ("audit experiment", "audit log"),
        _table_after_click,
        afterwards=_click,
        running=True,
        checks=("tables when they were due",),
    ),
    Fault(
        "a table that waits until somebody clicks",
        ("tables and clicks",),
        _table_waits_for_click,
        running=True,
    ),
    Fault(
        "a segment served the previous table, which its decisions name",
        ("audit experiment", "audit log"),
        _previous_table(named=True),
        checks=("the newest table",),
    ),
    Fault(
        "a segment served the previous table, which its decisions do not name",
        ("audit experiment",),
        _previous_table(named=False),
        afterwards=_minds_changed,
        decisions=20,
        checks=("ranges of draws",),
    ),
    Fault(
        "fresh draw when the segment changes",
        ("audit experiment", "one arm per visitor"),
        _drawn_by_segment,
        checks=("rehearsed visits",),
    ),
    Fault(
        "draws of 16 bits",
        ("audit experiment",),
        _coarse_draws,
        checks=("ranges of draws",),
    ),
    Fault(
        "16 random bits",
        ("audit experiment",),
        _coarse_entropy,
        checks=("ranges of draws",),
    ),
    Fault(
        "tombstone replaced",
        ("audit experiment", "audit firm", "ledger verify"),
        afterwards=_stone_replaced,
        checks=("the ledger",),
    ),
    Fault(
        "last answer moved back",
        ("audit firm", "ledger verify"),
        afterwards=_answer_moved_back,
    ),
    Fault("one segment 2 ms slower", ("time by segment",), _slower),
)

assert len({fault.name for fault in FAULTS}) == len(FAULTS)

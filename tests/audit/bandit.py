"""A small bandit that publishes real tables and draws from them, soundly or with a planted fault."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field, replace

import polars as pl

from deniable.audit.decisions import DecisionLog
from deniable.audit.promise import AuditedTable, Promise
from deniable.privacy.tables import Row, Table, draw, thresholds

NANO = 10**9
RATES = ((0.30, 0.10, 0.12), (0.10, 0.30, 0.12), (0.12, 0.10, 0.30))
"""Click rate of each arm in each segment: the best arm differs, so the arm says something."""

Counts = list[list[int]]


def promise(
    budget: float = 1.0, *, arms: int = 3, segments: int = 2, strategy: str = "dynamic"
) -> Promise:
    names = tuple(f"arm-{i}" for i in range(arms))
    places = tuple(f"segment-{i}" for i in range(segments))
    return Promise("checkout", names, places, (round(budget * NANO),) * arms, strategy)


def by_arm(*budgets: float, strategy: str = "constant") -> Promise:
    names = tuple(f"arm-{i}" for i in range(len(budgets)))
    nano = tuple(round(budget * NANO) for budget in budgets)
    return Promise("checkout", names, ("a", "b"), nano, strategy)


@dataclass
class State:
    """One visitor about to be shown an arm; a fault changes what is shown, not what is recorded."""

    segment: int
    shown: int
    likeliest: int


Fault = Callable[[State, random.Random], None]


@dataclass
class Bandit:
    """Runs visitors through a promise; publishes whenever the experiment has grown by a quarter.

    Attributes:
        promise: what it promises; a run adds the tables that it published.
        seed: of all draws.
        fault: changes what a visitor is shown.
        unlisted: the share of visitors whose segment is not listed.
        held_out: the share of visitors who are members of nothing.
        tamper: changes a table after it was made and before it is published and drawn from.
    """

    promise: Promise
    seed: int = 1
    fault: Fault | None = None
    unlisted: float = 0.0
    held_out: float = 0.0
    tamper: Callable[[Table], Table] | None = None
    rows: list[dict[str, object]] = field(default_factory=list)

    def run(self, visitors: int) -> pl.DataFrame:
        rng = random.Random(self.seed)
        n_arms, n_segments = len(self.promise.arms), len(self.promise.segments)
        shows: Counts = [[0] * n_arms for _ in range(n_segments)]
        clicks: Counts = [[0] * n_arms for _ in range(n_segments)]
        published, due = self._published(shows, clicks), 100
        for number in range(visitors):
            if number == due:
                published, due = self._published(shows, clicks), due + due // 4
            segment = -1 if rng.random() < self.unlisted else rng.randrange(n_segments)
            role = int(rng.random() < self.held_out)
            row = published.table.row(-1 if role else segment)
            shown = draw(thresholds(row), rng.getrandbits(64))
            state = State(segment, shown, row.index(max(row)))
            if self.fault is not None and segment >= 0 and not role:
                self.fault(state, rng)
            reward = int(rng.random() < RATES[segment % 3][state.shown % 3])
            if segment >= 0 and not role:
                shows[segment][state.shown] += 1
                clicks[segment][state.shown] += reward
            self.rows.append(
                {
                    "visitor": f"v{number}",
                    "segment": None if segment < 0 else segment,
                    "shown": state.shown,
                    "table": published.number,
                    "role": role,
                    "version": 1,
                    "reward": reward or None,
                }
            )
        return pl.DataFrame(self.rows, infer_schema_length=None)

    def log(self, visitors: int) -> tuple[Promise, DecisionLog]:
        """The promise with its tables, and the decisions."""
        frame = self.run(visitors)
        return self.promise, DecisionLog.from_frame(frame, self.promise)

    def _published(self, shows: Counts, clicks: Counts) -> AuditedTable:
        counted = tuple(map(tuple, shows)), tuple(map(tuple, clicks))
        table = self.promise.made(1, *counted)
        if self.tamper is not None:
            table = self.tamper(table)
        number = len(self.promise.tables) + 1
        published = AuditedTable(number, 1, table, *counted)
        self.promise = replace(self.promise, tables=(*self.promise.tables, published))
        return published


def larger_excess(share: float) -> Fault:
    """Shows the likeliest arm of the row more often than the table says."""

    def fault(state: State, rng: random.Random) -> None:
        if rng.random() < share:
            state.shown = state.likeliest

    return fault


def leaks_segment(share: float) -> Fault:
    """Some visitors of the first segment always see the first arm."""

    def fault(state: State, rng: random.Random) -> None:
        if state.segment == 0 and rng.random() < share:
            state.shown = 0

    return fault


def moved(row: Row, source: int, target: int, amount: int) -> Row:
    """The row with some of one arm's space given to another."""
    changed = list(row)
    changed[source] -= amount
    changed[target] += amount
    return tuple(changed)

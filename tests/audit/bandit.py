"""A small bandit that draws from the real serving tables, soundly or with a planted fault."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field

import polars as pl

from deniable.audit.decisions import DecisionLog
from deniable.audit.promise import Promise, table_within

NANO = 10**9
RATES = ((0.30, 0.10, 0.12), (0.10, 0.30, 0.12), (0.12, 0.10, 0.30))
"""Click rate of each arm in each segment: the best arm differs, so the arm says something."""


def promise(
    budget: float = 1.0, *, arms: int = 3, segments: int = 2, dynamic: bool = True
) -> Promise:
    names = tuple(f"arm-{i}" for i in range(arms))
    places = tuple(f"segment-{i}" for i in range(segments))
    return Promise("checkout", names, places, (int(budget * NANO),) * arms, dynamic)


def by_arm(*budgets: float, dynamic: bool = False) -> Promise:
    names = tuple(f"arm-{i}" for i in range(len(budgets)))
    nano = tuple(int(budget * NANO) for budget in budgets)
    return Promise("checkout", names, ("a", "b"), nano, dynamic)


@dataclass
class State:
    """One visitor about to be drawn for; a fault changes what is drawn, not what is recorded."""

    segment: int
    greedy: int
    shown: int
    risk: int
    number: int


@dataclass
class Bandit:
    """Runs visitors through a promise's schedule and keeps the log."""

    promise: Promise
    seed: int = 1
    fault: Callable[[State, random.Random], None] | None = None
    unlisted: float = 0.0
    rows: list[dict[str, object]] = field(default_factory=list)

    def run(self, visitors: int) -> pl.DataFrame:
        rng = random.Random(self.seed)
        n_arms, n_segments = len(self.promise.arms), len(self.promise.segments)
        shows = [[0] * n_arms for _ in range(n_segments)]
        clicks = [[0] * n_arms for _ in range(n_segments)]
        schedule = self.promise.schedule(1)
        for number in range(visitors):
            segment = rng.randrange(n_segments)
            if rng.random() < self.unlisted:
                self.rows.append(_row(number, None, 0, rng.randrange(n_arms), 1, 0, None))
                continue
            clock = number + 1 if not self.promise.symmetric else sum(shows[segment]) + 1
            table = schedule.table(clock)
            scores = [
                c / s if s else 0.0 for c, s in zip(clicks[segment], shows[segment], strict=True)
            ]
            best = max(scores)
            greedy = rng.choice([arm for arm, score in enumerate(scores) if score == best])
            shown = table.draw(greedy, rng.randbytes)
            state = State(segment, greedy, shown, max(table.budgets), number)
            if self.fault is not None:
                self.fault(state, rng)
            reward = int(rng.random() < RATES[segment % 3][state.shown % 3])
            shows[segment][state.shown] += 1
            clicks[segment][state.shown] += reward
            self.rows.append(
                _row(number, segment, greedy, state.shown, clock, state.risk, reward or None)
            )
        return pl.DataFrame(self.rows, infer_schema_length=None)

    def log(self, visitors: int) -> DecisionLog:
        return DecisionLog.from_frame(self.run(visitors), self.promise)


def larger_risk(promised: Promise, factor: float) -> Callable[[State, random.Random], None]:
    """Draws with more risk than is recorded: the greedy arm comes up too often."""
    budgets = tuple(int(budget * factor) for budget in promised.budgets_nano)

    def fault(state: State, rng: random.Random) -> None:
        table = table_within(budgets, int(state.risk * factor))
        state.shown = table.draw(state.greedy, rng.randbytes)

    return fault


def leaks_segment(share: float) -> Callable[[State, random.Random], None]:
    """Some visitors of the first segment always see the first arm."""

    def fault(state: State, rng: random.Random) -> None:
        if state.segment == 0 and rng.random() < share:
            state.shown = 0

    return fault


def _row(
    number: int,
    segment: int | None,
    greedy: int,
    shown: int,
    clock: int,
    risk: int,
    reward: int | None,
) -> dict[str, object]:
    return {
        "visitor": f"v{number}",
        "segment": segment,
        "greedy": greedy,
        "shown": shown,
        "clock": clock,
        "risk_nano": risk,
        "version": 1,
        "reward": reward,
    }

"""Worlds on which learners are compared: near arms, contexts, labels, own favourites, and unusual ones.

`python -m research learners SET --repetitions N` prints a Markdown table: the mean share of what perfect
information gains over random arms, in points, its standard error, the 5% quantile, and how often a run
stays below half. World i of a set is drawn from the set's
seed and i alone; repetition k of all learners starts from the seed (RUN_SEED, i, k), so differences are
paired. Sets and seeds were committed before anything was run on them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike, NDArray

from deniable.datasets import RECOMMENDATION_COUNTS, first_rates
from deniable.privacy.epochs import simulated_epochs
from deniable.simulation.environment import Environment
from deniable.simulation.job import make_job, run_from
from deniable.simulation.kernels.epochs import NextTable, run_epochs
from deniable.simulation.kernels.random_numbers import generator_state
from deniable.simulation.kernels.run import Setting
from deniable.strategies.benchmarks import Random
from deniable.strategies.dynamic import Dynamic
from deniable.strategies.joint_kernel import Tuning
from deniable.strategies.joint_rule import TUNING, TableMaker
from deniable.strategies.unbounded import unbounded_table

Array = NDArray[np.float64]

RUN_SEED = 41_000


@dataclass(frozen=True)
class Case:
    """A world to learn in.

    Attributes:
        name: cases of the same name are reported together.
        rates: (K, J), as drawn.
        horizon: T.
        shares: of the rows, (J,).
        budget: of the strategies that have one.
        later: rates after half of the visitors, if they change.
        possible: what perfect information gains over random arms, per visitor, if it knows more than
            the rows; else None.
    """

    name: str
    rates: Array
    horizon: int
    shares: Array
    budget: float = 1.0
    later: Array | None = None
    possible: float | None = None

    @property
    def world(self) -> Environment:
        """The environment of it."""
        changes = [] if self.later is None else [(self.horizon // 2 + 1, self.later.T)]
        return Environment(self.rates.T, self.horizon, self.shares, changes=changes)


def _even(rates: Array | Sequence[Sequence[float]]) -> tuple[Array, Array]:
    table = np.array(rates)
    return table, np.full(table.shape[1], 1 / table.shape[1])


def _case(name: str, rates: Array | Sequence[Sequence[float]], horizon: int) -> Case:
    table, shares = _even(rates)
    return Case(name, table, horizon, shares)


# -- the sets --------------------------------------------------------------------------------------


def lock_in() -> list[Case]:
    """Known pages in which a learner that stops too early is caught by a worse arm; segments alike."""
    items = first_rates(list(RECOMMENDATION_COUNTS), 8)
    twenty = tuple(np.random.default_rng(7).uniform(0.02, 0.08, 20).tolist())
    pages: list[tuple[str, tuple[float, ...], int]] = [
        ("three arms .05 .06 .05", (0.05, 0.06, 0.05), 100_000),
        ("website", (0.324, 0.295), 10_000),
        ("website", (0.324, 0.295), 100_000),
        ("8 items", items, 1_000_000),
        ("20 arms .02 to .08", twenty, 100_000),
    ]
    return [
        _case(f"{name}, T = {horizon:,}", np.repeat(np.array([column]).T, 2, axis=1), horizon)
        for name, column, horizon in pages
    ]


def near_arms(seed: int = 16_411, count: int = 20) -> list[Case]:
    """Arms within 20% of each other, segments alike, 1e5 to 1e6 visitors."""
    cases = []
    for number in range(count):
        rng = np.random.default_rng([seed, number])
        n_arms, n_segments = int(rng.integers(2, 7)), int(rng.integers(2, 6))
        best = np.exp(rng.uniform(np.log(0.03), np.log(0.4)))
        arms = best * np.append(1.0, rng.uniform(0.8, 1.0, n_arms - 1))
        horizon = int(rng.choice([100_000, 300_000, 1_000_000]))
        shares = rng.dirichlet(np.full(n_segments, 5.0))
        rates = np.repeat(arms[:, None], n_segments, axis=1)
        name = f"{number}: K {n_arms}, J {n_segments}, best {best:.3f}, T {horizon:,}"
        cases.append(Case(name, rates, horizon, shares, float(rng.choice([0.1, 1.0, 3.0]))))
    return cases


def contexts(seed: int = 16_412, count: int = 20) -> list[Case]:
    """2 to 10 contexts of unequal size, whose part of the differences between arms is 0 to 100%."""
    cases = []
    for number in range(count):
        rng = np.random.default_rng([seed, number])
        n_arms, n_contexts = int(rng.integers(2, 11)), int(rng.integers(2, 11))
        part = number % 5 / 4
        base = np.exp(rng.uniform(np.log(0.01), np.log(0.2)))
        lift = rng.uniform(0.1, 0.3)
        horizon = int(rng.choice([10_000, 30_000, 100_000, 300_000, 1_000_000]))
        shares = rng.dirichlet(np.full(n_contexts, 2.0))
        common, own = rng.normal(size=(n_arms, 1)), rng.normal(size=(n_arms, n_contexts))
        factor = np.exp(rng.normal(0, 0.2, n_contexts))
        effect = np.sqrt(1 - part) * common + np.sqrt(part) * own
        rates = np.clip(base * factor * (1 + lift * effect), base / 20, 0.9)
        name = f"{number}: K {n_arms}, {n_contexts} contexts, {part:.0%} by context, T {horizon:,}"
        cases.append(Case(name, rates, horizon, shares))
    return cases


def half_by_context(seed: int = 16_413, count: int = 40) -> list[Case]:
    """6 arms, base .05, lift .2; .4 of the variance common, .3 by 4 contexts, .3 by 3 equal segments.

    Rows are contexts. What segments add is averaged out in them, but not for perfect information.
    """
    cases = []
    for horizon in (100_000, 1_000_000):
        for number in range(count):
            rng = np.random.default_rng([seed, number])
            parts = [rng.normal(size=(6, *shape)) for shape in ((1, 1), (4, 1), (1, 3))]
            common, by_context, by_segment = parts
            effect = 0.4**0.5 * common + 0.3**0.5 * (by_context + by_segment)
            rates = np.clip(0.05 * (1 + 0.2 * effect), 0.0025, 0.9).reshape(6, 12)
            cells = _case(f"T = {horizon:,}", rates, horizon)
            cases.append(_merged(cells, np.repeat(np.eye(4), 3, axis=0)))
    return cases


def labels(seed: int = 16_414, count: int = 120) -> list[Case]:
    """Experiments of a firm on labels: K 2 to 8, 4 segments, base .05, common .1, own .2, T = 1e5.

    Rows are the labels of randomized response; perfect information knows the segments.
    """
    cases = []
    for budget in (1, 2, 3):
        own, other = np.exp(budget) / (np.exp(budget) + 3), 1 / (np.exp(budget) + 3)
        for number in range(count):
            rng = np.random.default_rng([seed, number])
            n_arms = int(rng.integers(2, 9))
            effect = 0.1 * rng.normal(size=(n_arms, 1)) + 0.2 * rng.normal(size=(n_arms, 4))
            rates = np.clip(0.05 * (1 + effect), 0.0025, 0.9)
            case = _case(f"budget {budget}", rates, 100_000)
            cases.append(_merged(case, np.full((4, 4), other) + (own - other) * np.eye(4)))
    return cases


def _merged(case: Case, channel: Array) -> Case:
    """Return the world of new rows, by P(new row | row)."""
    mass = case.shares @ channel
    rates = (case.rates * case.shares) @ channel / mass
    known = float((case.rates.max(axis=0) - case.rates.mean(axis=0)) @ case.shares)
    return replace(case, rates=rates, shares=mass, possible=known)


def favourites() -> list[Case]:
    """Every segment prefers another arm by 20%; K = J = 3, 4, 6, base rate .05."""
    cases = []
    for size in (3, 4, 6):
        for budget in (1.0, 2.0):
            rates, shares = _even(0.05 * (1 + 0.2 * np.eye(size)))
            name = f"K = J = {size}, budget {budget:g}"
            cases.append(Case(name, rates, 100_000, shares, budget))
    return cases


KINDS = ("favourites", "90/9/1", "drift", "heavy tails", "many arms", "clusters", "sparse")


def unusual(seed: int = 16_415, count: int = 28) -> list[Case]:
    """Worlds that the settings of `joint_tuning` cannot draw, four of each kind of KINDS."""
    cases = []
    for number in range(count):
        rng = np.random.default_rng([seed, number])
        kind = KINDS[number % len(KINDS)]
        n_arms, n_segments = int(rng.integers(3, 9)), int(rng.integers(2, 7))
        horizon = int(rng.choice([100_000, 300_000]))
        budget = float(rng.choice([0.5, 1.0, 2.0, 3.0]))
        base, lift = np.exp(rng.uniform(np.log(0.02), np.log(0.2))), rng.uniform(0.1, 0.3)
        shares = rng.dirichlet(np.full(n_segments, 5.0))
        if kind == "many arms":
            n_arms, horizon = 50, 20_000
        if kind == "90/9/1":
            n_segments, shares = 3, np.array([0.90, 0.09, 0.01])
        common, own = rng.normal(size=(n_arms, 1)), rng.normal(size=(n_arms, n_segments))
        if kind == "favourites":
            common, own = np.zeros_like(common), np.zeros_like(own)
            own[np.arange(n_segments) % n_arms, np.arange(n_segments)] = 1.5
        if kind == "heavy tails":
            own = rng.standard_t(2, size=own.shape)
        if kind == "clusters":
            own = own[:, np.arange(n_segments) % 2]
        if kind == "sparse":
            base = 0.003
        effect = np.sqrt(0.5) * common + np.sqrt(0.5) * own
        later = np.sqrt(0.5) * np.roll(common, 1, axis=0) + np.sqrt(0.5) * np.roll(own, 1, axis=0)
        rates, after = (np.clip(base * (1 + lift * x), base / 20, 0.9) for x in (effect, later))
        name = f"{number}: {kind}, K {n_arms}, J {n_segments}, T {horizon:,}, budget {budget:g}"
        changed = after if kind == "drift" else None
        cases.append(Case(name, rates, horizon, shares, budget, changed))
    return cases


def changing() -> list[Case]:
    """Pages that change once at T/2, and the same without a change."""
    cases = []
    for column in ((0.05, 0.06, 0.05), (0.324, 0.295), (0.05, 0.055, 0.06, 0.045)):
        rates = np.repeat(np.array(column)[:, None], 2, axis=1)
        for later in (None, np.roll(rates, 1, axis=0)):
            after = "" if later is None else ", changes"
            table, shares = _even(rates)
            cases.append(Case(f"{column}{after}", table, 300_000, shares, later=later))
    return cases


SETS: dict[str, Callable[[], list[Case]]] = {
    "lock-in": lock_in,
    "near": near_arms,
    "contexts": contexts,
    "half-by-context": half_by_context,
    "labels": labels,
    "favourites": favourites,
    "unusual": unusual,
    "changing": changing,
}


# -- learners --------------------------------------------------------------------------------------


def joint(case: Case) -> NextTable:
    """The joint rule."""
    n_arms, n_segments = case.rates.shape
    return TableMaker("joint", n_arms, n_segments, case.horizon, case.budget).next_table


def pooled(case: Case) -> NextTable:
    """One bandit for everybody, cooled down."""
    return _one_row(case, TUNING)


def thompson(case: Case) -> NextTable:
    """The same, never cooled down: plain posterior sampling."""
    return _one_row(case, TUNING._replace(curiosity=np.inf))


def _one_row(case: Case, tuning: Tuning) -> NextTable:
    n_arms, n_segments = case.rates.shape
    return TableMaker("pooled", n_arms, n_segments, case.horizon, 0.0, tuning).next_table


def unbounded(case: Case) -> NextTable:
    """A bandit for each row, pooled as far as rows are alike."""
    rows = case.shares.size
    return lambda shows, clicks: unbounded_table(shows, clicks, case.horizon, contexts=rows)


def together(case: Case) -> NextTable:
    """The same learner where rows are ignored."""

    def table(shows: ArrayLike, clicks: ArrayLike) -> Array:
        seen, clicked = np.sum(shows, axis=0), np.sum(clicks, axis=0)
        row = unbounded_table([seen], [clicked], case.horizon)
        return np.repeat(row, case.shares.size, axis=0)

    return table


def alone(case: Case) -> NextTable:
    """The same learner for each row alone."""

    def table(shows: ArrayLike, clicks: ArrayLike) -> Array:
        ends = case.horizon * case.shares
        rows = zip(np.asarray(shows), np.asarray(clicks), ends, strict=True)
        return np.concatenate([unbounded_table([s], [c], end) for s, c, end in rows])

    return table


LEARNERS: dict[str, Callable[[Case], NextTable]] = {
    "joint": joint,
    "pooled": pooled,
    "Thompson": thompson,
    "unbounded": unbounded,
    "together": together,
    "alone": alone,
}

COMPARED: dict[str, tuple[str, ...]] = {
    "lock-in": ("pooled", "joint", "unbounded", "Thompson"),
    "near": ("pooled", "joint", "unbounded", "Thompson"),
    "contexts": ("unbounded", "together", "alone"),
    "half-by-context": ("unbounded", "together", "alone"),
    "labels": ("unbounded", "together"),
    "favourites": ("joint", "dynamic", "pooled"),
    "unusual": ("joint", "dynamic", "pooled"),
    "changing": ("joint", "pooled", "unbounded"),
}


def share(case: Case, learner: str, number: int, repetition: int) -> float:
    """Return the share of perfect information of one repetition, by pseudo-regret, in points."""
    world = case.world
    dynamic = learner == "dynamic"
    job = make_job(world, Dynamic(case.budget) if dynamic else Random())
    state = generator_state(np.random.SeedSequence([RUN_SEED, number, repetition]))
    if dynamic:
        shows, _ = run_from(job, state)
    else:
        place = Setting(job.rates.copy(), job.arrival, job.checkpoints, state, job.rates_until)
        n_arms, n_rows = case.rates.shape
        epochs = simulated_epochs(n_arms, n_rows)
        shows, _ = run_epochs(True, epochs, LEARNERS[learner](case), place)
    new = np.diff(shows, axis=0, prepend=0)
    lost = float((new * world.phase_gaps).sum())
    visitors = np.diff(job.checkpoints, prepend=0)
    by_rows = float(visitors @ (world.phase_gaps.mean(axis=2) @ world.shares))
    possible = by_rows if case.possible is None else case.possible * case.horizon
    return 100 * (by_rows - lost) / possible


# -- tables ----------------------------------------------------------------------------------------


def measured(name: str, repetitions: int, learners: Sequence[str] = ()) -> dict[str, Array]:
    """Return points of each learner by case and repetition."""
    return {
        learner: np.array(
            [
                [share(case, learner, number, k) for k in range(repetitions)]
                for number, case in enumerate(SETS[name]())
            ]
        )
        for learner in learners or COMPARED[name]
    }


def error(points: Array) -> float:
    """Standard error: over cases where there are several, since these were drawn too."""
    each = points.mean(axis=1) if len(points) > 1 else points.ravel()
    return float(each.std(ddof=1) / each.size**0.5) if each.size > 1 else np.inf


def cell(points: Array) -> str:
    """Return mean, standard error, 5% quantile and the percentage below half."""
    low, below = np.quantile(points, 0.05), 100 * (points < 50).mean()
    return f"{points.mean():.1f} ± {error(points):.1f} / {low:.0f} / {below:.1f}%"


def report(name: str, repetitions: int) -> str:
    """Return the table of a set, with the first learner's distance from the best of the others."""
    names = [case.name for case in SETS[name]()]
    points = measured(name, repetitions)
    first, *others = points
    head = [*points, f"{first} - best other"]
    lines = [f"| {name} | " + " | ".join(head) + " |", "|" + " --- |" * (len(head) + 1)]
    for title in [*dict.fromkeys(names), "all"]:
        rows = [i for i, each in enumerate(names) if title in (each, "all")]
        group = {learner: points[learner][rows] for learner in points}
        best = max(others, key=lambda learner: float(group[learner].mean()))
        ahead = group[first] - group[best]
        cells = [cell(values) for values in group.values()]
        cells.append(f"{ahead.mean():+.1f} ± {error(ahead):.1f} ({best})")
        lines.append(f"| {title} | " + " | ".join(cells) + " |")
    return "\n".join(lines)

"""Expectations by direct simulation: for what the surface does not cover, within bounded work."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from deniable import _validation as check
from deniable._extras import is_installed, require
from deniable._validation import FloatArray
from deniable.expectations.expected import RIVALS
from deniable.expectations.posterior import LEAST_APART, MOST_JUDGED, grid_points, judge
from deniable.expectations.prior import best_rate, mean_rate
from deniable.expectations.surface import (
    LEAST_CLICKS,
    LEAST_ROOM,
    MOST_BEFORE,
    PERFECT,
    POOLED,
    RANDOM,
    RATES,
    Question,
    after_first,
    domain_of,
    has_room,
    learns_together,
    surface_name,
)
from deniable.planning.asked import Asked, Outcome
from deniable.policies.base import Policy
from deniable.privacy.epochs import Epochs, epochs_of, simulated_epochs
from deniable.strategies import STRATEGIES
from deniable.strategies.rules import LARGEST

WORLDS, FEWEST = 200, 40
"""Number of draws of the click rates, with one run each: at most, and at least."""

SECONDS, LONGEST = 1.5, 3.0
"""What one strategy at one budget may take, roughly: with more draws than FEWEST, and with these."""

MOST_LIFT = 0.3
"""Up to this lift hardly any rate is clipped at the bottom, so that means of segments are normal."""

Progress = Callable[[int, int], None]
"""Hears how many runs are done, and of how many."""


class Simulated(NamedTuple):
    """What runs say about a strategy at a budget.

    Attributes:
        outcome: means and quantiles.
        noise: standard error of the clicks lost.
        worlds: how many draws of the click rates there were.
    """

    outcome: Outcome
    noise: float
    worlds: int


def can_simulate() -> bool:
    """Whether the simulator is installed."""
    return is_installed("numba")


def worlds_for(asked: Asked, strategy: str) -> int:
    """How many draws of the click rates are simulated; 0 if even a few would take too long.

    >>> from deniable.expectations.prior import Prior
    >>> worlds_for(Asked(4, 10**6, 3, None, Prior(0.1)), "constant")
    200
    >>> worlds_for(Asked(2, 10**6, 200, None, Prior(0.1)), "joint")
    0
    """
    rate, lift = asked.prior.base_rate, asked.prior.lift
    if not (1e-9 < rate < 1 - 1e-9 and lift > 1e-9):
        return 0  # the simulator draws whole clicks
    together = strategy == POOLED or learns_together(strategy)
    if together and max(asked.n_arms, asked.n_segments) > LARGEST:
        return 0
    took = run_seconds(asked, strategy)
    worlds = min(WORLDS, max(FEWEST, int(SECONDS / took)))
    return worlds if worlds * took <= LONGEST else 0


def run_seconds(asked: Asked, strategy: str) -> float:
    """Roughly what one run takes, by the tables that it makes and the grid that it is judged on."""
    arms, trace = asked.n_arms, asked.trace_budget > 0
    cells = arms * asked.n_segments
    judged = 1e-9 * cells * grid_points(_signal(asked)) ** 2 if _is_judged(asked) else 0.0
    if strategy in (RANDOM, PERFECT):
        return 1e-4 + judged
    if strategy != POOLED and not learns_together(strategy):
        tables = _tables(asked.horizon, epochs_of(arms, asked.n_segments, trace=trace))
        return 1e-3 + tables * (1e-6 + 2e-7 * cells) + judged
    segments = 1 if strategy == POOLED else asked.n_segments
    tables = _tables(asked.horizon, simulated_epochs(arms, asked.n_segments, trace=trace))
    return tables * (5e-5 + 8e-7 * arms * segments + 4e-8 * segments**3) + judged


def _signal(asked: Asked) -> float:
    prior = asked.prior
    return asked.horizon * prior.base_rate * prior.lift**2 / (1 - prior.base_rate)


def _is_judged(asked: Asked) -> bool:
    """Whether runs are judged by their counts."""
    apart = asked.n_segments == 1 or asked.prior.heterogeneity >= LEAST_APART
    return apart and _signal(asked) <= MOST_JUDGED


def _tables(horizon: int, epochs: Epochs) -> float:
    """How many tables there are: at first equally far apart, then by growth."""
    apart = epochs.least / (epochs.growth - 1)
    late = math.log(max(horizon / apart, 1)) / math.log(epochs.growth)
    return 1 + min(horizon, apart) / epochs.least + late


def simulated_outcomes(
    asked: Asked, strategy: str, budgets: Sequence[float], *, worlds: int = WORLDS, seed: int = 0
) -> list[Outcome]:
    """Return outcomes from direct simulation; arguments as in `simulate_budgets`."""
    return [one.outcome for one in simulate_budgets(asked, strategy, budgets, worlds, seed=seed)]


def simulate_budgets(
    asked: Asked,
    strategy: str,
    budgets: Sequence[float],
    worlds: int,
    *,
    seed: int = 0,
    progress: Progress | None = None,
) -> list[Simulated]:
    """Simulate a strategy at some budgets.

    Args:
        asked: the experiment.
        strategy: name of a strategy or a rival.
        budgets: one result for each.
        worlds: number of draws of the click rates, the same for all strategies and budgets.
        seed: random seed.
        progress: hears how many runs are done.
    """
    require("numba", extra="simulate")
    from deniable.policies.base import as_served
    from deniable.policies.benchmarks import PerfectPolicy, RandomPolicy
    from deniable.policies.tables import PooledPolicy
    from deniable.simulation.environment import LONGEST_HORIZON, Environment
    from deniable.simulation.job import make_job, run_repetition

    check.whole("horizon", asked.horizon, 1, LONGEST_HORIZON)
    rng = np.random.default_rng(seed)
    drawn = asked.prior.draw(asked.n_arms, asked.n_segments, worlds, rng)
    truths = [
        Environment(rates, asked.horizon, asked.shares, name=f"draw {number}")
        for number, rates in enumerate(drawn)
    ]
    rivals: dict[str, Policy] = {
        RANDOM: RandomPolicy(),
        POOLED: PooledPolicy(),
        PERFECT: PerfectPolicy(),
    }
    found = []
    for place, budget in enumerate(budgets):
        policy = rivals.get(strategy) or STRATEGIES[strategy](asked.n_arms, budget).policy()
        policy = as_served(policy, asked.trace_budget)
        runs = []
        for number, truth in enumerate(truths):
            if progress is not None:
                progress(place * worlds + number, len(budgets) * worlds)
            shows, clicks = run_repetition(make_job(truth, policy), seed, 0)
            runs.append(_Run(truth.rates.T, truth.shares, shows[0], clicks[0]))
        found.append(_summed(asked, runs))
    return found


class _Run(NamedTuple):
    """One run: click rates, shows and clicks by segment and arm, (J, K); shares of the segments."""

    rates: FloatArray
    shares: FloatArray
    shows: NDArray[np.int64]
    clicks: NDArray[np.int64]

    @property
    def lost(self) -> float:
        """Clicks lost by visitor: the gaps of the shown arms."""
        gaps = self.rates.max(axis=1, keepdims=True) - self.rates
        return float((gaps * self.shows).sum() / self.shows.sum())

    @property
    def gain(self) -> float:
        """What perfect information gains by visitor with these rates."""
        return float((self.rates.max(axis=1) - self.rates.mean(axis=1)) @ self.shares)

    @property
    def shared_gain(self) -> float:
        """What the best arm for everybody gains by visitor."""
        means = self.shares @ self.rates
        return float(means.max() - means.mean())


def _summed(asked: Asked, runs: Sequence[_Run]) -> Simulated:
    """The mean of the runs, less what luck explains of it: what is 0 on average.

    That is by how much perfect information and the best arm for everybody gained more than usual and,
    where runs are judged by their counts, what `Judged` names.
    """
    prior, visitors = asked.prior, asked.horizon
    best = float(best_rate(asked.n_arms, prior.base_rate, prior.lift))
    unit = best - float(mean_rate(prior.base_rate, prior.lift))
    lost = np.array([run.lost for run in runs])
    if unit <= 0:  # rates so small that arms cannot differ
        return Simulated(Outcome(best * visitors, 0.0, 0.0, 0.0), 0.0, len(runs))
    share = 1 - lost / unit
    luck = [np.array([run.gain for run in runs]) / unit - 1]
    if prior.lift <= MOST_LIFT and has_room(_question(asked)):
        # A segment's share of the visitors, squared: how much of its own the mean of all keeps.
        kept = float(runs[0].shares @ runs[0].shares)
        usual = math.sqrt(1 - prior.heterogeneity + prior.heterogeneity * kept)
        luck.append(np.array([run.shared_gain for run in runs]) / unit - usual)
    if _is_judged(asked):
        signal = _signal(asked)
        judged = np.array([judge(prior, run.shows, run.clicks, signal) for run in runs]).T / unit
        luck += [share - judged[0], judged[1], judged[2]]
        share = judged[0]
    terms = np.column_stack([np.ones(len(runs)), *luck])
    fitted = np.linalg.lstsq(terms, share, rcond=1e-9)[0]
    left = share - terms @ fitted
    noise = math.sqrt(float(left @ left) / (len(runs) - terms.shape[1]) / len(runs))
    mean = max(0.0, 1 - float(fitted[0])) * unit * visitors
    low, high = (float(one) * visitors for one in np.quantile(lost, (0.1, 0.9)))
    outcome = Outcome(best * visitors - mean, mean, min(low, mean), max(high, mean))
    return Simulated(outcome, noise * unit * visitors, len(runs))


class Made(NamedTuple):
    """What was simulated, by strategy and budget, and a sentence about it."""

    outcomes: dict[str, dict[float, Outcome]]
    words: str


def simulate_all(
    asked: Asked,
    todo: Mapping[str, Sequence[float]],
    progress: Progress | None = None,
    *,
    strict: bool = False,
) -> Made:
    """Simulate strategies and rivals at some budgets each.

    Args:
        asked: the experiment.
        todo: budgets by strategy or rival.
        progress: hears how many runs are done, and of how many.
        strict: whether a few draws are simulated even where they take long; else it is left out.
    """
    worlds = {name: worlds_for(asked, name) or FEWEST * strict for name in todo}
    worlds = {name: count for name, count in worlds.items() if count}
    total, done = sum(len(todo[name]) * count for name, count in worlds.items()), 0
    found: dict[str, dict[float, Outcome]] = {}
    noise = 0.0
    for name, count in worlds.items():

        def heard(here: int, _: int, before: int = done) -> None:
            if progress is not None:
                progress(before + here, total)

        made = simulate_budgets(asked, name, todo[name], count, progress=heard)
        found[name] = {mark: one.outcome for mark, one in zip(todo[name], made, strict=True)}
        noise = max(noise, *(one.noise for one in made))
        done += len(todo[name]) * count
    if not found:
        return Made({}, "")
    if progress is not None:
        progress(total, total)
    noise /= float(asked.look_up(RANDOM).lost) or 1.0
    draws = " to ".join(
        f"{count}" for count in sorted({min(worlds.values()), max(worlds.values())})
    )
    kept = {name: todo[name] for name in found}
    why = f" beyond what the surface covers: {_listed(asked, kept)}" if asked.usual else ""
    words = (
        f"{'Simulated' if why else 'It was simulated'}{why} ({draws} draws of the click rates, two "
        f"standard errors are at most {2 * noise:.1%} of what perfect information gains)."
    )
    return Made(found, words)


def edge_words(asked: Asked, beyond: Mapping[str, Sequence[float]], *, wanted: bool) -> str:
    """Say which figures are those of the surface's edge; empty if none are.

    Args:
        asked: the experiment.
        beyond: budgets by strategy or rival.
        wanted: whether they should have been simulated.
    """
    if not beyond:
        return ""
    why = ""
    if wanted:
        why = (
            " They cannot be simulated within a plan."
            if can_simulate()
            else " With the extra `simulate` they would be simulated."
        )
    listed = _listed(asked, beyond)
    return f"Beyond what the surface covers: {listed}. These figures are those of the edge.{why}"


def _listed(asked: Asked, beyond: Mapping[str, Sequence[float]]) -> str:
    """Names by what they have in common."""
    found: dict[str, list[str]] = {}
    for name, budgets in beyond.items():
        found.setdefault(beyond_words(asked, name, budgets), []).append(name)
    return "; ".join(f"{', '.join(names)} ({why})" for why, names in found.items())


def beyond_words(asked: Asked, strategy: str, budgets: Sequence[float]) -> str:
    """Why the surface does not cover a strategy at these budgets, in a few words.

    >>> from deniable.expectations.prior import Prior
    >>> beyond_words(Asked(4, 10**9, 3, None, Prior(0.1)), "joint", [1.0])
    'more than 200,000,000 visitors'
    >>> beyond_words(Asked(30, 10**6, 3, None, Prior(0.1, 0.001)), "joint", [7.0])
    'more than 20 arms, a lift below 0.5%, a budget above 6'
    """
    name = surface_name(strategy, asked.n_segments) if strategy not in RIVALS else strategy
    domain, prior = domain_of(name), asked.prior
    question = _question(asked)
    before = f"more than {MOST_BEFORE:.0%} of the visitors before the first table"
    clipped = f"rates that are clipped within {LEAST_ROOM:g} standard deviations"
    reasons = {
        f"more than {domain.arms} arms": asked.n_arms > domain.arms,
        f"more than {domain.segments[1]} segments": asked.n_segments > domain.segments[1],
        f"fewer than {domain.visitors[0]:,.0f} visitors": asked.horizon < domain.visitors[0],
        f"more than {domain.visitors[1]:,.0f} visitors": asked.horizon > domain.visitors[1],
        f"a base rate below {RATES[0]:.1%}": prior.base_rate < RATES[0],
        f"a base rate above {RATES[1]:.0%}": prior.base_rate > RATES[1],
        f"a lift below {domain.lifts[0]:.1%}": prior.lift < domain.lifts[0],
        f"a lift above {domain.lifts[1]:.0%}": prior.lift > domain.lifts[1],
        f"fewer than {LEAST_CLICKS} clicks an arm": asked.horizon * prior.base_rate
        < LEAST_CLICKS * asked.n_arms,
        before: float(after_first(name, question)) < 1 - MOST_BEFORE,
        clipped: not has_room(question),
        f"a budget above {domain.budget:g}": max(budgets) > domain.budget,
    }
    return (
        ", ".join(word for word, holds in reasons.items() if holds) or "a signal out of its range"
    )


def _question(asked: Asked) -> Question:
    prior = asked.prior
    return Question.of(
        arms=asked.n_arms,
        visitors=asked.horizon,
        segments=asked.n_segments,
        base_rate=prior.base_rate,
        lift=prior.lift,
        heterogeneity=prior.heterogeneity,
        budget=0.0,
    )

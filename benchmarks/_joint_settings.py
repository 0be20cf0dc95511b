"""Random settings on which the joint strategy was tuned and judged.

Setting i is drawn from its seed and i alone; simulations of it use the seed (RUN_SEED, i, repetition).
Numbers below 160, from 4,000 to 4,099 and from 8,000 on are from SEED: these and the even ones below
160 are for tuning; the odd ones were held out from an earlier version of the rule, and have been looked
at since, as have numbers 2,000 to 2,047 and 3,000 to 3,047. Numbers from 5,000 on are from FRESH_SEED,
those from 6,000 on from LATEST_SEED and those from 7,000 on from FINAL_SEED, each committed before any
of them was run: rule 2 was judged on the first two, once, before and after its floor was changed, and
rule 3 on the last.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

SEED = 20_140
RUN_SEED = 20_141
EARLIER_SEED = 61_803
EARLIER = range(2000, 2048)
JUDGED_SEED = 27_182
JUDGED = range(3000, 3048)
MORE_TUNING = range(4000, 4100)
TWO_ARMS = range(8000, 8800)
TWO_ARMS_NEAR = range(9000, 11_000)
FRESH_SEED = 31_415
FRESH = range(5000, 5072)
LATEST_SEED = 16_180
LATEST = range(6000, 6072)
FINAL_SEED = 14_142
FINAL = range(7000, 7072)
BUDGETS = (0.1, 0.5, 1.0, 2.0, 3.0)
HORIZONS = (10_000, 30_000, 100_000, 300_000, 1_000_000)
_SEEDS = (
    (EARLIER_SEED, EARLIER),
    (JUDGED_SEED, JUDGED),
    (FRESH_SEED, FRESH),
    (LATEST_SEED, LATEST),
    (FINAL_SEED, FINAL),
)
WORLDS = ("alike", "close", "mixed", "unrelated", "opposite")


@dataclass(frozen=True)
class Setting:
    """One world: click rates as (K, J), shares, horizon and budget."""

    number: int
    world: str
    rates: NDArray[np.float64]
    shares: NDArray[np.float64]
    horizon: int
    budget: float

    @property
    def perfect_gain(self) -> float:
        """Clicks that perfect information gains over random arms."""
        best = self.rates.max(axis=0) - self.rates.mean(axis=0)
        return float(self.horizon * (self.shares * best).sum())


def setting(number: int) -> Setting:
    """The setting of this number.

    Rates are a base rate (log-uniform, .004 to .4) times a factor by segment (in every second world)
    times 1 + spread x (part that all segments share + part of the segment alone), cut to .002 to .5.
    The worlds differ in how much is shared: all (alike), 90% of the variance (close), half (mixed),
    nothing (unrelated); opposite segments see the same arms in reversed order.
    """
    seed = SEED
    for its_own, numbers in _SEEDS:
        seed = its_own if number in numbers else seed
    rng = np.random.default_rng([seed, number])
    world = WORLDS[rng.integers(len(WORLDS))]
    n_arms = round(float(np.exp(rng.uniform(np.log(2), np.log(20)))))
    n_segments = round(float(np.exp(rng.uniform(np.log(2), np.log(20)))))
    horizon = int(rng.choice(HORIZONS))
    budget = float(rng.choice(BUDGETS))
    shares = rng.dirichlet(np.full(n_segments, rng.choice([2.0, 10.0])))
    base = np.exp(rng.uniform(np.log(0.004), np.log(0.4)))
    spread = rng.uniform(0.05, 0.4)
    factor = np.exp(rng.normal(0, 0.3, n_segments)) if rng.random() < 0.5 else np.ones(n_segments)
    common = rng.normal(size=(n_arms, 1))
    own = rng.normal(size=(n_arms, n_segments))
    if world == "opposite":
        sign = np.where(np.arange(n_segments) % 2 == 0, 1.0, -1.0)
        effect = common * sign
    else:
        shared = {"alike": 1.0, "close": 0.9, "mixed": 0.5, "unrelated": 0.0}[world]
        effect = np.sqrt(shared) * common + np.sqrt(1 - shared) * own
    rates = np.clip(base * factor * (1 + spread * effect), 0.002, 0.5)
    return Setting(number, world, rates, shares, horizon, budget)


def tuning() -> list[Setting]:
    """The settings that may be looked at."""
    return [setting(i) for i in range(0, 160, 2)]


def more_tuning() -> list[Setting]:
    """Further settings that may be looked at."""
    return [setting(i) for i in MORE_TUNING]


def two_arms() -> list[Setting]:
    """Further settings with two arms; of the second half those with many similar segments."""
    both = [s for s in map(setting, TWO_ARMS) if len(s.rates) == 2]
    return both + [
        s
        for s in map(setting, TWO_ARMS_NEAR)
        if len(s.rates) == 2
        and s.rates.shape[1] >= 8
        and s.world in ("alike", "close")
        and s.budget >= 0.5
    ]


def earlier() -> list[Setting]:
    """The settings on which an earlier version of the rule was judged; none was used for tuning."""
    return [setting(i) for i in EARLIER]


def judged() -> list[Setting]:
    """The settings on which rule 1 was judged; none was used for tuning."""
    return [setting(i) for i in JUDGED]


def fresh() -> list[Setting]:
    """The settings on which rule 2 was judged before its floor was changed; not for tuning."""
    return [setting(i) for i in FRESH]


def latest() -> list[Setting]:
    """The settings on which rule 2 was judged, after it was final; not for tuning."""
    return [setting(i) for i in LATEST]


def final() -> list[Setting]:
    """The settings on which rule 3 was judged, after it was final; not for tuning."""
    return [setting(i) for i in FINAL]

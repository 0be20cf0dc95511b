"""The random settings on which the joint rule was tuned and judged, and runs of it there.

`python -m research joint-tuning SET FOLDER --seconds N` adds repetitions where the standard error of a
policy in a setting is above half a point, until the time is up. It keeps them in FOLDER, goes on where
it was, and prints a Markdown table of everything so far. Numbers are shares of what perfect information
gains over random arms, in points (hundredths), by pseudo-regret.

Setting i is drawn from its set's seed and i alone; simulations of it use the seed (RUN_SEED, i,
repetition). joint.md says what the sets were used for.
"""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from deniable.privacy.epochs import simulated_epochs
from deniable.simulation.environment import Environment
from deniable.simulation.job import make_job, run_from
from deniable.simulation.kernels.epochs import run_epochs
from deniable.simulation.kernels.random_numbers import generator_state
from deniable.simulation.kernels.run import Setting as World
from deniable.strategies.dynamic import Dynamic
from deniable.strategies.joint_kernel import Tuning
from deniable.strategies.joint_lp import proved_table
from deniable.strategies.joint_rule import TUNING, TableMaker

# -- the settings ----------------------------------------------------------------------------------

RUN_SEED = 20_141
SETS: dict[str, tuple[int, Sequence[int]]] = {
    "tuning": (20_140, range(0, 160, 2)),
    "held_out": (20_140, range(1, 160, 2)),
    "earlier": (61_803, range(2000, 2048)),
    "judged": (27_182, range(3000, 3048)),
    "more_tuning": (20_140, range(4000, 4100)),
    "fresh": (31_415, range(5000, 5072)),
    "latest": (16_180, range(6000, 6072)),
    "final": (14_142, range(7000, 7072)),
    "two_arms": (20_140, range(8000, 8800)),
    "two_arms_near": (20_140, range(9000, 11_000)),
}
"""Name -> seed and numbers. Of the last two, only settings with two arms count; of the very last, only
those with many similar segments."""

BUDGETS = (0.1, 0.5, 1.0, 2.0, 3.0)
HORIZONS = (10_000, 30_000, 100_000, 300_000, 1_000_000)
WORLDS = ("alike", "close", "mixed", "unrelated", "opposite")


@dataclass(frozen=True)
class Setting:
    """One world: click rates as (J, K), shares, horizon and budget."""

    number: int
    world: str
    rates: NDArray[np.float64]
    shares: NDArray[np.float64]
    horizon: int
    budget: float

    @property
    def perfect_gain(self) -> float:
        """Clicks that perfect information gains over random arms."""
        best = self.rates.max(axis=1) - self.rates.mean(axis=1)
        return float(self.horizon * (self.shares * best).sum())


def setting(seed: int, number: int) -> Setting:
    """Draw a setting.

    Rates are a base rate (log-uniform, .004 to .4) times a factor by segment (in every second world)
    times 1 + spread x (part that all segments share + part of the segment alone), cut to .002 to .5.
    The worlds differ in how much is shared: all (alike), 90% of the variance (close), half (mixed),
    nothing (unrelated); opposite segments see the same arms in reversed order.
    """
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
    return Setting(number, world, rates.T, shares, horizon, budget)


def settings_of(name: str) -> list[Setting]:
    """The settings of a set.

    >>> [len(settings_of(name)) for name in ("tuning", "final")]
    [80, 72]
    """
    seed, numbers = SETS[name]
    drawn = [setting(seed, number) for number in numbers]
    if name.startswith("two_arms"):
        drawn = [each for each in drawn if each.rates.shape[1] == 2]
    if name == "two_arms_near":
        drawn = [
            each
            for each in drawn
            if len(each.rates) >= 8 and each.world in ("alike", "close") and each.budget >= 0.5
        ]
    return drawn


# -- runs ------------------------------------------------------------------------------------------

PRECISION = 0.5
"""Standard error to reach, in points."""

LEAST_GAIN = 100
"""Clicks that perfect information gains, at least, in settings that count."""

FEWEST, MOST, BATCH = 20, 4000, 20
RIVALS = ("pooled", "Thompson", "dynamic")
POLICIES = ("joint", *RIVALS)
Found = dict[str, list[float]]


def repetition(
    setting: Setting, policy: str, number: int, tuned: Tuning = TUNING, told: float = 1.0
) -> float:
    """The share of one repetition; the same seeds for every policy.

    Args:
        setting: the world.
        policy: one of POLICIES.
        number: of the repetition.
        tuned: the joint rule's constants.
        told: the horizon that the rule is told, as a part of the truth; 0 for an open end.
    """
    world = Environment(setting.rates, setting.horizon, setting.shares)
    job = make_job(world, Dynamic(setting.budget))
    state = generator_state(np.random.SeedSequence([RUN_SEED, setting.number, number]))
    if policy == "dynamic":
        shows, _ = run_from(job, state)
    else:
        if policy == "Thompson":
            tuned = tuned._replace(curiosity=np.inf)  # never cooled down: the usual bandit
        n_segments, n_arms = setting.rates.shape
        joint = policy == "joint"
        budget = setting.budget if joint else 0.0
        kind: Literal["joint", "pooled"] = "joint" if joint else "pooled"
        maker = TableMaker(kind, n_arms, n_segments, told * setting.horizon, budget, tuned)
        place = World(job.rates, job.arrival, job.checkpoints, state)
        shows, _ = run_epochs(True, simulated_epochs(n_arms, n_segments), maker.next_table, place)
    return 100 * (1 - float((shows[-1] * world.gaps).sum()) / setting.perfect_gain)


def limit(setting: Setting) -> float:
    """What the best private table with known rates gains, in points."""
    return _points(setting, proved_table(setting.rates, setting.shares, setting.budget).value)


def known_response(setting: Setting) -> float:
    """What randomized response of the best arms gains with known rates: dynamic's limit."""
    n_arms = setting.rates.shape[1]
    other = 1 / (n_arms - 1 + np.exp(setting.budget))
    rates = setting.rates
    by_segment = other * rates.sum(axis=1) + (1 - n_arms * other) * rates.max(axis=1)
    return _points(setting, float(setting.shares @ by_segment))


def known_pooled(setting: Setting) -> float:
    """What the best single arm for everybody gains: the limit of pooled and of Thompson."""
    return _points(setting, float((setting.shares @ setting.rates).max()))


def _points(setting: Setting, value: float) -> float:
    """Clicks per visitor as a share of what perfect information gains over random arms."""
    perfect = float(setting.shares @ setting.rates.max(axis=1))
    return 100 * (1 - (perfect - value) * setting.horizon / setting.perfect_gain)


def _median(values: Sequence[float]) -> float:
    return float(np.median(values)) if values else np.nan


def error(values: list[float]) -> float:
    """Standard error of the mean."""
    return float(np.std(values, ddof=1) / len(values) ** 0.5) if len(values) > 1 else np.inf


def run(settings: list[Setting], folder: Path, seconds: float) -> dict[int, Found]:
    """Add repetitions until all that count are precise or the time is up."""
    folder.mkdir(parents=True, exist_ok=True)
    found = {s.number: _read(folder, s) for s in settings}
    end = time.monotonic() + seconds
    # A first round for all, then again and again for those that need it.
    for wanted in (FEWEST, 60, 100, 200, 400, 800, 1600, MOST):
        for setting in settings:
            own = found[setting.number]
            for policy in POLICIES:
                values = own.setdefault(policy, [])
                while len(values) < wanted and (
                    len(values) < FEWEST or _unsure(setting, own, policy)
                ):
                    if time.monotonic() > end:
                        _write(folder, setting, own)
                        return found
                    start = len(values)
                    values += [repetition(setting, policy, start + i) for i in range(BATCH)]
            _write(folder, setting, own)
    return found


def _unsure(setting: Setting, own: Found, policy: str) -> bool:
    """Whether further repetitions count: not of a bandit far behind dynamic, nor the other way."""
    if setting.perfect_gain < LEAST_GAIN or error(own[policy]) <= PRECISION:
        return False
    if policy not in RIVALS or not all(len(own.get(rival, ())) >= FEWEST for rival in RIVALS):
        return True
    others = ("pooled", "Thompson") if policy == "dynamic" else ("dynamic",)
    at_most = np.mean(own[policy]) + 4 * error(own[policy])
    return bool(at_most > min(np.mean(own[other]) for other in others))


def _read(folder: Path, setting: Setting) -> Found:
    file = folder / f"{setting.number}.json"
    return json.loads(file.read_text()) if file.exists() else {}


def _write(folder: Path, setting: Setting, found: Found) -> None:
    part = folder / f"{setting.number}.part"
    part.write_text(json.dumps(found))
    part.replace(folder / f"{setting.number}.json")


def line(setting: Setting, found: Found) -> str:
    """A row of the table."""
    n_segments, n_arms = setting.rates.shape
    cells = [
        str(setting.number),
        setting.world,
        str(n_arms),
        str(n_segments),
        f"{setting.horizon:,}",
        f"{setting.budget:g}",
        f"{setting.perfect_gain:,.0f}",
        *(f"{np.mean(found[p]):.1f} ± {error(found[p]):.1f}" for p in POLICIES),
        f"{limit(setting):.1f}",
    ]
    return "| " + " | ".join(cells) + " |"


def possible(settings: list[Setting]) -> dict[str, object]:
    """What the linear programme is worth where every strategy knows the rates; nothing is simulated."""
    tops = [limit(s) for s in settings]
    ahead = [
        top - max(known_response(s), known_pooled(s)) for top, s in zip(tops, settings, strict=True)
    ]
    ratios = [
        top / known_response(s)
        for top, s in zip(tops, settings, strict=True)
        if s.budget == 3 and s.rates.shape[1] > 2
    ]
    return {
        "known rates: limit above the better of response and one arm": float(np.mean(ahead)),
        "known rates: median ratio to response at budget 3, K > 2": _median(ratios),
        "known rates: settings in that median, and those below 1.25": (
            len(ratios),
            sum(one < 1.25 for one in ratios),
        ),
    }


def summary(rows: list[tuple[Setting, Found]]) -> dict[str, object]:
    """What the strategy was asked to reach, measured; settings of 100 clicks and more."""
    mean = {s.number: {p: float(np.mean(v)) for p, v in found.items()} for s, found in rows}
    for s, _ in rows:
        mean[s.number]["limit"] = limit(s)

    def excess(pooled: str, of: str = "joint") -> list[float]:
        return [m[of] - max(m[pooled], m["dynamic"]) for m in mean.values()]

    def below(pooled: str) -> list[str]:
        return [
            f"{s.number}: {e:.1f}"
            for (s, _), e in zip(rows, excess(pooled), strict=True)
            if e < (-8 if s.horizon < 100_000 else -5)
        ]

    def ratio(budget: float, of: str = "joint") -> float:
        several = [mean[s.number] for s, _ in rows if s.budget == budget and s.rates.shape[1] > 2]
        return _median([m[of] / max(m["dynamic"], 0.1) for m in several])

    long = [mean[s.number]["joint"] / limit(s) for s, _ in rows if s.horizon == 1_000_000]
    errors = [error(v) for _, found in rows for v in found.values()]
    noise = []
    for s, found in rows:
        better = max(("Thompson", "dynamic"), key=mean[s.number].__getitem__)
        noise.append(error(found["joint"]) ** 2 + error(found[better]) ** 2)
    return {
        "settings": len(rows),
        "mean excess over the better of dynamic and Thompson": np.mean(excess("Thompson")),
        "its standard error": float(np.sqrt(np.sum(noise)) / len(rows)),
        "mean excess over the better of dynamic and pooled": np.mean(excess("pooled")),
        "worst excess (Thompson, pooled)": (min(excess("Thompson")), min(excess("pooled"))),
        "too far below (Thompson)": below("Thompson"),
        "too far below (pooled)": below("pooled"),
        "median ratio to dynamic at budget 3, K > 2": ratio(3.0),
        "median ratio to dynamic at budget .5, K > 2": ratio(0.5),
        "the limit's mean excess (Thompson, pooled)": (
            np.mean(excess("Thompson", "limit")),
            np.mean(excess("pooled", "limit")),
        ),
        "the limit's median ratio to dynamic at budget 3, K > 2": ratio(3.0, "limit"),
        **possible([s for s, _ in rows]),
        "median part of the limit at T = 1e6": _median(long),
        "standard errors, median and largest": (_median(errors), max(errors)),
    }


def report(name: str, folder: Path, seconds: float) -> str:
    """Run a set for a while and return the table and the summary of everything so far."""
    settings = settings_of(name)
    found = run(settings, folder, seconds)
    finished = [s for s in settings if all(len(found[s.number].get(p, [])) > 1 for p in POLICIES)]
    lines = []
    for title, small in (("", False), ("\nPerfect information gains under 100 clicks:\n", True)):
        lines += [
            *([title] if title else []),
            "| no. | world | K | J | T | budget | gain | " + " | ".join(POLICIES) + " | limit |",
            "|" + " --- |" * (len(POLICIES) + 8),
        ]
        for setting in finished:
            if (setting.perfect_gain < LEAST_GAIN) == small:
                lines.append(line(setting, found[setting.number]))
    rows = [(s, found[s.number]) for s in finished if s.perfect_gain >= LEAST_GAIN]
    if rows:
        lines += ["", *(f"{key}: {value}" for key, value in summary(rows).items())]
    return "\n".join(lines)

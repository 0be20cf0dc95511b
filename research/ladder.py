"""The planner's ladder against direct simulation, at random settings.

Each experiment is drawn from the prior: arms differ for everybody, by context and by segment. The bandit
of each step runs on what it sees. Gains are shares of what perfect information gains over random arms.

    python -m research.ladder [settings] [experiments]
"""

from __future__ import annotations

import sys
from dataclasses import dataclass

import numpy as np

from deniable._validation import FloatArray
from deniable.expectations.expected import expected_loss
from deniable.expectations.prior import Prior
from deniable.masks.limit import best_groups, group_channel
from deniable.planning.experiment import PlannedExperiment
from deniable.planning.ladder import ladder
from deniable.simulation.environment import Environment
from deniable.simulation.job import make_job, run_repetition
from deniable.strategies.joint import Joint
from deniable.strategies.kernel_rules import Simulated
from deniable.strategies.pooled import Pooled
from deniable.strategies.unbounded import Unbounded

SEED = 42
BASE_RATE = 0.1


@dataclass(frozen=True)
class Setting:
    """A random setting: K, T, J, C, d, the parts of the variance by context and by segment, budget."""

    arms: int
    visitors: int
    segments: int
    contexts: int
    lift: float
    by_context: float
    by_segment: float
    budget: float


def settings(count: int) -> list[Setting]:
    """Return random settings, always the same."""
    rng = np.random.default_rng(SEED)
    found = []
    for _ in range(count):
        by_context = rng.uniform(0, 0.6)
        found.append(
            Setting(
                arms=int(rng.integers(2, 8)),
                visitors=int(10 ** rng.uniform(4, 5)),
                segments=int(rng.integers(2, 6)),
                contexts=int(rng.integers(2, 5)),
                lift=float(rng.uniform(0.1, 0.3)),
                by_context=by_context,
                by_segment=float(rng.uniform(0, 1 - by_context)),
                budget=float(rng.uniform(0.5, 3)),
            )
        )
    return found


def drawn(setting: Setting, rng: np.random.Generator) -> FloatArray:
    """Return the click rates of an experiment, (C, J, K)."""
    parts = (
        (1 - setting.by_context - setting.by_segment, (1, 1)),
        (setting.by_context, (setting.contexts, 1)),
        (setting.by_segment, (1, setting.segments)),
    )
    z = sum(part**0.5 * rng.standard_normal((*shape, setting.arms)) for part, shape in parts)
    return Prior(BASE_RATE, setting.lift).clipped(np.asarray(z))


def simulated(setting: Setting, experiments: int) -> dict[str, tuple[float, float]]:
    """Return each step's gain and its standard error."""
    n, rng = setting.segments, np.random.default_rng(SEED)
    sizes = np.full(n, 1 / n)
    groups = best_groups(sizes, setting.budget, setting.by_segment)
    steps: dict[str, tuple[FloatArray, bool, Simulated]] = {
        "one bandit": (np.ones((n, 1)), False, Pooled()),
        "contexts": (np.ones((n, 1)), True, Unbounded()),
        "label": (group_channel(groups, setting.budget), True, Unbounded()),
        "joint": (np.eye(n), False, Joint(setting.budget)),
        "no privacy": (np.eye(n), True, Unbounded()),
    }
    gained: dict[str, list[float]] = {step: [] for step in steps}
    possible = []
    for run in range(experiments):
        rates = drawn(setting, rng)
        possible.append(setting.visitors * float((rates.max(axis=2) - rates.mean(axis=2)).mean()))
        for step, (channel, by_context, policy) in steps.items():
            seen = rates if by_context else rates.mean(axis=0, keepdims=True)
            by_label = sizes @ channel
            mixed = np.einsum("sz,csk->czk", sizes[:, None] * channel / by_label, seen)
            world = Environment(
                mixed.reshape(-1, setting.arms),
                setting.visitors,
                np.tile(by_label / len(seen), len(seen)),
            )
            shows, _ = run_repetition(make_job(world, policy), SEED, run)
            gained[step].append(
                float((shows[-1] * world.rates).sum()) - setting.visitors * rates.mean()
            )
    told = {}
    for step, clicks in gained.items():
        share = np.sum(clicks) / np.sum(possible)
        spread = np.std(np.array(clicks) - share * np.array(possible)) / np.mean(possible)
        told[step] = float(share), float(spread / experiments**0.5)
    return told


def expected(setting: Setting) -> dict[str, float]:
    """Return what the ladder says of each step."""
    planned = PlannedExperiment(setting.arms, setting.visitors, setting.segments)
    found = ladder(
        planned,
        Prior(BASE_RATE, setting.lift, setting.by_segment),
        setting.budget,
        contexts=setting.contexts,
        by_context=setting.by_context,
    )
    random = expected_loss(
        "random", setting.arms, setting.visitors, base_rate=BASE_RATE, lift=setting.lift
    )
    return {
        step.step: (step.clicks - float(random.clicks)) / float(random.lost)
        for step in found.steps
        if step.clicks is not None
    }


def main(count: int, experiments: int) -> None:
    """Print each step's error at each setting, and over all of them."""
    errors: dict[str, list[tuple[float, float]]] = {}
    for setting in settings(count):
        told, measured = expected(setting), simulated(setting, experiments)
        sys.stdout.write(f"{setting}\n")
        for step, (share, noise) in measured.items():
            error = told[step] - share
            errors.setdefault(step, []).append((error, noise))
            sys.stdout.write(
                f"  {step:11} ladder {told[step]:.3f} simulated {share:.3f} +-{noise:.3f}\n"
            )
        sys.stdout.flush()
    for step, pairs in errors.items():
        error, noise = np.array(pairs).T
        beyond = max(float((error**2 - noise**2).mean()), 0.0) ** 0.5
        sys.stdout.write(
            f"{step:11} mean error {error.mean():+.3f}, largest {np.abs(error).max():.3f}, root mean "
            f"square beyond noise {beyond:.3f}, typical noise {np.median(noise):.3f}\n"
        )


if __name__ == "__main__":
    main(*(int(text) for text in sys.argv[1:3] or ("20", "40")))

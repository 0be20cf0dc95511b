"""The surface against direct simulation, at random priors that it has not seen.

Runs are made in rounds and kept in a folder: priors at which luck still hides the surface's error get
more of them. A prior's runs do not depend on the surface, so that they judge any.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from deniable._validation import FloatArray
from deniable.expectations import surface as shipped
from deniable.expectations.surface import Question, surface_name
from research import surface_runs as runs
from research.surface_luck import CHANCES, expected_rows

ROUND = 100
"""Runs at each prior in a round."""

FEWEST = 400
"""Runs at each prior at least. With two arms and a large signal, one run in 50 stays with the wrong arm
and these lose most of what is lost: a few runs without one of them seem to have no noise."""

NOISE = 0.004
"""Standard error, in units of the gain, from which a prior needs no further runs."""


@dataclass(frozen=True)
class Difference:
    """The surface against direct simulation at one prior.

    Attributes:
        strategy: whose.
        asked: where.
        told: the surface's share of the gain.
        found: the simulated one.
        noise: its standard error.
        inside: share of runs between the surface's two quantiles.
    """

    strategy: str
    asked: Question
    told: float
    found: float
    noise: float
    inside: float

    @property
    def error(self) -> float:
        """Of the surface, as a part of what perfect information gains over random arms."""
        return self.told - self.found


def compare(strategy: str, asked: Question, repetitions: int, seed: int) -> Difference:
    """Simulate many draws of the rates at one prior."""
    rng = np.random.default_rng([seed, 1])
    return judge(strategy, asked, _rows(strategy, asked, repetitions, rng))


def judge(strategy: str, asked: Question, rows: FloatArray) -> Difference:
    """The surface against runs at one prior, (runs, columns of a row)."""
    entry = shipped.surface()[surface_name(strategy, int(asked.segments))]
    told = float(entry.shares(asked))
    each = runs.Rows(*rows.T)
    y = expected_rows(entry.strategy, told, asked, each)
    low, high = (float(part) * (1 - told) for part in entry.spreads(asked))
    freedom = max(len(rows) - 1 - CHANCES, 1)
    spread = math.sqrt(float(((y - y.mean()) ** 2).sum()) / freedom)
    inside = float(((each.lost >= low) & (each.lost <= high)).mean())
    noise = spread / math.sqrt(len(rows))
    return Difference(strategy, asked, told, float(y.mean()), noise, inside)


def priors_of(name: str, count: int, seed: int) -> list[Question]:
    """Random priors of a surface's domain, the same for the same seed."""
    rng = np.random.default_rng([seed, 0, runs.names().index(name)])
    return runs.draw_questions(name, count, rng)


def make_checks(
    folder: Path, name: str, priors: Sequence[Question], seed: int, seconds: float, noise: float
) -> Iterator[list[Difference]]:
    """Rounds of runs until every prior's noise is small or the time is up; what is found so far.

    Args:
        folder: where rounds are kept; it goes on after the last.
        name: of the surface.
        priors: where to look.
        seed: of the runs.
        seconds: after which no further round is begun.
        noise: a standard error that is small enough.
    """
    folder.mkdir(parents=True, exist_ok=True)
    made = [np.empty((0, len(runs.Rows._fields))) for _ in priors]
    found: dict[int, Difference] = {}
    begun, number = time.monotonic(), 0
    while True:
        path = folder / f"check-{name}-{seed}-{number:03}.npy"
        todo = [
            place
            for place in range(len(priors))
            if len(made[place]) < FEWEST or found[place].noise > noise
        ]
        if not path.exists():
            if not todo or time.monotonic() - begun > seconds:
                return
            rng = np.random.default_rng([seed, 1, runs.names().index(name), number])
            rows = [
                [place, *row] for place in todo for row in _rows(name, priors[place], ROUND, rng)
            ]
            unfinished = path.with_suffix(".part.npy")
            np.save(unfinished, np.array(rows))
            unfinished.replace(path)
        table = np.load(path)
        for place in np.unique(table[:, 0].astype(np.int64)).tolist():
            made[place] = np.concatenate([made[place], table[table[:, 0] == place, 1:]])
            found[place] = judge(name, priors[place], made[place])
        yield [found[place] for place in range(len(priors))]
        number += 1


def _rows(strategy: str, asked: Question, repetitions: int, rng: np.random.Generator) -> FloatArray:
    return np.array([runs.run_row(strategy, asked, rng) for _ in range(repetitions)])


def errors_of(found: Sequence[Difference]) -> dict[str, float]:
    """What the plan says about its surface: the worst error, and the root mean square beyond noise."""
    errors = np.array([one.error for one in found])
    noise = np.array([one.noise for one in found])
    own = math.sqrt(max(0.0, float((errors**2 - noise**2).mean())))
    worst = float(np.abs(errors).max())
    return {"priors": len(found), "worst": round(worst, 5), "usual": round(own, 5)}


def summary(name: str, found: Sequence[Difference]) -> str:
    """Errors in percent of the gain; what is left of them without the simulation's noise."""
    errors = np.array([one.error for one in found])
    noise = np.array([one.noise for one in found])
    worst = found[int(np.abs(errors).argmax())]
    own = errors_of(found)["usual"]
    size = np.abs(errors)
    return (
        f"{name}: {len(found)} priors, error median {np.median(size):.2%}, "
        f"95% {np.quantile(size, 0.95):.2%}, worst {size.max():.2%} (noise there "
        f"{worst.noise:.2%}, median noise {np.median(noise):.2%}, most {noise.max():.2%}), "
        f"{(size > 0.02).sum()} above 2%, root mean square beyond noise {own:.2%}; "
        f"inside the interval {np.mean([one.inside for one in found]):.0%}; "
        f"worst at {', '.join(f'{key} {float(getattr(worst.asked, key)):.4g}' for key in runs.FIELDS)}"
    )

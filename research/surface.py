"""The surface of expected gains: `python -m research surface make | fit | check`.

`make` runs the simulator at random priors and keeps the rows in a folder; it can be interrupted and
goes on where it was. `fit` writes `surface.json` from them, which ships with the package. `check`
compares the surface with direct simulation at priors that it has not seen.
"""

from __future__ import annotations

import json
import math
import warnings
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Annotated, NamedTuple, TypeAlias

import numpy as np
import typer
from sklearn.exceptions import ConvergenceWarning
from sklearn.neural_network import MLPRegressor

from deniable._types import JsonObject
from deniable._validation import FloatArray
from deniable.expectations import surface as shipped
from deniable.expectations.curves import Network, Polynomial
from deniable.expectations.surface import (
    BEST_PRIVATE,
    COORDINATES,
    POOLED,
    QUANTILES,
    RANDOM,
    Entry,
    Question,
    coordinates,
    domain_of,
    learns_apart,
    learns_together,
    private_scale,
    reach,
    spread_coordinates,
    start,
)
from research import surface_check as checks
from research import surface_runs as runs
from research.surface_luck import expected_rows, noise_at
from research.surface_runs import (
    LIFTS,
    MORE_BUDGET,
    MOST_BUDGET,
    SIGNALS,
    VISITORS,
    Rows,
    wider,
)

app = typer.Typer(add_completion=False, help=__doc__)

FILES = {
    RANDOM: 20,
    BEST_PRIVATE: 100,
    POOLED: 210,
    "constant": 301,
    "dynamic": 360,
    "joint": 290,
}
"""Thousands of rows of each surface that ships."""

_OTHERS = 16

_Folder = Annotated[Path, typer.Option(help="Where the rows are kept.")]
_FOLDER = Path(".cache/surface")
_Target = Annotated[Path, typer.Option(help="The file to write.")]
_TARGET = Path("src/deniable/expectations/surface.json")


@app.command()
def make(
    folder: _Folder = _FOLDER,
    seconds: Annotated[float, typer.Option(help="Begin nothing new after so long.")] = math.inf,
    only: Annotated[str | None, typer.Option(help="One surface.")] = None,
    files: Annotated[
        int | None, typer.Option(help="Thousands of rows for each surface (default: as shipped).")
    ] = None,
    part: Annotated[
        str, typer.Option(help="Of several processes that share the work, which this is, as 1/2.")
    ] = "1/1",
) -> None:
    """Run the simulator at random priors; two hours on one core."""
    wanted = {
        name: files or FILES.get(name, _OTHERS) for name in runs.names() if only in (None, name)
    }
    total = sum(wanted.values())
    this, all_parts = map(int, part.split("/"))
    made = runs.make_runs(folder, wanted, seconds, (this - 1, all_parts))
    for done, (name, number, took) in enumerate(made, 1):
        typer.echo(f"{name} {number + 1}: {took:.1f} s ({done} of at most {total} files)")


@app.command()
def fit(
    folder: _Folder = _FOLDER,
    target: _Target = _TARGET,
    only: Annotated[
        list[str] | None, typer.Option(help="Surfaces to fit; the file keeps its others.")
    ] = None,
) -> None:
    """Write the surface from the rows."""
    before = json.loads(target.read_text()) if only else {"entries": {}, "errors": {}}
    entries: dict[str, object] = before["entries"]
    errors = before.get("errors", {})
    with shipped.reading(target):
        for name in runs.names():
            if only and name not in only:
                continue
            asked, rows = runs.read_runs(folder, name)
            entry = fit_entry(name, asked, rows)
            entries[name] = {
                "share": None if entry.share is None else entry.share.stored(),
                "spread": [one.stored() for one in entry.spread],
            }
            errors.pop(name, None)  # it was another's
            _write(target, entries, errors)
            shipped.forget()  # others are fitted relative to it
            typer.echo(f"{name}: {rows.lost.size:,} rows")
    shipped.forget()


def _write(target: Path, entries: JsonObject, errors: JsonObject) -> None:
    ordered = {name: entries[name] for name in runs.names() if name in entries}
    kept = {"seed": runs.SEED, "errors": errors, "entries": ordered}
    target.write_text(json.dumps(kept, separators=(",", ":")))


@app.command()
def check(
    folder: _Folder = _FOLDER,
    target: _Target = _TARGET,
    priors: Annotated[int, typer.Option(help="How many random priors of each surface.")] = 100,
    noise: Annotated[
        float, typer.Option(help="Standard error from which a prior needs no more runs.")
    ] = checks.NOISE,
    seed: Annotated[int, typer.Option()] = 1,
    only: Annotated[str | None, typer.Option(help="One strategy.")] = None,
    seconds: Annotated[float, typer.Option(help="Begin nothing new after so long.")] = math.inf,
) -> None:
    """Compare the surface with direct simulation, in percent of the gain; the file keeps the errors."""
    stored = json.loads(target.read_text())
    for name in runs.names():
        if name == RANDOM or only not in (None, name):
            continue
        asked = checks.priors_of(name, priors, seed)
        with shipped.reading(target):
            found = list(checks.make_checks(folder, name, asked, seed, seconds, noise))
        if found:
            typer.echo(checks.summary(name, found[-1]))
            stored.setdefault("errors", {})[name] = checks.errors_of(found[-1])
            _write(target, stored["entries"], stored["errors"])
    shipped.forget()


class Size(NamedTuple):
    """The networks whose mean is a share.

    Attributes:
        networks: how many.
        hidden: units of their layers.
    """

    networks: int
    hidden: tuple[int, ...]


_PRIVATE = Size(2, (16, 16))
_APART = Size(2, (24, 24))
_POOLED = Size(4, (16, 16))
_TOGETHER = Size(4, (20, 20))
"""The best private table, where segments learn alone, one bandit for all, and where segments learn from
each other: the last two have runs with more luck, and fewer of them."""

_SPREAD_DEGREE = 2
"""Of what clicks vary by, in all coordinates together."""

_MISFIT = 0.015
"""Rows with less noise than this count no more for it: the network cannot follow them all."""

_LEAST_LOST = 1e-4


def fit_entry(name: str, asked: Question, rows: Rows) -> Entry:
    """The surface of one strategy from its rows."""
    lost = rows.lost
    if name == RANDOM:
        return Entry(name, None, _spreads(name, asked, lost))
    fitted = fit_network(name, asked, rows)
    share = Entry(name, fitted, ()).shares(asked)
    return Entry(name, fitted, _spreads(name, asked, lost / np.maximum(1 - share, _LEAST_LOST)))


Link: TypeAlias = Callable[[FloatArray], tuple[FloatArray, FloatArray]]
"""From a network's values at all rows to shares, and their derivatives."""

_ROUNDS, _PASSES = 20, 4
_FAST, _SLOW = 6e-3, 2e-5
"""Adam's step in the first and in the last round."""

_LEAST_BATCH, _MOST_BATCH = 32, 1024
_DECAY = 1e-6
"""Of the weights' squares. It only holds weights that nothing else does."""

_FLAT, _LEAP = 1e-3, 3.0
"""A link's slope from which it counts as flat, and how far a round may move a value."""


def fit_network(name: str, asked: Question, rows: Rows) -> Network:
    """Networks whose mean is near the rows' shares.

    In rounds (Gauss-Newton). Each takes more of the luck off, knows better which rows are noisy,
    replaces the link by its tangent, and goes on with weighted least squares where the last one ended.
    """
    names = _names(name)
    blank = Network(names, *_ends(name, names), ())
    points = blank.scaled(coordinates(name, asked))
    link = _private(asked) if name == BEST_PRIVATE else _learned(name, asked)
    # Where each segment learns by itself it is a run of its own.
    alone = asked.segments if learns_apart(name) else np.ones(rows.lost.shape)
    models = _models(name, rows.lost.size)
    values = [np.zeros(rows.lost.size) for _ in models]
    precision = np.ones(rows.lost.shape)
    for number in range(_ROUNDS):
        share, _ = link(np.mean(values, axis=0))
        wanted = expected_rows(name, share, asked, rows)
        if number > 0:
            noise = noise_at(points, (wanted - share) ** 2 * alone) / alone
            precision = 1 / (_MISFIT**2 + noise)
            precision /= precision.mean()
        step = _SLOW + (_FAST - _SLOW) * (1 + math.cos(math.pi * number / _ROUNDS)) / 2
        for place, model in enumerate(models):
            share, slope = link(values[place])
            slope = np.maximum(slope, _FLAT)
            target = values[place] + np.clip((wanted - share) / slope, -_LEAP, _LEAP)
            model.set_params(learning_rate_init=step, random_state=runs.SEED + 100 * number + place)
            with warnings.catch_warnings():  # it is told how many passes to make, and made them
                warnings.simplefilter("ignore", ConvergenceWarning)
                model.fit(points, target, sample_weight=precision * slope**2)
            values[place] = model.predict(points)
    return replace(blank, layers=_layers(models))


def _models(name: str, rows: int) -> list[MLPRegressor]:
    sizes = {BEST_PRIVATE: _PRIVATE, POOLED: _POOLED}
    size = sizes.get(name, _APART if learns_apart(name) else _TOGETHER)
    batch = min(_MOST_BATCH, max(_LEAST_BATCH, rows // 40), rows)
    return [
        MLPRegressor(
            hidden_layer_sizes=size.hidden,
            activation="tanh",
            alpha=_DECAY,
            batch_size=batch,
            max_iter=_PASSES,
            n_iter_no_change=_PASSES,
            warm_start=True,
        )
        for _ in range(size.networks)
    ]


def _layers(models: Sequence[MLPRegressor]) -> tuple[FloatArray, ...]:
    """The weights as the package reads them: what is added is the last row."""
    each = [
        [np.vstack(layer) for layer in zip(model.coefs_, model.intercepts_, strict=True)]
        for model in models
    ]
    return tuple(np.stack(layer) for layer in zip(*each, strict=True))


def _learned(name: str, asked: Question) -> Link:
    """See `Entry.shares`."""
    begun, reached = start(name, asked), reach(name, asked)

    def link(value: FloatArray) -> tuple[FloatArray, FloatArray]:
        learned = 1 / (1 + np.exp(-np.clip(begun.score + begun.weight * value, -30, 30)))
        return reached * learned, reached * learned * (1 - learned) * begun.weight

    return link


def _private(asked: Question) -> Link:
    """The same for the best private table."""
    alone, scale = np.sqrt(asked.shared), private_scale(asked)

    def link(value: FloatArray) -> tuple[FloatArray, FloatArray]:
        x = scale * np.exp(np.clip(value, -10, 4))
        left = (1 - alone) * np.exp(-x)
        return 1 - left, left * x

    return link


def _spreads(name: str, asked: Question, relative: FloatArray) -> tuple[Polynomial, ...]:
    """Quantiles of log(lost / mean lost), linear in the terms."""
    chosen: tuple[str, ...] = COORDINATES[:3] if name == RANDOM else COORDINATES
    if name in (POOLED, BEST_PRIVATE):
        chosen = tuple(one for one in chosen if one != "explored" or name == BEST_PRIVATE)
    every = product(range(_SPREAD_DEGREE + 1), repeat=len(chosen))
    degrees = np.array([term for term in every if sum(term) <= _SPREAD_DEGREE])
    ends = _ends(name, chosen, whole=True)
    blank = Polynomial(chosen, *ends, degrees, np.zeros(len(degrees)))
    terms = blank.terms(spread_coordinates(asked))
    wanted = np.log(np.maximum(relative, _LEAST_LOST))
    return tuple(replace(blank, weights=_quantile(terms, wanted, q)) for q in QUANTILES)


def _quantile(terms: FloatArray, wanted: FloatArray, part: float) -> FloatArray:
    """Linear quantile regression, by reweighted least squares (Hunter and Lange's majorization).

    scikit-learn's linear programme takes a minute for 20,000 rows, and there are 300,000.
    """
    weights = np.linalg.lstsq(terms, wanted, rcond=None)[0]
    small = 1e-3
    ridge = 1e-6 * len(wanted) * np.eye(terms.shape[1])
    for _ in range(200):
        missed = wanted - terms @ weights
        scale = 1 / (small + np.abs(missed))
        scaled = terms * scale[:, None]
        target = scaled.T @ wanted + (2 * part - 1) * terms.sum(axis=0)
        moved = np.linalg.solve(scaled.T @ terms + ridge, target)
        if np.abs(moved - weights).max() < 1e-6:
            break
        weights = moved
    return np.asarray(weights, np.float64)


def _names(name: str) -> tuple[str, ...]:
    """The coordinates of a surface's share."""
    learning = ("signal", "visitors", "lift")
    if name == BEST_PRIVATE:
        return ("arms", "segments", "heterogeneity", "explored", "budget")
    if name == POOLED:
        return ("arms", "first", *learning)
    if learns_apart(name):
        return ("arms", "first", "explored", "all explored", *learning)
    return ("arms", "segments", "heterogeneity", "explored", *learning, "budget", "two", "own")


def _ends(name: str, names: tuple[str, ...], whole: bool = False) -> tuple[FloatArray, FloatArray]:
    """Where the coordinates begin and end on a surface's domain.

    Args:
        name: of the surface.
        names: of the coordinates.
        whole: whether the coordinates are the whole experiment's, or a segment's where it learns alone.
    """
    domain = domain_of(name)
    few, most = domain.segments
    apart = most if learns_apart(name) and not whole else 1
    narrow = math.sqrt(most) if name == POOLED and not whole else 1.0
    visitors, lifts, signals, budget = VISITORS, LIFTS, SIGNALS, MOST_BUDGET
    if learns_together(name):  # where its rows are
        visitors, lifts, signals = (wider(one) for one in (domain.visitors, domain.lifts, SIGNALS))
        budget = MORE_BUDGET * domain.budget
    corners = Question.of(
        arms=[[2], [domain.arms]], visitors=visitors[0], segments=[few, most], base_rate=0.1,
        lift=0.1, heterogeneity=0.0, budget=0.0,
    )  # fmt: skip
    first = coordinates(name, corners).get("first", np.zeros(1))
    explored = float(np.log(2) - np.logaddexp(0, budget)), 0.0
    ends: dict[str, tuple[float, float]] = {
        "arms": (np.log(2), np.log(domain.arms)),
        "segments": (np.log(few), np.log(most)),
        "heterogeneity": (0.0, 1.0),
        "first": (float(first.min()), float(first.max())),
        "explored": explored,
        "all explored": explored,
        "budget": (0.0, np.log1p(budget)),
        "signal": (np.log(signals[0] / apart / narrow**2), np.log(signals[1])),
        "visitors": (np.log(visitors[0] / apart), np.log(visitors[1])),
        "lift": (np.log(lifts[0] / narrow), np.log(lifts[1])),
        "two": (0.0, 1.0),
        "own": (0.0, np.log1p(signals[1] / few)),
    }
    low, high = np.array([ends[one] for one in names]).T
    return low, high

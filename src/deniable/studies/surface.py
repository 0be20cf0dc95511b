"""The surface of expected gains: `python -m deniable.studies.surface make | fit | check`.

`make` runs the simulator at random priors and keeps the rows in a folder; it can be interrupted and
goes on where it was. `fit` writes `surface.json` from them, which ships with the package. `check`
compares the surface with direct simulation at priors that it has not seen.
"""

from __future__ import annotations

import json
import math
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import numpy as np
import typer

from deniable.expectations import surface as shipped
from deniable.expectations.surface import BEST_PRIVATE, POOLED, RANDOM, Question, surface_name
from deniable.studies import surface_runs as runs

app = typer.Typer(add_completion=False, help=__doc__)

FILES = {
    RANDOM: 20,
    BEST_PRIVATE: 30,
    POOLED: 16,
    "constant": 16,
    "dynamic": 24,
    "joint": 15,
}
"""Thousands of rows of each surface that ships."""

_OTHERS = 16

_Folder = Annotated[Path, typer.Option(help="Where the rows are kept.")]
_FOLDER = Path(".cache/surface")


@app.command()
def make(
    folder: _Folder = _FOLDER,
    seconds: Annotated[float, typer.Option(help="Begin nothing new after so long.")] = math.inf,
    only: Annotated[str | None, typer.Option(help="One surface.")] = None,
    files: Annotated[
        int | None, typer.Option(help="Thousands of rows for each surface (default: as shipped).")
    ] = None,
) -> None:
    """Run the simulator at random priors; 13 minutes on one core."""
    wanted = {
        name: files or FILES.get(name, _OTHERS) for name in runs.names() if only in (None, name)
    }
    total = sum(wanted.values())
    for done, (name, number, took) in enumerate(runs.make_runs(folder, wanted, seconds), 1):
        typer.echo(f"{name} {number + 1}: {took:.1f} s ({done} of at most {total} files)")


@app.command()
def fit(
    folder: _Folder = _FOLDER,
    target: Annotated[Path, typer.Option(help="The file to write.")] = Path(
        "src/deniable/expectations/surface.json"
    ),
    only: Annotated[
        list[str] | None, typer.Option(help="Surfaces to fit; the file keeps its others.")
    ] = None,
) -> None:
    """Write the surface from the rows."""
    from deniable.studies.surface_fit import fit_entry

    kept = json.loads(target.read_text())["entries"] if only else {}
    entries: dict[str, object] = {name: kept[name] for name in runs.names() if name in kept}
    for name in runs.names():
        if only and name not in only:
            continue
        asked, rows = runs.read_runs(folder, name)
        entry = fit_entry(name, asked, rows)
        entries[name] = {
            "share": None if entry.share is None else entry.share.stored(),
            "spread": [one.stored() for one in entry.spread],
        }
        if name == BEST_PRIVATE:  # others are fitted relative to it
            shipped.surface.cache_clear()
        target.write_text(
            json.dumps({"seed": runs.SEED, "entries": entries}, separators=(",", ":"))
        )
        terms = 0 if entry.share is None else len(entry.share.weights)
        typer.echo(f"{name}: {rows.lost.size:,} rows, {terms} terms")
    shipped.surface.cache_clear()


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
    from deniable.studies.surface_fit import expected_rows

    entry = shipped.surface()[surface_name(strategy, int(asked.segments))]
    rng = np.random.default_rng([seed, 1])
    each = [runs.run_row(strategy, asked, rng) for _ in range(repetitions)]
    rows = runs.Rows(*np.array(each).T)
    told = float(entry.shares(asked))
    y = expected_rows(entry.strategy, told, asked, rows)
    low, high = (float(part) * (1 - told) for part in entry.spreads(asked))
    return Difference(
        strategy,
        asked,
        told,
        float(y.mean()),
        float(y.std(ddof=1)) / math.sqrt(repetitions),
        float(((rows.lost >= low) & (rows.lost <= high)).mean()),
    )


@app.command()
def check(
    priors: Annotated[int, typer.Option(help="How many random priors.")] = 100,
    repetitions: Annotated[int, typer.Option(help="Runs at each, at least.")] = 400,
    seed: Annotated[int, typer.Option()] = 1,
    only: Annotated[str | None, typer.Option(help="One strategy.")] = None,
    seconds: Annotated[float, typer.Option(help="Begin nothing new after so long.")] = math.inf,
) -> None:
    """Compare the surface with direct simulation: worst and median error, in percent of the gain."""
    begun = time.monotonic()
    for name in runs.names():
        if name == RANDOM or only not in (None, name):
            continue
        rng = np.random.default_rng([seed, 0, runs.names().index(name)])
        found = []
        for number, asked in enumerate(runs.draw_questions(name, priors, rng)):
            if time.monotonic() - begun > seconds:
                break
            found.append(compare(name, asked, repetitions, seed + number))
        if found:
            typer.echo(summary(name, found))


def summary(name: str, found: list[Difference]) -> str:
    """Errors in percent of the gain; the last figure is what is left without the simulation's noise."""
    errors = np.array([one.error for one in found])
    noise = np.array([one.noise for one in found])
    worst = found[int(np.abs(errors).argmax())]
    own = math.sqrt(max(0.0, float((errors**2 - noise**2).mean())))
    return (
        f"{name}: {len(found)} priors, error median {np.median(np.abs(errors)):.2%}, worst "
        f"{abs(worst.error):.2%} (noise there {worst.noise:.2%}, median noise {np.median(noise):.2%}), "
        f"beyond noise {own:.2%}; inside the interval {np.mean([one.inside for one in found]):.0%}; "
        f"worst at {', '.join(f'{key} {float(getattr(worst.asked, key)):.4g}' for key in runs.FIELDS)}"
    )


if __name__ == "__main__":
    app()

"""Layers against every division into layers, with shares and caps tried one by one."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from deniable.errors import InvalidArgumentError
from deniable.portfolio import curves, layer_search
from deniable.portfolio.curves import KNOTS
from deniable.portfolio.layers import design_layers
from deniable.portfolio.problem import Portfolio

STEPS = layer_search.STEPS
CAPS = 24


def share_of_gain(arms: Any, visitors: Any, budget: Any, half: float = 2e4) -> Any:
    """A model of what is gained: random arms are in the way, and learning takes visitors."""
    power = np.exp(budget)
    return (power - 1) / (arms - 1 + power) * visitors / (visitors + half)


@pytest.fixture(autouse=True)
def _model(monkeypatch: pytest.MonkeyPatch) -> None:
    def table(portfolio: Portfolio, strategy: str, rows: Any) -> NDArray[np.float64]:
        known = portfolio.known
        assert known is not None
        best = portfolio.visitors[rows] * known.base_rate[rows] * known.lift[rows]
        best = best * portfolio.worth[rows]
        sizes = portfolio.arms[rows][:, None], portfolio.visitors[rows][:, None]
        gained = 0.0 if strategy == "random" else share_of_gain(*sizes, KNOTS)
        return np.broadcast_to(best[:, None] * (1 - gained), (len(rows), KNOTS.size))

    monkeypatch.setattr(curves, "has_surface", lambda name: name == "dynamic")
    monkeypatch.setattr(curves, "expected_table", table)
    monkeypatch.setattr(layer_search, "expected_table", table)


def firm(size: int, seed: int) -> list[dict[str, Any]]:
    rng = np.random.default_rng(seed)
    return [
        {
            "id": f"e{i}",
            "arms": int(rng.integers(2, 30)),
            "visitors": int(10 ** rng.uniform(3.5, 6)),
            "base_rate": float(rng.uniform(0.02, 0.3)),
            "lift": float(rng.uniform(0.02, 0.3)),
        }
        for i in range(size)
    ]


def partitions(items: list[int]) -> Iterator[list[list[int]]]:
    if not items:
        yield []
        return
    first, rest = items[0], items[1:]
    for smaller in partitions(rest):
        for place in range(len(smaller)):
            yield [*smaller[:place], [first, *smaller[place]], *smaller[place + 1 :]]
        yield [[first], *smaller]


def whole_loss(row: dict[str, Any], share: float, cap: Any) -> Any:
    best = row["visitors"] * row["base_rate"] * row["lift"]
    held = np.interp(cap, KNOTS, share_of_gain(row["arms"], round(share * row["visitors"]), KNOTS))
    least = np.where(np.asarray(cap) < row.get("min_budget", 0.0) - 1e-9, 1e12, 0.0)
    return best - share * best * held + least


def exhaustive(rows: list[dict[str, Any]], budget: float) -> float:
    """The least loss over all layers, shares in steps and caps in steps."""
    caps = np.linspace(0, budget, CAPS + 1)
    tables: dict[tuple[int, ...], NDArray[np.float64]] = {}

    def layer(group: list[int]) -> NDArray[np.float64]:
        key = tuple(sorted(group))
        if key not in tables:
            own = [
                [whole_loss(rows[e], step / STEPS, caps) for step in range(1, STEPS + 1)]
                for e in key
            ]
            best = np.full(CAPS + 1, np.inf)
            for steps in product(range(1, STEPS + 1), repeat=len(key) - 1):
                last = STEPS - sum(steps)
                if last >= 1:
                    total = sum(own[i][s - 1] for i, s in enumerate((*steps, last)))
                    best = np.minimum(best, total)
            tables[key] = best
        return tables[key]

    least = np.inf
    for groups in partitions(list(range(len(rows)))):
        parts = [layer(group) for group in groups]
        for split in product(range(CAPS + 1), repeat=len(parts) - 1):
            left = CAPS - sum(split)
            if left >= 0:
                least = min(least, sum(p[k] for p, k in zip(parts, (*split, left), strict=True)))
    return float(least)


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize(("budget", "least"), [(0.5, 0.25), (2.0, 0.0), (2.0, 1.0), (6.0, 2.5)])
def test_no_layers_are_much_better(seed: int, budget: float, least: float) -> None:
    rows = [{**row, "min_budget": least} for row in firm(3, seed)]
    design = design_layers(Portfolio.of(rows), budget)
    assert design.total_loss <= exhaustive(rows, budget) * (1 + 2e-3)
    assert design.total_loss <= design.one_sum_loss * (1 + 1e-9)
    assert design.certified
    assert design.total_loss == pytest.approx(min(design.losses), rel=5e-3)


def test_least_budgets_ask_for_layers_and_clicks_alone_do_not() -> None:
    """A layer gains at most what its best member would gain alone, so without them none is needed."""
    for seed in range(6):
        free = design_layers(Portfolio.of(firm(6, seed)), 3.0)
        assert len(free.layers) == 6
        assert free.saved == pytest.approx(0, abs=1e-6 * free.total_loss)
        assert free.outside == 0
    rows = [{**row, "min_budget": 1.0} for row in firm(6, 1)]
    few = design_layers(Portfolio.of(rows), 3.0)
    assert len(few.layers) <= 3
    assert few.one_sum_loss == np.inf
    assert np.isinf(few.losses[3:]).all()
    assert few.allocation.spent_nano <= 3 * 10**9
    assert (few.allocation.budgets >= 1).all()
    for layer in few.layers:
        assert sum(layer.shares) == pytest.approx(1)
    with pytest.raises(InvalidArgumentError, match="at least the largest least budget"):
        design_layers(Portfolio.of(rows), 0.9)


def test_the_loss_is_that_of_everybody() -> None:
    """Visitors outside of an experiment are not forgotten: the total is told twice."""
    rows = firm(5, 3)
    design = design_layers(Portfolio.of(rows), 2.0)
    told = 0.0
    by_id = {row["id"]: row for row in rows}
    for row in design.rows():
        told += float(whole_loss(by_id[row["id"]], row["share"], row["budget"]))
    assert design.total_loss == pytest.approx(told, rel=1e-5)
    best = sum(row["visitors"] * row["base_rate"] * row["lift"] for row in rows)
    assert design.random_loss == pytest.approx(best)


def test_visitors_who_meet_few_experiments_leave_more_to_each() -> None:
    rows = firm(6, 4)
    everything = design_layers(Portfolio.of(rows), 3.0)
    two = design_layers(Portfolio.of(rows), 3.0, meets=2)
    one = design_layers(Portfolio.of(rows), 3.0, meets=1)
    assert one.total_loss < two.total_loss <= everything.total_loss
    assert one.allocation.budgets.max() <= 3.0 + 1e-9
    largest = np.sort([layer.budget for layer in two.layers])[-2:]
    assert largest.sum() <= 3.0 + 1e-6


def test_few_experiments_a_visitor_and_least_budgets() -> None:
    rows = [{**row, "min_budget": 1.0} for row in firm(5, 6)]
    assert design_layers(Portfolio.of(rows), 2.0, meets=2).one_sum_loss < np.inf
    three = design_layers(Portfolio.of(rows), 2.0, meets=3)
    assert three.one_sum_loss == np.inf
    assert len(three.layers) <= 2
    assert (three.allocation.budgets >= 1).all()


def test_parts_that_share_no_visitor_have_the_whole_budget_each() -> None:
    rows = firm(4, 5)
    apart = design_layers(Portfolio.of(rows), 2.0, together=[["e0", "e1"], ["e2", "e3"]])
    halves = [
        design_layers(Portfolio.of(rows[:2]), 2.0),
        design_layers(Portfolio.of(rows[2:]), 2.0),
    ]
    assert apart.total_loss == pytest.approx(sum(half.total_loss for half in halves), rel=1e-6)
    assert apart.firm_budget == 2.0
    linked = design_layers(
        Portfolio.of(rows), 2.0, together=[["e0", "e1"], ["e2", "e3"], ["e1", "e2"]]
    )
    assert linked.total_loss == pytest.approx(design_layers(Portfolio.of(rows), 2.0).total_loss)


@pytest.mark.parametrize(
    ("rows", "options", "words"),
    [
        ([{"id": "a", "arms": 2, "visitors": 99}], {}, "with a base_rate"),
        ([{**firm(1, 1)[0], "group": "g"}], {}, "without them"),
        (firm(2, 1), {"meets": 0}, "meets=0"),
        (firm(2, 1), {"together": [["x"]]}, "together='x': expected ids of the portfolio"),
        (firm(2, 1), {"regime": "all"}, "regime='all'"),
    ],
)
def test_what_cannot_be_designed_is_told(
    rows: list[dict[str, Any]], options: dict[str, Any], words: str
) -> None:
    with pytest.raises(InvalidArgumentError, match=words):
        design_layers(Portfolio.of(rows), 1.0, **options)


def test_the_chart_has_every_number_of_layers() -> None:
    design = design_layers(Portfolio.of(firm(4, 2)), 2.0)
    drawn = design.chart().to_dict()
    assert str(len(design.layers)) in str(drawn)
    assert design.n_layers == (1, 2, 3, 4)

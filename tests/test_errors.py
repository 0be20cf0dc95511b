"""Bad input: one table of every public call, one of every bad kind; each names what is wrong."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from math import inf, nan
from typing import Any

import numpy as np
import pytest

import deniable as d
from deniable import _validation as check
from deniable.errors import (
    BrokenPromiseError,
    DeniableError,
    InsufficientBudgetError,
    InvalidArgumentError,
    InvalidTableError,
)

Bad = list[tuple[Any, str]]

NOT_NUMBERS: Bad = [(True, "True"), ("2", "'2'"), (None, "None"), (nan, "nan"), (1j, "1j")]
FRACTIONS: Bad = [(2.5, "2.5"), (inf, "inf"), (-inf, "-inf"), (-3, "-3")]
BAD: dict[str, tuple[str, Bad]] = {
    "arms": (
        "whole number, 2 or more",
        [*NOT_NUMBERS, *FRACTIONS, (1, "1"), (0, "0"), ([2, 1], "1"), ([True, 3], "True")],
    ),
    "one arms": ("whole number, 2", [*NOT_NUMBERS, *FRACTIONS, (1, "1"), (0, "0"), ([2], "[2]")]),
    "count": (
        "whole number, 1 or more",
        [*NOT_NUMBERS, *FRACTIONS, (0, "0"), ([5, 0.5], "0.5"), ([[1, 2], [3]], "[[1, 2], [3]]")],
    ),
    "one count": ("whole number, 1", [*NOT_NUMBERS, *FRACTIONS, (0, "0"), ([5], "[5]")]),
    "one count or None": (
        "whole number, 1",
        [*(bad for bad in NOT_NUMBERS if bad[0] is not None), *FRACTIONS, (0, "0"), ([5], "[5]")],
    ),
    "budget": (
        "finite number, 0 or more",
        [*NOT_NUMBERS, (inf, "inf"), (-1, "-1"), (-1e-300, "-1e-300"), ([1, -2.5], "-2.5")],
    ),
    "one budget": ("number", [*NOT_NUMBERS, (inf, "inf"), (-1, "-1"), ([1.0, 2.0], "[1.0, 2.0]")]),
    "given budget": ("number", [(True, "True"), (nan, "nan"), (-1, "-1"), ([1.0], "[1.0]")]),
    "risk": ("number, 0 or more", [*NOT_NUMBERS, (-1, "-1"), ([1, -2.5], "-2.5")]),
    "one risk": ("number", [*NOT_NUMBERS, (-1, "-1"), ([1.0, 2.0], "[1.0, 2.0]")]),
    "probability": (
        "from 0 to 1",
        [*NOT_NUMBERS, (-0.1, "-0.1"), (1.5, "1.5"), (inf, "inf"), ([0.5, 2], "2")],
    ),
    "one probability": ("number", [(-0.1, "-0.1"), (1.5, "1.5"), ([0.5, 0.2], "[0.5, 0.2]")]),
    "given probability": ("0", [(-0.1, "-0.1"), (1.5, "1.5"), (nan, "nan"), (True, "True")]),
    "rate": ("above 0, up to 1", [*NOT_NUMBERS, (0, "0"), (1.5, "1.5"), (-0.5, "-0.5")]),
    "arm budgets": (
        "",
        [
            ([], "[]"),
            ([1.0], "[1.0]"),
            (1.0, "1.0"),
            ([1.0, -1.5], "-1.5"),
            ([1.0, nan], "nan"),
            ([1.0, inf], "inf"),
            ([0.0, 1.0], "[0.0, 1.0]"),
            ([True, 1.0], "[True, 1.0]"),
            ([[1.0, 2.0], [3.0]], "[[1.0, 2.0], [3.0]]"),
            ("ab", "'ab'"),
            (None, "None"),
        ],
    ),
    "nano": (
        "whole number, 0 or more",
        [*NOT_NUMBERS, (0.5, "0.5"), (-1, "-1"), (inf, "inf")],
    ),
    "nanos": (
        "",
        [
            ([], "()"),
            ([1], "(1,)"),
            ([1, -1], "-1"),
            ([1, 0.5], "0.5"),
            ([True, 1], "True"),
            ([0, 1], "(0, 1)"),
        ],
    ),
    "shares": ("share", [([0.5, 0.4], "[0.5, 0.4]"), (1.0, "1.0"), ([0.2] * 5, "[0.2, ")]),
    "risks of visitors": ("0 or more", [([1, -1], "-1"), ([nan], "nan"), ([True], "True")]),
    "budgets of experiments": ("0 or more", [([1, -1], "-1"), ([nan], "nan"), ([inf], "inf")]),
}
"""Kind -> what is allowed, and bad values with how the message shows them."""

SIZES = {"n_arms": "arms", "horizon": "count", "n_segments": "count"}
BOUND = {**SIZES, "budget": "budget"}
GOOD: dict[str, Any] = {
    "n_arms": 2,
    "horizon": 1000,
    "n_segments": 2,
    "budget": 1.0,
    "clock": 10,
    "excess": 0.1,
    "risk": 1.0,
    "prior": 0.2,
    "belief": 0.4,
    "max_belief": 0.4,
    "exploration": 0.5,
    "share": 0.5,
}

CALLS: dict[str, tuple[dict[str, str], dict[str, Any]]] = {
    "ArmConstant": ({"budgets": "arm budgets"}, {}),
    "ArmDynamic": ({"budgets": "arm budgets"}, {}),
    "ArmSpecificResponse": ({"risks": "arm budgets"}, {}),
    "BudgetAccount": ({"limit": "nano"}, {}),
    "Constant": ({"budget": "one budget"}, {}),
    "Dynamic": ({"budget": "one budget"}, {}),
    "Joint": ({"budget": "one budget"}, {}),
    "RandomizedResponse": ({"n_arms": "one arms", "risk": "one risk"}, {}),
    "Tracker": ({}, {}),
    "arm_specific_constant_regret": (
        {"risks": "arm budgets", "horizon": "count", "n_segments": "count"},
        {"risks": [1, 2]},
    ),
    "arm_specific_excess": ({"risks": "arm budgets", "clock": "count"}, {"risks": [1, 2]}),
    "arm_specific_excess_linear": ({"risks": "arm budgets", "clock": "count"}, {"risks": [1, 2]}),
    "arm_specific_per_round_regret": (
        {"risks": "arm budgets", "clock": "count"},
        {"risks": [1, 2]},
    ),
    "belief_curve": ({"risk": "risk", "n_points": "one arms"}, {}),
    "best_constant_budget": (SIZES, {}),
    "best_dynamic_budget": (SIZES, {}),
    "best_table": ({"budget": "one budget"}, {"scores": [[0.1, 0.2], [0.2, 0.1]]}),
    "budget_for_belief": ({"prior": "probability", "belief": "probability"}, {}),
    "constant_budget_for_regret": ({**SIZES, "excess": "budget"}, {}),
    "constant_elasticity": (BOUND, {}),
    "constant_gain": (BOUND, {}),
    "constant_regret": (BOUND, {}),
    "constant_regret_terms": (BOUND, {}),
    "dynamic_budget_for_regret": ({**SIZES, "excess": "budget"}, {}),
    "dynamic_elasticity": (BOUND, {}),
    "dynamic_exploration": ({"n_arms": "arms", "clock": "count"}, {}),
    "dynamic_gain": (BOUND, {}),
    "dynamic_regret": (BOUND, {}),
    "dynamic_regret_terms": (BOUND, {}),
    "dynamic_regret_terms_any_segments": (BOUND, {}),
    "dynamic_risk": ({"n_arms": "arms", "clock": "count"}, {}),
    "exhaustion_clock": ({"n_arms": "arms", "budget": "budget"}, {}),
    "exhaustion_times": ({"n_arms": "one arms", "budget": "one budget"}, {"arrivals": ["a"]}),
    "expected_exhaustion_time": ({"n_arms": "arms", "budget": "budget", "share": "rate"}, {}),
    "exploration_from_risk": ({"n_arms": "arms", "risk": "risk"}, {}),
    "heterogeneity_gap": ({"risks": "arm budgets"}, {}),
    "highest_belief": ({"prior": "probability", "risk": "risk"}, {}),
    "lowest_belief": ({"prior": "probability", "risk": "risk"}, {}),
    "nano_down": ({"nats": "one budget"}, {}),
    "nano_up": ({"nats": "one budget"}, {}),
    "nonprivate_regret": (SIZES, {}),
    "parallel": ({"risks": "risks of visitors"}, {}),
    "per_round_regret": ({"n_arms": "arms", "clock": "count", "exploration": "rate"}, {}),
    "plan": (
        {
            "n_arms": "one arms",
            "horizon": "one count",
            "n_segments": "one count or None",
            "shares": "shares",
            "prior": "one probability",
            "budget": "given budget",
            "max_belief": "given probability",
            "budgets": "budgets of experiments",
        },
        {"budgets": [1.0], "shares": None},
    ),
    "plan_arms": (
        {
            "arm_budgets": "arm budgets",
            "horizon": "one count",
            "n_segments": "one count",
            "prior": "one probability",
        },
        {"arm_budgets": [1, 2]},
    ),
    "risk_from_exploration": ({"n_arms": "arms", "exploration": "rate"}, {}),
    "sequential": ({"budgets": "budgets of experiments"}, {}),
}
"""Public name -> the kind of each argument, and good values that GOOD does not have."""

NOT_CALLED = {"Plan", "RegretTerms"}
"""Results, which the package makes and nobody calls."""


def test_every_public_call_is_in_the_table() -> None:
    layers = ("strategies.arm", "strategies.con", "strategies.dyn", "strategies.joint", "planning.")
    names = {n for home, ns in d._HOME.items() if home.startswith(layers) for n in ns}
    names |= {*d.theory.__all__, *d.privacy.__all__}
    assert names == set(CALLS) | NOT_CALLED


ROWS = [
    pytest.param(name, argument, bad, shown, BAD[kind][0], id=f"{name}-{argument}-{shown}")
    for name, (arguments, _) in CALLS.items()
    for argument, kind in arguments.items()
    for bad, shown in BAD[kind][1]
]


@pytest.mark.parametrize(("name", "argument", "bad", "shown", "allowed"), ROWS)
def test_bad_input(name: str, argument: str, bad: Any, shown: str, allowed: str) -> None:
    arguments, extra = CALLS[name]
    good = {other: GOOD[other] for other in arguments if other in GOOD} | extra
    _refused(lambda: _public(name)(**good | {argument: bad}), argument, shown, allowed)


def _public(name: str) -> Callable[..., Any]:
    """The name at the top, or in `deniable.theory`, `deniable.privacy`, `deniable.portfolio`."""
    homes = (d, d.theory, d.privacy, d.portfolio)
    call: Callable[..., Any] = next(getattr(h, name) for h in homes if name in h.__all__)
    return call


def _refused(call: Callable[[], Any], argument: str, shown: str, allowed: str) -> None:
    with pytest.raises(InvalidArgumentError) as caught:
        call()
    error = caught.value
    assert isinstance(error, ValueError)
    assert error.argument == argument
    assert shown in str(error)
    assert str(error).startswith(f"{argument}=")
    assert allowed in error.allowed
    assert len(error.allowed) > 5
    assert str(error).endswith(f": expected {error.allowed}")
    assert "\n" not in str(error)


STRATEGY, RESPONSE = d.Dynamic(1.0), d.privacy.ArmSpecificResponse([1, 2])
ARMS = d.ArmDynamic([1, 2])
TRACKER = d.privacy.Tracker([[0.6, 0.4], [0.3, 0.7]])
SHOWN = [[0.6, 0.4], [0.3, 0.7]]


@pytest.mark.parametrize(
    ("call", "argument", "shown", "allowed"),
    [
        (lambda: STRATEGY.risk(0, 3), "clock", "0", "1 or more"),
        (lambda: STRATEGY.exploration([1, 2.5], 3), "clock", "2.5", "1 or more"),
        (lambda: STRATEGY.mechanism(0, 3), "clock", "0", "1 or more"),
        (lambda: d.Constant(1).risk(nan, 2), "clock", "nan", "1 or more"),
        (lambda: ARMS.arm_risks(0), "clock", "0", "1 or more"),
        (lambda: ARMS.mechanism(1.5), "clock", "1.5", "1 or more"),  # type: ignore[arg-type]
        (lambda: RESPONSE.shown_distribution(2), "greedy", "2", "0 to 1"),
        (lambda: RESPONSE.shown_distribution(-1), "greedy", "-1", "0 to 1"),
        (lambda: d.privacy.RandomizedResponse(3, 1).shown_distribution(3), "greedy", "3", "0 to 2"),
        (lambda: d.privacy.BudgetAccount(5).debit(-1), "amount", "-1", "0 or more"),
        (lambda: d.privacy.BudgetAccount(5).debit(True), "amount", "True", "0 or more"),
        (lambda: d.budget_for_belief(0.5, 0.4), "belief", "0.4", "from the prior to 1"),
        (lambda: d.privacy.parallel([[1.0, 2.0]]), "risks", "[1.0, 2.0]", "one number"),  # type: ignore[list-item]
        (
            lambda: d.privacy.Tracker([[0.5], [0.5]]),
            "shown_given_segment",
            "[[0.5], [0.5]]",
            "2 or more arms",
        ),
        (lambda: d.privacy.Tracker([[0.5, 0.6]]), "shown_given_segment", "0.6", "sum to 1"),
        (
            lambda: d.privacy.Tracker([]),
            "shown_given_segment",
            "[]",
            "1 or more segments",
        ),
        (lambda: d.privacy.Tracker([[1.5, -0.5]]), "shown_given_segment", "1.5", "0 to 1"),
        (lambda: d.privacy.Tracker(SHOWN, [[0.5]]), "click_given_shown", "[[0.5]]", "(2, 2)"),
        (
            lambda: d.privacy.Tracker(SHOWN, sees_response=True),
            "click_given_shown",
            "None",
            "click rates",
        ),
        (
            lambda: d.privacy.Tracker(SHOWN, SHOWN, sees_output=False, sees_response=True),
            "sees_response",
            "True",
            "false while",
        ),
        (lambda: TRACKER.update([0.5, 0.6], shown_arm=0), "prior", "0.6", "sum to 1"),
        (lambda: TRACKER.update([1.0], shown_arm=0), "prior", "[1.0]", "2 probabilities"),
        (lambda: TRACKER.update([0.5, 0.5], shown_arm=2), "shown_arm", "2", "0 to 1"),
        (lambda: TRACKER.output_factor(shown_arm=0, segment=2, other=0), "segment", "2", "0 to 1"),
        (lambda: TRACKER.output_factor(shown_arm=0, segment=0, other=-1), "other", "-1", "0 to 1"),
        (lambda: check.distinct("arms", [], 2), "arms", "()", "2 or more"),
        (lambda: check.distinct("arms", ["a"], 2), "arms", "('a',)", "2 or more"),
        (lambda: check.distinct("arms", ["a", "b", "a"], 2), "arms", "'a', 'b', 'a'", "differ"),
        (lambda: check.distinct("arms", ["a", ""], 2), "arms", "('a', '')", "not empty"),
        (lambda: check.distinct("arms", ["a", None], 2), "arms", "None", "not empty"),
    ],
)
def test_bad_input_to_methods_and_shapes(
    call: Callable[[], Any], argument: str, shown: str, allowed: str
) -> None:
    _refused(call, argument, shown, allowed)


@pytest.mark.parametrize(
    ("good", "value"),
    [
        (lambda: d.theory.nonprivate_regret(2, 1e6), 1_000_000),
        (lambda: d.theory.nonprivate_regret(np.int64(2), np.float32(1e6)), 1_000_000),
        (lambda: d.theory.nonprivate_regret(2, 10**25), 10**25),
    ],
)
def test_whole_numbers_in_any_type_are_fine(good: Callable[[], Any], value: int) -> None:
    assert float(good()) == pytest.approx(
        float(d.theory.nonprivate_regret(2, float(value))), rel=1e-15
    )


def test_integers_beyond_all_floats_are_refused_not_overflown() -> None:
    _refused(lambda: d.theory.nonprivate_regret(2, 10**400), "horizon", "1000000", "whole number")


def test_long_values_are_cut() -> None:
    error = InvalidArgumentError("arms", list(range(10_000)), "fewer")
    assert len(str(error)) < 100
    assert error.value == list(range(10_000))


def test_the_tree() -> None:
    assert issubclass(InvalidArgumentError, DeniableError)
    assert issubclass(InvalidArgumentError, ValueError)
    assert issubclass(InvalidTableError, DeniableError)
    assert issubclass(InvalidTableError, ValueError)
    assert issubclass(InsufficientBudgetError, DeniableError)
    assert issubclass(BrokenPromiseError, DeniableError)


@pytest.mark.parametrize(
    "error",
    [
        InvalidArgumentError("n_arms", 1, "a whole number, 2 or more"),
        InvalidTableError([(2, "row 2 (b): visitors is missing")]),
        InsufficientBudgetError(remaining=500_000_000, requested=10**9),
        BrokenPromiseError("a table exceeds its budget"),
    ],
)
def test_errors_survive_a_process_boundary(error: DeniableError) -> None:
    copy = pickle.loads(pickle.dumps(error))
    assert type(copy) is type(error)
    assert str(copy) == str(error)
    assert vars(copy) == vars(error)

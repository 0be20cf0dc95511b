"""Worlds on which learners are compared: what they are, and that a better learner is seen."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest

from deniable.simulation.kernels.epochs import NextTable
from research import learners
from research.__main__ import main
from research.learners import SETS, Array, Case, share


def test_worlds_are_what_their_names_say() -> None:
    for case in SETS["near"]():
        assert (case.rates.min(axis=0) >= 0.8 * case.rates.max(axis=0)).all()
        assert case.horizon >= 100_000
    for case in SETS["favourites"]():
        assert len(set(case.rates.argmax(axis=0))) == case.rates.shape[1]
    for name in SETS:
        again = SETS[name]()
        for case, same in zip(SETS[name](), again, strict=True):
            assert np.array_equal(case.rates, same.rates)
            assert case.shares.sum() == pytest.approx(1)


def test_labels_keep_no_more_than_the_formula_says() -> None:
    """MATH-mask M6: the limit's share of perfect information, for exchangeable differences."""
    h, size = 0.8, 4
    for budget in (1, 2, 3):
        cases = [case for case in SETS["labels"]() if case.name == f"budget {budget}"]
        gain = sum(
            float((case.rates.max(axis=0) - case.rates.mean(axis=0)) @ case.shares)
            for case in cases
        )
        lam = (np.exp(budget) - 1) / (np.exp(budget) + size - 1)
        expected = np.sqrt(1 - h + h / size * (1 + (size - 1) * lam**2))
        known = sum(case.possible or 0.0 for case in cases)
        assert gain / known == pytest.approx(expected, abs=0.02)


def always(table: Array, case: Case) -> NextTable:
    return lambda shows, clicks: table


def test_perfect_rows_gain_everything_and_random_rows_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rates = np.array([[0.5, 0.1], [0.1, 0.5]])
    after = rates[::-1]
    case = Case("two", rates, 20_000, np.array([0.5, 0.5]), later=after)
    tables = {"best": np.eye(2), "worst": np.eye(2)[::-1], "even": np.full((2, 2), 0.5)}
    for name in tables:
        monkeypatch.setitem(learners.LEARNERS, name, partial(always, tables[name]))
    assert share(case, "even", 0, 0) == pytest.approx(0, abs=3)
    assert share(case, "best", 0, 0) == pytest.approx(0, abs=3)  # best, then worst
    still = Case("two", rates, 20_000, np.array([0.5, 0.5]))
    assert share(still, "best", 0, 0) > 99
    assert share(still, "worst", 0, 0) < -99


def test_the_command_prints_a_table(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    two = Case("two arms", np.array([[0.5, 0.5], [0.1, 0.1]]), 1000, np.array([0.5, 0.5]))
    monkeypatch.setitem(SETS, "favourites", lambda: [two])
    assert main(["learners", "favourites", "--repetitions", "2"]) == 0
    printed = capsys.readouterr().out
    assert "| two arms |" in printed
    assert main(["learners", "nothing"]) == 2

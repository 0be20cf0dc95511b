"""Nightly audits: sound experiments stay acquitted over all their nights, planted faults do not."""

from __future__ import annotations

import math
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from scipy.stats import binom
from tests.audit.bandit import Bandit, Fault, larger_excess, leaks_segment, promise

from deniable.audit.draws import compare_draws, compare_rows
from deniable.audit.evidence import (
    ALPHA,
    COUNTS_ALPHA,
    DRAWS_ALPHA,
    LOTTERY_ALPHA,
    Cells,
    arrays,
    cells_of,
    evidence,
    lottery_evidence,
)
from deniable.audit.promise import AuditedTable, Lottery, Promise
from deniable.audit.report import audit
from deniable.audit.trackers import proven_risk
from deniable.privacy.exact import SPACE

FIRST = ((10, 10, 10), (10, 10, 10))


def published(budget: float = 1.0, tables: int = 3) -> Promise:
    """A promise with tables in which the likeliest arm of each segment changes."""
    promised = promise(budget, strategy="constant")
    made = []
    for number in range(1, tables + 1):
        rewards = tuple(
            tuple(5 if arm == (number + segment) % 3 else 1 for arm in range(3))
            for segment in range(2)
        )
        made.append(AuditedTable(number, 1, promised.made(1, FIRST, rewards), FIRST, rewards))
    return replace(promised, tables=tuple(made))


def test_the_levels_add_up_to_one_in_a_thousand() -> None:
    assert pytest.approx(ALPHA) == DRAWS_ALPHA + LOTTERY_ALPHA + COUNTS_ALPHA == 1e-3


def test_the_mean_e_value_of_all_outcomes_is_one() -> None:
    """Every outcome of five visitors, its exact probability times the e-value the audit computes."""
    promised = published(1.0, tables=2)
    rows = [(1, 0), (1, 1), (2, 0), (2, 1), (1, -1)]
    mean = 0.0
    for outcome in np.ndindex(*(3,) * len(rows)):
        chance = Fraction(1)
        cells: dict[tuple[int, int, int, int], int] = {}
        for (number, segment), arm in zip(rows, outcome, strict=True):
            chance *= Fraction(promised.tables[number - 1].table.row(segment)[arm], SPACE)
            cell = (number, 0, segment, int(arm))
            cells[cell] = cells.get(cell, 0) + 1
        p, shows = arrays(promised, cells)
        mean += float(chance) * math.exp(_log_e(p, shows))
    assert mean == pytest.approx(1.0, rel=1e-9)


def _log_e(p: np.ndarray, shows: np.ndarray) -> float:
    from deniable.inference.e_values import draw_evidence
    from deniable.inference.state import VisitorBatch

    nothing = np.zeros_like(p[0])
    return draw_evidence(
        [VisitorBatch(a, b, nothing) for a, b in zip(p, shows, strict=True)]
    ).log_e_value


def nights(rng: np.random.Generator, tilt: float = 0.0, visitors: int = 100) -> list[Cells]:
    """The cells after each of 40 nights: which table serves depends on what was shown so far."""
    promised = published()
    cells: dict[tuple[int, int, int, int], int] = {}
    found: list[Cells] = []
    number = 1
    for _ in range(40):
        for segment in range(2):
            row = np.array(promised.tables[number - 1].table.row(segment), dtype=float) / SPACE
            odds = row * np.exp(tilt * (row == row.max()))
            shown = rng.multinomial(visitors // 2, odds / odds.sum())
            for arm, count in enumerate(shown.tolist()):
                cell = (number, 0, segment, arm)
                cells[cell] = cells.get(cell, 0) + count
        found.append(dict(cells))
        first_arm = sum(count for cell, count in cells.items() if cell[3] == 0)
        number = 1 + first_arm % 3  # as hostile as publishing may be: it looks at the draws
    return found


def test_nightly_audits_together_accuse_a_sound_experiment_once_in_a_thousand() -> None:
    """120 lives of 40 nights. Chi-squares accuse many times as often as their level says."""
    rng = np.random.default_rng(20)
    promised, accused, by_chi_square = published(), 0, 0
    numbers = [table.number for table in promised.tables]
    threshold = -math.log(DRAWS_ALPHA)
    for _ in range(120):
        life = [arrays(promised, cells) for cells in nights(rng)[::2]]
        accused += any(_log_e(*cells) >= threshold for cells in life)
        by_chi_square += any(compare_rows(numbers, *cells).adjusted < 0.05 for cells in life)
    # At most 0.0008 each: 4 or more of 120 would come by chance less than once in 10^5.
    assert binom.sf(3, 120, DRAWS_ALPHA) < 1e-5
    assert accused <= 3
    # Planted: an audit that accused by nightly chi-squares at 0.05 would break its own level.
    assert binom.sf(18, 120, 0.05) < 1e-4
    assert by_chi_square > 18


def test_a_planted_excess_is_found_with_the_power_that_the_audit_states() -> None:
    """At the stated excess, at least 99% of experiments are accused; 60 of 60 are, 58 would do."""
    rng = np.random.default_rng(21)
    stated = evidence(published(), nights(rng)[-1]).power.overall
    assert stated is not None
    found = [
        evidence(published(), nights(rng, tilt=stated.tilt)[-1]).draws_accuse for _ in range(60)
    ]
    assert sum(found) >= 57
    assert binom.cdf(56, 60, 0.99) < 1e-2
    weaker = [
        evidence(published(), nights(rng, tilt=stated.tilt / 4)[-1]).draws_accuse for _ in range(20)
    ]
    assert sum(weaker) < 10  # the statement is about this excess, not about every excess


def test_more_draws_have_more_power() -> None:
    rng = np.random.default_rng(22)
    few, many = (
        evidence(published(), nights(rng, visitors=size)[-1]).power for size in (100, 2_000)
    )
    assert few.overall is not None
    assert many.overall is not None
    assert few.overall.tilt > 3 * many.overall.tilt
    assert "nats with 99%" in many.words
    none = evidence(published(), {(1, 0, 0, 0): 1}).power
    assert "no power" in none.words


@pytest.mark.parametrize("fault", [larger_excess(0.1), leaks_segment(0.15)])
def test_faults_of_a_learning_experiment_are_found(fault: Fault) -> None:
    promised, log = Bandit(promise(1.0), fault=fault).log(15_000)
    assert evidence(promised, cells_of(log)).draws_accuse
    assert not evidence(*_sound(15_000)).draws_accuse


def _sound(visitors: int) -> tuple[Promise, Cells]:
    promised, log = Bandit(promise(1.0)).log(visitors)
    return promised, cells_of(log)


def roles(rng: np.random.Generator, shares: list[list[float]], visitors: int) -> Cells:
    """New visitors of each segment by role: member, other slot, holdout."""
    cells: dict[tuple[int, int, int, int], int] = {}
    for segment, share in enumerate(shares):
        for role, count in enumerate(rng.multinomial(visitors, share).tolist()):
            cells[1, role, segment, 0] = count
    return cells


def test_the_lottery() -> None:
    """600 of 1,000 slots, a tenth held out: members 54%, other slots 40%, holdouts 6%."""
    rng = np.random.default_rng(23)
    lottery, threshold = Lottery(slots=600, holdout=100), -math.log(LOTTERY_ALPHA)
    fair = [0.54, 0.40, 0.06]
    sound = [lottery_evidence(roles(rng, [fair, fair], 2_000), lottery) for _ in range(300)]
    assert max(sound) < threshold
    by_segment = roles(rng, [[0.60, 0.34, 0.06], [0.48, 0.46, 0.06]], 2_000)
    assert lottery_evidence(by_segment, lottery) > threshold
    first_come = roles(rng, [[0.94, 0.0, 0.06], [0.94, 0.0, 0.06]], 200)
    assert lottery_evidence(first_come, lottery) > threshold
    no_holdout = roles(rng, [[0.60, 0.40, 0.0], [0.60, 0.40, 0.0]], 2_000)
    assert lottery_evidence(no_holdout, lottery) > threshold


def test_without_layer_and_holdout_nobody_may_be_left_out() -> None:
    assert lottery_evidence({(1, 0, 0, 0): 50}, Lottery(1000, 0)) == 0.0
    assert lottery_evidence({(1, 0, 0, 0): 50, (1, 1, 0, 0): 1}, Lottery(1000, 0)) == math.inf


def test_counts_alone_hold_at_all_looks() -> None:
    """Twelve looks at 20 sound experiments that use their whole budget."""
    for seed in range(20):
        promised, log = Bandit(promise(1.0, strategy="constant"), seed=seed).log(500)
        for end in range(20, 501, 40):
            part = log.where(np.arange(log.size) < end)
            found = proven_risk(promised, part, COUNTS_ALPHA, every_look=True)
            assert not found.exceeds
    wider = proven_risk(promised, log, COUNTS_ALPHA, every_look=True)
    assert wider.nats <= proven_risk(promised, log, COUNTS_ALPHA).nats


def test_rows_agree_with_scipy() -> None:
    from scipy.stats import chisquare

    promised, log = Bandit(promise(2.0, strategy="constant")).log(4_000)
    p, shows = arrays(promised, cells_of(log))
    found = compare_rows([t.number for t in promised.tables], p, shows)
    tails = [
        chisquare(seen, chance * seen.sum()).pvalue
        for table, observed in zip(p, shows, strict=True)
        for chance, seen in zip(table, observed, strict=True)
        if seen.sum() and (chance * seen.sum()).min() >= 5
    ]
    assert found.tested == len(tails)
    assert found.least == pytest.approx(min(tails), rel=1e-9)
    assert len(compare_draws(promised, log)) == 4


def test_erased_visitors_stay_part_of_the_evidence() -> None:
    """Those who were shown the first arm ask to be forgotten: what is left looks biased."""
    bandit = Bandit(promise(1.0, strategy="constant"))
    promised, log = bandit.log(5_000)
    keeps = (log.shown != 0) | (np.arange(log.size) % 2 == 0)
    rest, erased = log.where(keeps), int((~keeps).sum())
    counted = cells_of(log)
    assert audit(promised, rest, counted=counted, erased=erased).sound
    assert not audit(promised, rest).sound  # the test's own power
    hidden = audit(promised, rest, counted=counted, erased=erased - 1)
    assert "counters and decisions" in hidden.verdict

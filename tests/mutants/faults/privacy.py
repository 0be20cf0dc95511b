"""Faults of the mechanisms, tables, beliefs and accounts."""

from __future__ import annotations

from tests.mutants.fault import Fault

TESTS = "tests/privacy"
TABLES = (f"{TESTS}/test_tables.py",)
DRAWS = "tests/service/test_draws.py"
COMPOSITION = (f"{TESTS}/test_composition.py",)
BELIEF = (f"{TESTS}/test_belief.py",)
TRACKER = (f"{TESTS}/test_tracker.py",)
SCHEDULE = (f"{TESTS}/test_schedule.py",)
MECHANISM = (f"{TESTS}/test_mechanism.py",)
JOINT = (f"{TESTS}/test_joint_table.py",)
GROWING = "tests/promise/test_growing.py"

FAULTS = (
    Fault(
        "privacy/tables.py",
        "            if ratio > exp_floor(budget):",
        "            if ratio > 2 * exp_floor(budget):",
        "a table may exceed its budget by a factor of two",
        TABLES,
    ),
    Fault(
        "privacy/tables.py",
        "columns = zip(*self.rows, self.unlisted, strict=True)",
        "columns = zip(*self.rows, strict=True)",
        "unlisted segments do not count in the worst ratio",
        TABLES,
    ),
    Fault(
        "privacy/tables.py",
        "floors = [max(1, -(-SPACE * weight // (one + total))) for weight in weights]",
        "floors = [max(1, SPACE * weight // (one + total)) for weight in weights]",
        "floors are rounded down",
        TABLES,
    ),
    Fault(
        "privacy/tables.py",
        "return self.rows[segment] if segment >= 0 else self.unlisted",
        "return self.rows[segment]",
        "an unlisted visitor gets the last segment's row",
        TABLES,
    ),
    Fault(
        "privacy/tables.py",
        "plain[arm] += share + (place < odd)",
        "plain[arm] += share + odd * (place == 0) + (place < 0)",
        "the odd units of a tie all go to one arm",
        equivalent="a tie of two arms has at most one odd unit, and with more the sum and the band "
        "hold all the same: which tied arm has a few units of 2^-64 is no promise",
    ),
    Fault(
        "privacy/tables.py",
        "lead = rewards[arm] * best_shows - best_reward * (shows[arm] or 1)",
        "lead = rewards[arm] - best_reward",
        "the greedy arm has the most rewards, not the highest rate",
        TABLES,
    ),
    Fault(
        "privacy/tables.py",
        "return -(-(power.denominator << _PRECISION) // (power.numerator - power.denominator))",
        "return (power.denominator << _PRECISION) // (2 * power.numerator - power.denominator)",
        "the odds of the neutral row are wrong",
        TABLES,
    ),
    Fault(
        "privacy/tables.py",
        "room = 1 - rate ** (Decimal(1) / 3)",
        "room = 1 - rate ** (Decimal(1) / 2)",
        "dynamic exploration falls with the square root",
        TABLES,
    ),
    Fault(
        "privacy/tables.py",
        "return ends + [SPACE] * ((1 << steps) - 1 - len(ends))",
        "return ends",
        "searches take a number of steps that depends on the outcome",
        (f"{DRAWS}::test_every_search_compares_equally_often",),
    ),
    Fault(
        "privacy/composition.py",
        "return math.ceil(_as_typed(nats) * NANO)",
        "return math.floor(_as_typed(nats) * NANO)",
        "debits are rounded down",
        COMPOSITION,
    ),
    Fault(
        "privacy/composition.py",
        "return math.floor(_as_typed(nats) * NANO)",
        "return math.ceil(_as_typed(nats) * NANO)",
        "limits are rounded up",
        COMPOSITION,
    ),
    Fault(
        "privacy/composition.py",
        "if wanted > self._limit - self._spent:",
        "if wanted > self._limit:",
        "each debit may use the whole limit",
        COMPOSITION,
    ),
    Fault(
        "privacy/belief.py",
        'posterior = p / (p + (1 - p) * np.exp(-check.risk("risk", risk)))',
        'posterior = p / (p + (1 - p) * np.exp(-0.5 * check.risk("risk", risk)))',
        "the highest belief moves by half the risk",
        BELIEF,
    ),
    Fault(
        "privacy/belief.py",
        "budget = (np.log(q) - np.log(p)) + (np.log1p(-p) - np.log1p(-q))",
        "budget = np.log(q) - np.log(p)",
        "the budget for a belief is a ratio of beliefs, not of odds",
        BELIEF,
    ),
    Fault(
        "privacy/belief.py",
        "return np.asarray(rates if clicked else 1 - rates)",
        "return np.asarray(rates)",
        "the tracker reads no click as a click",
        TRACKER,
    ),
    Fault(
        "privacy/belief.py",
        "return column if self.sees_output else np.ones_like(column)",
        "return column",
        "a tracker that sees no output sees it",
        TRACKER,
    ),
    Fault(
        "privacy/exploration.py",
        "return np.where(n < 3, 1.0, np.minimum(1.0, raw))",
        "return np.minimum(1.0, raw)",
        "the first visitor has infinite risk",
        SCHEDULE,
    ),
    Fault(
        "privacy/exploration.py",
        "return check.unwrap(np.ceil(np.asarray(exhaustion_root(n_arms, budget))))",
        "return check.unwrap(np.floor(np.asarray(exhaustion_root(n_arms, budget))))",
        "the budget binds one visitor too early",
        SCHEDULE,
    ),
    Fault(
        "privacy/mechanism.py",
        "return float(self.risks.max())",
        "return float(self.risks.mean())",
        "the risk of budgets by arm is their mean",
        MECHANISM,
    ),
    Fault(
        "privacy/mechanism.py",
        "floor = np.full((self.n_arms, self.n_arms), self.exploration / self.n_arms)",
        "floor = np.full((self.n_arms, self.n_arms), self.exploration / (self.n_arms - 1))",
        "exploration never shows the greedy arm",
        MECHANISM,
    ),
    Fault(
        "privacy/joint_table.py",
        "least = SMALLEST if max(parts) >= SMALLEST else 0",
        "least = 0 if max(parts) >= SMALLEST else 0",
        "an arm is shown to some segments and never to others",
        JOINT,
    ),
    Fault(
        "privacy/joint_table.py",
        "if low < 0 or high * bound.denominator > low * bound.numerator:",
        "if low < 0 or high * bound.denominator > 2 * low * bound.numerator:",
        "joint tables may exceed the budget by a factor of two",
        JOINT,
    ),
    Fault(
        "privacy/tables.py",
        "rows = table.rows + (table.unlisted,) * (n_segments - then_segments)",
        "rows = table.rows + table.rows[:1] * (n_segments - then_segments)",
        "a segment that was added is served from another's row until the next table",
        (f"{GROWING}::test_a_new_segment_is_unlisted_until_the_next_table",),
    ),
    Fault(
        "privacy/tables.py",
        "return Table(tuple(row + later_arms for row in rows), table.unlisted + later_arms)",
        "return Table(tuple(later_arms + row for row in rows), later_arms + table.unlisted)",
        "arms that were added take the places of the first ones",
        (
            "tests/privacy/test_stored_table.py::"
            "test_a_table_is_widened_by_nothing_but_zeros_and_its_zero_row",
        ),
    ),
)

"""Faults of the audit: lines between kept and broken, and what is compared."""

from __future__ import annotations

from tests.mutants.fault import Fault

TESTS = "tests/audit"
LINES = f"{TESTS}/test_thresholds.py"
REPORT = f"{TESTS}/test_report.py"
UNLISTED = "test_an_unlisted_visitor_served_uniformly_would_break_budgets_by_arm"
CUTS = "tests/service/test_cuts.py"
GROWING = "tests/promise/test_growing.py"

FAULTS = (
    Fault(
        "audit/evidence.py",
        "return self.draws >= -math.log(DRAWS_ALPHA)",
        "return self.draws >= -math.log(DRAWS_ALPHA / 1e6)",
        "draws are accused at a millionth of their level",
        (LINES,),
    ),
    Fault(
        "audit/evidence.py",
        "self.lottery >= -math.log(LOTTERY_ALPHA)",
        "self.lottery >= -math.log(LOTTERY_ALPHA / 1e6)",
        "a lottery is accused at a millionth of its level",
        (LINES,),
    ),
    Fault(
        "audit/evidence.py",
        "= 0.8 * ALPHA, 0.1 * ALPHA, 0.1 * ALPHA",
        "= ALPHA, ALPHA, ALPHA",
        "every check has the whole chance of a false accusation",
        (LINES,),
    ),
    Fault(
        "audit/checks.py",
        "min(1.0, least.p_value * len(segments))",
        "min(1.0, least.p_value * len(segments) ** 3)",
        "the smallest p-value of the segments is corrected too much",
        (LINES,),
    ),
    Fault(
        "audit/checks.py",
        '"kept" if arm.moved <= budget + ROUNDING else "broken"',
        '"kept" if arm.moved <= 1.05 * budget + ROUNDING else "broken"',
        "a tracker may move by 5% more than promised",
        (LINES,),
    ),
    Fault(
        "audit/checks.py",
        "        int((arms > 1).sum()),",
        "        int((arms > 2).sum()),",
        "a visitor may have two arms",
        (f"{REPORT}::test_a_second_arm_for_one_visitor_is_caught",),
    ),
    Fault(
        "audit/checks.py",
        "        int((named != log.version).sum()),",
        "        int((named > log.version).sum()),",
        "a decision may name a table of an earlier version",
        (f"{REPORT}::test_a_decision_that_names_a_table_of_another_version_is_caught",),
    ),
    Fault(
        "audit/exact.py",
        "return self.promised_ratio is not None and self.promised_ratio <= self.bound",
        "return self.promised_ratio is not None and self.promised_ratio <= 1.05 * self.bound",
        "a table may exceed its bound by 5%",
        (LINES,),
    ),
    Fault(
        "audit/exact.py",
        "return max(self.ratio, self.ratio_across_time)",
        "return self.ratio",
        "a promise across time is checked table by table",
        (LINES,),
    ),
    Fault(
        "audit/exact.py",
        "[(*table.rows, table.unlisted)] if promise.bounded",
        "[table.rows] if promise.bounded",
        "the row of unlisted segments is not looked at",
        (f"{TESTS}/test_exact.py::{UNLISTED}",),
    ),
    Fault(
        "audit/exact.py",
        "published.number for published in mine if replay and not promise.replays(published)",
        "published.number for published in mine if False",
        "tables need not follow from their counts",
        (f"{TESTS}/test_exact.py::test_a_table_that_does_not_follow_from_its_counts_is_caught",),
    ),
    Fault(
        "audit/trackers.py",
        "low, high = limits(counts, alpha / max(n_intervals, 1))",
        "low, high = limits(counts, alpha)",
        "the limits of many cells are not corrected",
        (f"{LINES}::test_what_counts_prove_is_corrected_for_all_that_is_compared",),
    ),
    Fault(
        "audit/trackers.py",
        "return self.nats > self.budget",
        "return self.nats > 2 * self.budget",
        "counts must prove twice the budget",
        (f"{LINES}::test_counts_contradict_a_promise_from_just_above_it",),
    ),
    Fault(
        "audit/decisions.py",
        "return np.where(self.role == MEMBER, self.segment, NEUTRAL)",
        "return self.segment",
        "non-members are compared with their segment's row",
        (f"{LINES}::test_only_members_are_compared_with_their_segments_row",),
    ),
    Fault(
        "audit/trackers.py",
        "others = (total - joint) / (1 - before)",
        "others = total",
        "odds are compared with everybody's probability",
        (f"{REPORT}::test_beliefs_are_bayes_rule",),
    ),
    Fault(
        "audit/promise.py",
        "if any(row != published.table.unlisted for row in published.table.rows[rows:]):",
        "if any(len(row) != len(published.table.unlisted) for row in published.table.rows[rows:]):",
        "rows of segments that came later may be anything",
        (f"{GROWING}::test_tables_that_were_widened_otherwise_are_accused",),
    ),
    Fault(
        "audit/promise.py",
        "        if not self._has_its_shape(published):\n            return False\n",
        "",
        "a table may list other segments and arms than the chain",
        (f"{GROWING}::test_tables_of_another_shape_than_the_chain_says_are_accused",),
    ),
    Fault(
        "audit/checks.py",
        "int((log.table < since[log.segment] - 1).sum()),",
        "int((log.table < since[log.segment] - 100).sum()),",
        "decisions may name a segment that was not listed yet",
        (f"{GROWING}::test_a_decision_of_a_segment_before_it_was_listed_is_accused",),
    ),
    Fault(
        "audit/recount.py",
        "self._behind += int((tables < newest[:-1]).sum())",
        "self._behind += int((tables < newest[:-1] - 1).sum())",
        "a decision may name the previous table",
        (f"{CUTS}::test_a_decision_that_names_an_older_table_than_the_one_before_is_found",),
    ),
    Fault(
        "audit/recount.py",
        "most = due_at(most, self._promise.epochs(table)) - 1",
        "most = due_at(most, self._promise.epochs(table))",
        "a writer may serve an old table for one decision longer",
        (f"{CUTS}::test_a_writer_that_never_serves_the_newer_table_is_found_without_a_clock",),
    ),
    Fault(
        "service/rehearsal.py",
        "for point in (ends[arm] - row[arm], ends[arm] - 1)]",
        "for point in (ends[arm] - row[arm], ends[arm] - row[arm])]",
        "the last points of an arm's range are not looked at",
        ("tests/service/test_rehearsal.py",),
    ),
    Fault(
        "service/audits.py",
        "count = sum(tombstone(key, visitor) in stones for visitor in members)",
        "count = 0",
        "erased visitors who were drawn for again are not counted",
        ("tests/audit/faults/test_faults.py",),
    ),
)

"""Faults of the analysis: what is told of an experiment, and what is hidden."""

from __future__ import annotations

from tests.mutants.fault import Fault

TESTS = "tests/analysis"
RISK = f"{TESTS}/test_segment_risk.py"
HIDING = (f"{RISK}::test_a_small_group_is_never_hidden_alone",)
LEADERBOARD = (f"{TESTS}/test_leaderboard.py",)
MONITOR = "tests/web/test_monitor.py"
GROWING = "tests/promise/test_growing.py"

FAULTS = (
    Fault(
        "analysis/small_cells.py",
        "if visible and len(smallest) - len(visible) == 1:",
        "if False:",
        "a lone small segment follows from the total",
        HIDING,
    ),
    Fault(
        "analysis/small_cells.py",
        "SMALLEST_CELL = 30",
        "SMALLEST_CELL = 3",
        "figures on three visitors are told",
        HIDING,
    ),
    Fault(
        "analysis/small_cells.py",
        "if visible and len(smallest) - len(visible) == 1:",
        "if visible and len(smallest) - len(visible) + (0 < shows[-1].sum() < 30) == 1:",
        "one unlisted visitor hides a listed segment",
        HIDING,
    ),
    Fault(
        "analysis/small_cells.py",
        "smallest = shows[:-1, np.asarray(active)].min(axis=1)",
        "smallest = shows[:-1, np.asarray(active)].max(axis=1)",
        "a segment is told whose rarest arm few were shown",
        HIDING,
    ),
    Fault(
        "analysis/segment_risk.py",
        "return math.log(max(ratios) / min(ratios))",
        "return math.log(max(ratios))",
        "the told risk is too small",
        (f"{RISK}::test_the_told_risk_is_that_of_the_theory",),
    ),
    Fault(
        "analysis/leaderboard.py",
        "for share in (0.025, 0.975))",
        "for share in (0.25, 0.75))",
        "the interval of an arm holds half of the belief",
        LEADERBOARD,
    ),
    Fault(
        "analysis/leaderboard.py",
        "contending = np.where(self._on, posterior, -1.0)",
        "contending = posterior",
        "an arm that is off can be the best",
        LEADERBOARD,
    ),
    Fault(
        "analysis/leaderboard.py",
        "return float((self.shows * np.maximum(best - rates, 0)).sum())",
        "return float(np.maximum(best - rates, 0).sum())",
        "clicks lost do not depend on visitors",
        LEADERBOARD,
    ),
    Fault(
        "analysis/result_health.py",
        "SUSPICIOUS = 1e-6",
        "SUSPICIOUS = 1e-60",
        "a planted fault is not noticed",
        (
            f"{MONITOR}::test_chance_is_not_suspicious_and_nine_deviations_are",
            f"{MONITOR}::test_a_planted_fault_is_noticed_and_told",
        ),
    ),
    Fault(
        "analysis/evidence.py",
        "experiment, (n_segments, n_arms) = evidence.experiment, evidence.began_with",
        "experiment = evidence.experiment\n"
        "    n_segments, n_arms = len(experiment.segments), len(experiment.arms)",
        "plans of intervals change once visitors came",
        (f"{GROWING}::test_plans_of_intervals_stay_those_of_the_start",),
    ),
    Fault(
        "analysis/summary.py",
        "segments=tuple(_rates(board, position) for position in board.visible),",
        "segments=tuple(_rates(board, i) for i in range(len(experiment.segments))),",
        "the rates of small segments are told",
        (f"{TESTS}/test_summary.py::test_small_segments_are_counted_and_not_told",),
    ),
    Fault(
        "analysis/segment_risk.py",
        "for i in board.visible",
        "for i in range(len(names))",
        "the risks of small segments are told",
        (f"{TESTS}/test_summary.py::test_small_segments_are_counted_and_not_told",),
    ),
    Fault(
        "analysis/history.py",
        "time=min(one.taken_at, end) if end else one.taken_at,",
        "time=one.taken_at,",
        "the history goes on after a stop",
        (f"{TESTS}/test_history.py::test_it_begins_at_the_start_and_ends_with_the_experiment",),
    ),
    Fault(
        "analysis/history.py",
        "kept |= [max(stretch, key=lambda one: one[1].committed_nano), stretch[-1]]",
        "kept |= [stretch[0], stretch[-1]]",
        "the firm's highest commitment is not drawn",
        ("tests/web/test_ledger.py::test_a_long_history_is_drawn_with_few_points",),
    ),
)

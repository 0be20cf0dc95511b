"""Faults of what an exposure log tells."""

from __future__ import annotations

from tests.mutants.fault import Fault

TESTS = "tests/leak"
MEASURING = (f"{TESTS}/test_measuring.py",)
BUDGETS = f"{TESTS}/test_budgets.py"

WORTH = "tests/analysis/test_worth.py"

FAULTS = (
    Fault(
        "analysis/worth.py",
        "rates, _, shares = shrunk_rates(folds, slice(place))",
        "rates, _, shares = shrunk_rates(folds, slice(None))",
        "policies are judged by the visitors they were chosen from",
        (f"{WORTH}::test_scores_are_those_of_the_rows_one_by_one",),
    ),
    Fault(
        "analysis/worth.py",
        "residual = wanted * (folds.weighted[place] - m * folds.weight[place])",
        "residual = 0 * wanted",
        "the doubly robust correction is left out",
        (f"{WORTH}::test_scores_are_those_of_the_rows_one_by_one",),
    ),
    Fault(
        "analysis/worth.py",
        "labelled.append(channel @ arms[by_label.argmax(axis=1)])",
        "labelled.append(arms[rates.argmax(axis=1)])",
        "a label is worth as much as the segment itself",
        (f"{WORTH}::test_policies_by_enumeration_and_by_another_solver",),
    ),
    Fault(
        "leak/worth.py",
        "if drift(counts) < DRIFT:",
        "if False:",
        "nobody is warned that the log is of an experiment that learned",
        (
            "tests/leak/test_worth.py::test_a_log_of_an_experiment_that_learned_asks_for_propensities",
        ),
    ),
    Fault(
        "leak/measuring.py",
        "low = np.where(k > 0, betaincinv(np.maximum(k, 1), n - k + 1, alpha), 0.0)",
        "low = np.where(k > 0, betaincinv(np.maximum(k, 1), n - k + 1, 2 * alpha), 0.0)",
        "a lower limit is missed twice as often",
        (f"{TESTS}/test_measuring.py::test_limits_agree_with_scipy",),
    ),
    Fault(
        "leak/measuring.py",
        "ceiling, _ = _best_pair(high[:, place], low[:, place])",
        "ceiling, _ = _best_pair(low[:, place], high[:, place])",
        "the upper limit of a ratio is the lower one",
        MEASURING,
    ),
    Fault(
        "leak/measuring.py",
        "pairs = [(int(s), int(t)) for s in tops for t in bottoms if s != t]",
        "pairs = [(int(s), int(t)) for s in tops for t in bottoms]",
        "a segment is compared with itself",
        (f"{TESTS}/test_pairs.py",),
    ),
    Fault(
        "leak/measuring.py",
        "right = float(tried[learned.argmax(axis=0), np.arange(tried.shape[1])].sum())",
        "right = float(tried[tried.argmax(axis=0), np.arange(tried.shape[1])].sum())",
        "guesses are tried on the visitors that they were learned from",
        (f"{TESTS}/test_measuring.py::test_guesses_are_tried_on_the_other_half",),
    ),
    Fault(
        "leak/measuring.py",
        "best = low.argmax(axis=1)",
        "best = high.argmax(axis=1)",
        "the variant that tells most is one that was seen once",
        (f"{TESTS}/test_pairs.py",),
    ),
    Fault(
        "leak/budgets.py",
        "    if now.ratio_high <= np.exp(budget):\n        return now.today\n",
        "    return now.today\n",
        "today's table is called private whatever it tells",
        (f"{BUDGETS}::test_every_mechanism_keeps_its_budget",),
    ),
    Fault(
        "leak/budgets.py",
        "None if met_most is None else float(highest_belief(prior, budget * met_most)),",
        "None if met_most is None else float(highest_belief(prior, budget)),",
        "several experiments tell as much as one",
        (f"{BUDGETS}::test_beliefs_are_the_promise",),
    ),
    Fault(
        "leak/budgets.py",
        "self._rates = smoothed_rates(shown, counts.reward[1])",
        "self._rates = smoothed_rates(counts.shown[0], counts.reward[0])",
        "a mechanism is paid with the rewards that it was chosen by",
        (f"{BUDGETS}::test_a_mechanism_is_chosen_on_one_half_and_paid_on_the_other",),
    ),
    Fault(
        "leak/budgets.py",
        "return gained, float((weight**2 * self._variance).sum())",
        "return gained, float((weight * self._variance).sum())",
        "the standard error is wrong",
        (f"{BUDGETS}::test_standard_errors_cover_the_truth",),
    ),
    Fault(
        "leak/reading.py",
        'names.append(pl.col("context").fill_null("other"))',
        "pass",
        "what a variant tells is measured over all contexts together",
        (f"{TESTS}/test_contexts.py::test_what_follows_the_context_alone_tells_nothing_beyond_it",),
    ),
)

"""Whether personalising pays, as sentences and table cells for command line, report and pages."""

from __future__ import annotations

from deniable._formatting import listed, short
from deniable.analysis.worth import Worth, WorthStep

QUESTION = "Does personalising pay?"

HEADER = ("step", "budget", "per visitor", "gain over one arm", "limits")

_TITLES = {
    "one arm": "one arm for everybody",
    "label": "private label",
    "joint": "joint strategy, one experiment",
    "no privacy": "each segment its best arm",
}


def worth_sentence(worth: Worth) -> str:
    """Return the verdict in two or three sentences."""
    last, arm = worth.no_privacy, f"“{worth.arm}”"
    by = f"Personalising by {worth.attribute}"
    if worth.answer == "does not pay":
        most = max(last.high, 0.0)
        return (
            f"{by} does not pay here: at most {relative(most, worth)} over {arm} for everybody, "
            f"and at most {relative(worth.possible, worth)} if all rates were known. "
            f"Show {arm} to everybody; no budget is needed."
        )
    limits = f"{relative(last.low, worth)} to {relative(last.high, worth)}"
    if worth.answer == "unclear":
        return (
            f"This log cannot say whether personalising by {worth.attribute} pays: {limits} over "
            f"{arm} for everybody. Until it can, show {arm} to everybody; no budget is needed."
        )
    return (
        f"{by} pays: each segment its best arm brings {relative(last.gain, worth)} ({limits}) over "
        f"{arm} for everybody, without any privacy. {_private(worth)}"
    )


def _private(worth: Worth) -> str:
    """Say what is left of a gain with privacy, for the steps whose gain is beyond doubt."""
    kept = [
        (step.step, f"{step.gain / worth.no_privacy.gain:.0%} at budget {step.budget:g}")
        for step in worth.steps[1:-1]
        if step.low > 0
    ]
    labels = [words for name, words in kept if name == "label"]
    joint = [words for name, words in kept if name == "joint"]
    parts = [f"a private label keeps {listed(labels)}"] if labels else []
    parts += [f"the joint strategy keeps {joint[0]}, in one experiment"] if joint else []
    if not parts:
        return "Up to the budgets compared, no private step gains beyond doubt."
    return f"Of this gain, {'; '.join(parts)}."


def worth_rows(worth: Worth) -> tuple[tuple[str, ...], ...]:
    """Return the table's rows: step, budget, value per visitor, gain and its limits."""
    return tuple(
        (
            step_title(step),
            "no limit" if step.budget is None else f"{step.budget:g}",
            short(step.value, 4),
            *_gain_cells(step, worth),
        )
        for step in worth.steps
    )


def _gain_cells(step: WorthStep, worth: Worth) -> tuple[str, str]:
    if step.step == "one arm":
        return "", f"{short(step.value_low, 4)} to {short(step.value_high, 4)} per visitor"
    if step.low == step.high == 0:
        return "none", f"“{worth.arm}” for everybody"
    return relative(
        step.gain, worth
    ), f"{relative(step.low, worth)} to {relative(step.high, worth)}"


def worth_notes(worth: Worth) -> list[str]:
    """Return how the figures were made, and what may be wrong with them."""
    judged = "of the draws" if worth.propensities == "known" else "estimated from the log"
    notes = [
        f"{worth.visitors:,} visitors. Arms are chosen on some of them and judged on others (doubly "
        f"robust, probabilities of the arms {judged}); limits with {100 * worth.confidence:.4g}% "
        "confidence.",
        *worth.warnings,
    ]
    if worth.left_out:
        names = listed([f"“{arm}”" for arm in worth.left_out], 5)
        notes.append(f"Left out, because some segments were hardly ever shown it: {names}.")
    return notes


def step_title(step: WorthStep) -> str:
    """Return a step's name for people."""
    return _TITLES[step.step]


def relative(gain: float, worth: Worth) -> str:
    """Format a gain in percent of what one arm for everybody brings; as it is if that is nothing."""
    value = abs(worth.one_arm.value)
    return f"{100 * gain / value:+.1f}%" if value > 1e-9 else short(gain, sign="+")

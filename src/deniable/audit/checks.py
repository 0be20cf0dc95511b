"""Each check of an audit in words: a question, its outcome, a statement a privacy officer can file."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, TypeAlias

from deniable.audit.adversary import ProvenRisk
from deniable.audit.beliefs import ROUNDING, Beliefs
from deniable.audit.decisions import DecisionLog
from deniable.audit.draws import DrawTest
from deniable.audit.exact import VersionProof, decimal, unlisted_ratio
from deniable.audit.promise import Promise
from deniable.audit.rules import RuleBreaks
from deniable.errors import NANO
from deniable.privacy.serving import exp_floor

Outcome: TypeAlias = Literal["kept", "broken", "not tested", "measured"]


@dataclass(frozen=True)
class Check:
    """One question, its answer, and the words for it."""

    name: str
    outcome: Outcome
    statement: str
    p_value: float | None = None


def exact_checks(promise: Promise, proofs: tuple[VersionProof, ...]) -> Iterator[Check]:
    """The exact proof of each version."""
    for proof in proofs:
        worst = proof.worst
        name = "exact tables" if len(proofs) == 1 else f"exact tables, version {proof.version}"
        relation = "at most" if proof.holds else "ABOVE"
        yield Check(
            name,
            "kept" if proof.holds else "broken",
            f"{proof.n_tables:,} table{'s' if proof.n_tables > 1 else ''} rebuilt. Seeing an arm "
            f"moves a tracker's odds by at most {decimal(worst.ratio)}, worst for "
            f"{promise.arms[worst.arm]!r}: {relation} {decimal(worst.bound)}, which is below "
            f"e^{worst.budget_nano / NANO:g}. Compared as fractions, nothing rounded.",
        )


def rule_checks(promise: Promise, breaks: RuleBreaks) -> Iterator[Check]:
    """What every single decision must follow."""
    yield _counted(
        "one arm per visitor",
        breaks.several_arms,
        f"{breaks.visitors:,} visitors, each with one arm for good.",
        "visitors were shown more than one arm: every further one is a second spend.",
    )
    yield _counted(
        "risk within the budget",
        breaks.above_budget,
        f"The largest risk given to anybody is {breaks.largest_risk_nano / NANO:.9g}; the budget is "
        f"{promise.budget_nano / NANO:g}.",
        f"decisions had a risk above the budget of {promise.budget_nano / NANO:g}.",
    )
    if promise.dynamic:
        yield _counted(
            "risk follows the schedule",
            breaks.above_schedule,
            "Nobody was given more than the schedule allows at that time.",
            "decisions had a risk above what the schedule allows at their clock.",
        )
    yield _counted(
        "only arms on offer",
        breaks.switched_off,
        "No arm was shown after it was switched off.",
        "decisions showed an arm that was switched off.",
    )


def _counted(name: str, count: int, good: str, bad: str) -> Check:
    return Check(name, "broken" if count else "kept", f"{count:,} {bad}" if count else good)


def unlisted_check(promise: Promise, log: DecisionLog) -> Check:
    """Unlisted visitors may be served uniformly: that table too must be close to the others'."""
    name = "visitors of unlisted segments"
    uniform = (log.segment < 0) & (log.risk_nano == 0)
    if promise.dynamic and not promise.symmetric:  # one clock: early on, everybody is served so
        listed = log.clock[(log.segment >= 0) & (log.risk_nano > 0)]
        uniform &= log.clock >= listed.min(initial=len(log.clock) + 1)
    spent = (log.segment >= 0) & (log.risk_nano >= promise.budget_nano)
    if not uniform.any() or not spent.any() or promise.budget_nano == 0:
        return Check(name, "kept", "None was served from another table than listed visitors.")
    for version, arms in promise.versions.items():
        for place, arm in enumerate(arms):
            budget = promise.budgets_nano[arm]
            ratio = unlisted_ratio(promise, version, place)
            if ratio > exp_floor(budget):
                return Check(
                    name,
                    "broken",
                    f"{int(uniform.sum()):,} were served uniformly: against listed visitors, seeing "
                    f"{promise.arms[arm]!r} moves the odds by up to {decimal(ratio, 6)}, above "
                    f"e^{budget / NANO:g}. List every segment, or give all arms the same budget.",
                )
    return Check(name, "kept", "They were served uniformly, which is within the budget as well.")


def draw_checks(draws: list[DrawTest], alpha: float) -> Iterator[Check]:
    """Arms against the designed probabilities; the questions share alpha."""
    segments = draws[2:]
    # Three questions share alpha; the segments share theirs.
    tests = [(test.what, test.p_value, test.simulated) for test in draws[:2]]
    if segments:
        least = min(segments, key=lambda test: test.p_value)
        adjusted = min(1.0, least.p_value * len(segments))
        tests.append(("arms within each segment", adjusted, least.simulated))
    words = {
        "arms, all visitors": "The arms shown over all visitors",
        "greedy arm shown": "How often the learned best arm was shown",
        "arms within each segment": f"The arms shown within each of {len(segments)} segments",
    }
    for name, p_value, simulated in tests:
        good = p_value >= alpha / len(tests)
        how = " (by simulation: few visitors)" if simulated else ""
        yield Check(
            name,
            "kept" if good else "broken",
            f"{words[name]} {'agrees' if name.startswith('greedy') else 'agree'} with the design"
            f"{how}."
            if good
            else f"{words[name]} cannot come from the designed probabilities.",
            p_value,
        )


def proven_check(promise: Promise, proven: ProvenRisk) -> Check:
    """What counts alone prove."""
    if proven.arm is None:
        return Check("counts alone", "not tested", "There is nothing to compare yet.")
    told = (
        f"From {proven.visitors:,} visitors' arms and segments alone, a risk of at least "
        f"{proven.nats:.4g} nats is proven (confidence {1 - proven.alpha:.1%}); "
        f"{proven.budget:g} are promised for {promise.arms[proven.arm]!r}."
    )
    return Check("counts alone", "broken" if proven.exceeds else "kept", told)


def belief_checks(promise: Promise, beliefs: Beliefs | None) -> Iterator[Check]:
    """What the best tracker came to believe."""
    if beliefs is None:
        yield Check("the best tracker", "not tested", "There are not yet visitors of two segments.")
        return
    arm, both, budget = beliefs.arm, beliefs.arm_and_response, promise.budget_nano / NANO
    yield Check(
        "the best tracker",
        "kept" if arm.moved <= budget + ROUNDING else "broken",
        f"A tracker that knows the whole algorithm moved its log odds by at most {arm.moved:.6g} "
        f"nats ({budget:g} promised); its highest belief is {arm.highest:.1%} (at most "
        f"{arm.bound:.1%}). It guesses {100 * arm.guessed:.1f} of 100 segments right; "
        f"{100 * arm.guessed_before:.1f} without seeing anything.",
    )
    yield Check(
        "a tracker that sees responses too",
        "measured",
        f"Not promised: its highest belief is {both.highest:.1%}, it guesses "
        f"{100 * both.guessed:.1f} of 100 right. The part beyond the arm comes from what people "
        "click, which no randomization of arms hides.",
    )

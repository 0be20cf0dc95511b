"""An experiment's results: one function for web pages, command line, HTTP and statements.

All intervals are confidence sequences: they hold simultaneously at every look, whatever the reason
to stop. The error probability of .05 is divided evenly over the metrics. Within the deciding metric
it is shared by all pairs of arms in every segment and overall; within a guardrail, by every arm
against the default. The values of choices and the holdout effect each have a family of their own.
Nothing is reported before it is reliable, and segments with small cells are not reported
separately.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from deniable._formatting import short
from deniable._validation import FloatArray
from deniable.analysis.evidence import Evidence
from deniable.analysis.result_records import (
    ChoiceResult,
    Difference,
    Estimate,
    Guardrail,
    HoldoutEffect,
    Rate,
    Results,
    SegmentResult,
    judgement,
    unit_of,
)
from deniable.analysis.small_cells import visible_segments
from deniable.errors import NANO
from deniable.inference.intervals import Comparisons, compare, segment_shares
from deniable.inference.off_policy import Value, arm_values
from deniable.inference.power import detectable_difference, forecast
from deniable.inference.state import State
from deniable.inference.verdict import Choice, Lift, Verdict, verdict
from deniable.inference.words import (
    Unit,
    forecast_words,
    keeping,
    longest,
    sentences,
    undecided_words,
)
from deniable.storage import times
from deniable.storage.records import Experiment, Metric, Status
from deniable.strategies import TABLE_RULES
from deniable.strategies.joint_lp import proved_table

ALPHA = 0.05
LEAST_SECONDS = 3_600
"""How long an experiment must have run before its traffic is used to predict the remaining time."""


def results_of(evidence: Evidence) -> Results:
    """Return the verdict on an experiment, from its settled sums."""
    experiment = evidence.experiment
    metric = experiment.metrics[0]
    alpha = ALPHA / len(experiment.metrics)
    visible = set(visible_segments(evidence.all_shows, [arm.active for arm in experiment.arms]))
    state = evidence.state()
    found = _verdict(evidence, state, _within(state, experiment))
    shown = _without_small_cells(found, {experiment.rows[i] for i in visible})
    compared = _against_default(state, found.comparisons, experiment, metric, visible)
    unit = unit_of(metric.cap)
    best = next(choice for choice in found.choices if choice.what == "winners")
    bounded = TABLE_RULES[experiment.strategy].bounded
    holdout = (
        _holdout(evidence, best.gain if bounded else None, metric) if experiment.holdout else None
    )
    return Results(
        experiment=experiment.key,
        status=experiment.status,
        metric=metric.name,
        cap=metric.cap,
        default_arm=experiment.default_arm,
        sentences=(*_pays(holdout, metric), *_worded(shown, unit, evidence, state)),
        segments=tuple(
            _segment(shown, compared, name, int(state.visitors[j]) if j in visible else None)
            for j, name in enumerate(experiment.rows)
        ),
        whole=tuple(_difference(lift, metric) for lift in found.whole),
        rates=_rates(state, experiment, alpha, metric, sorted(visible)),
        choices=tuple(
            _choice(choice, experiment, metric)
            for choice in found.choices
            if _possible(choice, experiment)
        ),
        stop_rule=_stop_rule(shown, state, unit, experiment.status),
        guardrails=guardrails_of(evidence),
        holdout=holdout,
        visitors=found.visitors,
        waiting=evidence.waiting,
        alpha=ALPHA,
        n_comparisons=found.n_comparisons,
    )


def undecided_of(evidence: Evidence) -> list[str]:
    """Return what the results say about open comparisons, without the rest of them."""
    experiment = evidence.experiment
    visible = visible_segments(evidence.all_shows, [arm.active for arm in experiment.arms])
    found = _verdict(evidence, evidence.state())
    shown = _without_small_cells(found, {experiment.rows[i] for i in visible})
    return undecided_words(shown, stopped=experiment.status == "stopped")


def _verdict(evidence: Evidence, state: State, within: FloatArray | None = None) -> Verdict:
    experiment = evidence.experiment
    return verdict(
        state,
        arms=tuple(arm.key for arm in experiment.arms),
        segments=experiment.rows,
        default_arm=experiment.default_arm,
        visitors_per_day=_visitors_per_day(evidence),
        within=within,
        alpha=ALPHA / len(experiment.metrics),
    )


def _visitors_per_day(evidence: Evidence) -> float | None:
    """Return members of listed segments per day, over the time that the experiment has run."""
    experiment = evidence.experiment
    if experiment.started_at is None or experiment.status != "running":
        return None
    seconds = (times.as_datetime(evidence.moment) - experiment.started_at).total_seconds()
    if seconds < LEAST_SECONDS:
        return None
    return float(evidence.all_shows[:-1].sum()) * 86_400 / seconds


def _within(state: State, experiment: Experiment) -> FloatArray | None:
    """Return the best table for the estimated rates that keeps the budgets; None without a bound."""
    if not TABLE_RULES[experiment.strategy].bounded:
        return None
    active = list(experiment.active)
    rates = np.nan_to_num(state.alone.estimate[:, active]).clip(0, 1)
    budgets = [experiment.budgets[arm] / NANO for arm in active]
    best = proved_table(
        rates,
        segment_shares(state, None),
        budgets if experiment.arm_specific else experiment.budget,
    )
    table = np.zeros(state.shows.shape)
    table[:, active] = best.table
    return table


def _without_small_cells(found: Verdict, visible: set[str]) -> Verdict:
    """Remove segments from the verdict that may not be reported separately."""
    hidden = [name for name in found.segments if name not in visible]
    return replace(
        found,
        winners=tuple(one for one in found.winners if one.segment in visible),
        undecided=tuple(one for one in found.undecided if one.lift.segment in visible),
        retired=tuple((arm, name) for arm, name in found.retired if name in visible),
        hidden=tuple(name for name in hidden if name not in found.too_early),
    )


def _worded(shown: Verdict, unit: Unit, evidence: Evidence, state: State) -> list[str]:
    if evidence.experiment.status == "draft":
        return ["Not started yet."]
    stopped = evidence.experiment.status == "stopped"
    if not TABLE_RULES[evidence.experiment.strategy].bounded:
        shown = replace(shown, retired=())  # without a bound, most arms retire, and soon
    said = sentences(shown, cap=unit.cap, stopped=stopped)
    said += _plan_and_actual(shown, unit, evidence, state)
    if evidence.waiting:
        said.append(f"{evidence.waiting:,} visitors are not counted yet: rewards may still come.")
    return said


def _plan_and_actual(shown: Verdict, unit: Unit, evidence: Evidence, state: State) -> list[str]:
    """Compare the planned visitors with those so far; the planned ones decide what the planner said."""
    planned, visitors = evidence.experiment.planned_visitors, int(evidence.all_shows.sum())
    weight = state.between.weight.sum()
    if not planned or not weight:
        return []
    smallest = detectable_difference(
        planned,
        weight_each=1 / (2 * state.n_arms),
        variance=state.between.variance.sum() / weight,
        alpha=shown.comparisons.alpha_each,
    )
    rest = forecast(
        max(0, planned - visitors), expected=planned, per_day=_visitors_per_day(evidence)
    )
    pace = f", the rest in about {forecast_words(rest, more=True)}" if rest.days else ""
    return [
        f"Planned: {planned:,} visitors, who decide a difference of "
        f"{_amount(float(smallest), unit)} for everybody. So far: {visitors:,}{pace}."
    ]


def _segment(
    shown: Verdict,
    compared: dict[str | None, tuple[Difference, ...]],
    name: str,
    visitors: int | None,
) -> SegmentResult:
    winner = next((one.arm for one in shown.winners if one.segment == name), None)
    open_here = [one for one in shown.undecided if one.lift.segment == name]
    status = (
        "winner"
        if winner is not None
        else "too early"
        if name in shown.too_early
        else "not shown"
        if name in shown.hidden
        else "undecided"
        if open_here
        else "stuck"
    )
    return SegmentResult(
        segment=name,
        status=status,
        winner=winner,
        visitors=visitors,
        differences=compared.get(name, ()),
        forecast=longest([one.forecast for one in open_here]) if status == "undecided" else None,
    )


def _against_default(
    state: State, found: Comparisons, experiment: Experiment, metric: Metric, visible: set[int]
) -> dict[str | None, tuple[Difference, ...]]:
    """Compare every other arm with the default, by segment; None stands for all segments."""
    names = [arm.key for arm in experiment.arms]
    rows: dict[str | None, tuple[Difference, ...]] = {}
    for place in (None, *sorted(visible)):
        of = found.whole if place is None else found.segments
        told_here = []
        for row, (a, b) in enumerate(state.pairs.tolist()):
            if experiment.default_arm not in (names[a], names[b]):
                continue
            at = (row,) if place is None else (place, row)
            sign = 1 if names[a] == experiment.default_arm else -1
            stopped = found.stopped[:, row].any() if place is None else found.stopped[place, row]
            low, high = (of.low, of.high)[::sign]
            exact_low, exact_high = (of.exact_low, of.exact_high)[::sign]
            lift = Lift(
                segment=None if place is None else experiment.rows[place],
                arm=names[b] if sign > 0 else names[a],
                against=experiment.default_arm,
                difference=sign * float(of.estimate[at]),
                low=sign * float(low[at]),
                high=sign * float(high[at]),
                exact_low=sign * float(exact_low[at]),
                exact_high=sign * float(exact_high[at]),
                ready=bool(of.ready[at]),
                stopped=bool(stopped),
            )
            told_here.append(_difference(lift, metric))
        rows[None if place is None else experiment.rows[place]] = tuple(told_here)
    return rows


def _difference(lift: Lift, metric: Metric) -> Difference:
    ends = (lift.difference, lift.low, lift.high, lift.exact_low, lift.exact_high)
    estimate, low, high, exact_low, exact_high = (
        metric.cap * end if lift.ready and math.isfinite(end) else None for end in ends
    )
    return Difference(
        segment=lift.segment,
        arm=lift.arm,
        against=lift.against,
        estimate=estimate,
        low=low,
        high=high,
        exact_low=exact_low,
        exact_high=exact_high,
        stopped=lift.stopped,
    )


def _rates(
    state: State, experiment: Experiment, alpha: float, metric: Metric, visible: list[int]
) -> tuple[Rate, ...]:
    cells = arm_values(state, alpha)
    rates = []
    for j in visible:
        for k, arm in enumerate(experiment.arms):
            ends = [
                metric.cap * float(end[j, k]) if cells.ready[j, k] else None
                for end in (cells.estimate, cells.low, cells.high)
            ]
            rates.append(Rate(experiment.rows[j], arm.key, int(state.shows[j, k]), *ends))
    return tuple(rates)


def _estimate(value: Value, metric: Metric) -> Estimate:
    if not value.ready or not math.isfinite(value.estimate):
        return Estimate(None, None, None)
    return Estimate(*(metric.cap * end for end in (value.estimate, value.low, value.high)))


def _possible(choice: Choice, experiment: Experiment) -> bool:
    active = {arm.key for arm in experiment.active_arms}
    return choice.arm is None or choice.arm in active


def _choice(choice: Choice, experiment: Experiment, metric: Metric) -> ChoiceResult:
    nats = "nat" if experiment.budget == 1 else "nats"
    budget = f"{experiment.budget:g} {nats}"
    stopped = experiment.status == "stopped"
    title, privacy = {
        "keep": (
            keeping(stopped),
            f"The guarantee stays as it is, and its {budget} stay in use.",
        ),
        "promote": (
            f"{choice.arm} for everybody",
            "A variant that everybody gets reveals nothing about new visitors. What was shown stays "
            f"covered; its {budget} stay in use until the firm's window after that has passed.",
        ),
        "within": (
            "The best table within the guarantee",
            f"For new visitors only, within the same guarantee, whose {budget} stay in use.",
        ),
        "winners": (
            "Each segment its best variant, without a guarantee",
            "Not offered: the variant would give the segment away. It shows what the guarantee costs.",
        ),
    }[choice.what]
    return ChoiceResult(
        what=choice.what,
        arm=choice.arm,
        title=title,
        value=_estimate(choice.value, metric),
        gain=_estimate(choice.gain, metric),
        privacy=privacy,
    )


def _stop_rule(shown: Verdict, state: State, unit: Unit, status: Status) -> str:
    if status == "stopped":
        return "The experiment has stopped: nothing more will be learned."
    if shown.segments and len(shown.winners) == len(shown.segments):
        return "Every segment has a winner. Promote one variant, or keep running to keep personalising."
    rule = "Stop when every segment has a winner, or earlier: the intervals stay valid."
    decided = {one.segment for one in shown.winners}
    stakes: dict[str, float] = {}
    for one in shown.undecided:
        if not one.lift.ready:
            return rule
        largest = max(abs(one.lift.low), abs(one.lift.high))
        place = str(one.lift.segment)
        stakes[place] = max(stakes.get(place, 0.0), largest)
    if not stakes or set(shown.segments) - decided - set(stakes):
        return rule
    weights = dict(zip(shown.segments, segment_shares(state, None), strict=True))
    at_stake = sum(weights[place] * stake for place, stake in stakes.items())
    return f"{rule} At most {_amount(at_stake, unit)} per visitor are still at stake."


def _amount(share: float, unit: Unit) -> str:
    return f"{100 * share:.1f} points" if unit.cap is None else short(unit.cap * share)


def guardrails_of(evidence: Evidence) -> tuple[Guardrail, ...]:
    """Return every metric that does not decide, with its own confidence sequences."""
    experiment = evidence.experiment
    visible = set(visible_segments(evidence.all_shows, [arm.active for arm in experiment.arms]))
    alpha, n_metrics = ALPHA / len(experiment.metrics), len(experiment.metrics)
    return tuple(_guardrail(evidence, number, alpha, visible) for number in range(1, n_metrics))


def _guardrail(evidence: Evidence, number: int, alpha: float, visible: set[int]) -> Guardrail:
    experiment = evidence.experiment
    metric = experiment.metrics[number]
    default = next(i for i, a in enumerate(experiment.arms) if a.key == experiment.default_arm)
    pairs = [(default, arm) for arm in range(len(experiment.arms)) if arm != default]
    state = evidence.state(number, pairs)
    found = compare(state, alpha=alpha)
    compared = _against_default(state, found, experiment, metric, visible)
    if len(experiment.rows) == 1:  # the overall result is the same
        compared = {None: compared[None]}
    differences = tuple(one for place in compared.values() for one in place)
    unit = unit_of(metric.cap)
    told: dict[str, list[str]] = {"worse": [], "better": []}
    for one in differences:
        found_here = judgement(one, metric.better)
        if found_here in told and one.low is not None and one.high is not None:
            where = "" if one.segment is None else f" for {one.segment}"
            moved = "rose" if one.low > 0 else "fell"
            change = unit.change(one.low / metric.cap, one.high / metric.cap)
            told[found_here].append(
                f"{metric.name} {moved} with {one.arm}{where}: {change} against {one.against}, "
                f"and {metric.better} is better."
            )
    alerts, improved = (tuple(sentences) for sentences in told.values())
    return Guardrail(metric.name, metric.cap, metric.better, differences, alerts, improved)


def _pays(holdout: HoldoutEffect | None, metric: Metric) -> list[str]:
    """Return whether personalising pays, as far as held-out visitors tell."""
    if holdout is None or holdout.worth.low is None or holdout.worth.high is None:
        return []
    low, high = holdout.worth.low, holdout.worth.high
    head = (
        "Personalising pays"
        if low > 0
        else "Personalising loses"
        if high < 0
        else "Personalising has not paid so far"
    )
    change = unit_of(metric.cap).change(low / metric.cap, high / metric.cap)
    return [f"{head}: {change}, compared with held-out visitors."]


def _holdout(evidence: Evidence, price: Value | None, metric: Metric) -> HoldoutEffect:
    found = compare(evidence.holdout_state(), alpha=ALPHA).whole
    held_out, members = evidence.groups.sum(axis=0) if len(evidence.groups) else (0, 0)
    ready = bool(found.ready[0])
    ends = (found.estimate[0], found.low[0], found.high[0])
    worth = Estimate(*(metric.cap * float(end) if ready else None for end in ends))
    return HoldoutEffect(
        share=evidence.experiment.holdout / 1000,
        held_out=int(held_out),
        members=int(members),
        worth=worth,
        price=None if price is None else _estimate(price, metric),
    )

"""Value objects for results, as shown by the web pages, the command line and HTTP.

Numbers are in the metric's unit, and None before they are reliable.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from html import escape

from deniable._types import JsonObject
from deniable.inference.power import Forecast
from deniable.inference.words import Unit
from deniable.storage.records import Better, Status

TOO_EARLY = "too early"


@dataclass(frozen=True)
class Estimate:
    """A number with its interval, in the metric's unit; all None before it is reliable."""

    estimate: float | None
    low: float | None
    high: float | None


@dataclass(frozen=True)
class Difference:
    """A difference of mean rewards, "arm minus against", in the metric's unit.

    Attributes:
        segment: the segment; None for all.
        arm: the arm ...
        against: ... that is compared with this one.
        estimate: the difference; None, like the limits, before it is reliable.
        low: lower limit of the asymptotic confidence sequence.
        high: its upper limit.
        exact_low: lower limit of the exact confidence sequence.
        exact_high: its upper limit.
        stopped: whether one of the arms has retired, so that nothing more is learned.
    """

    segment: str | None
    arm: str
    against: str
    estimate: float | None
    low: float | None
    high: float | None
    exact_low: float | None
    exact_high: float | None
    stopped: bool


@dataclass(frozen=True)
class Rate:
    """The mean reward of an arm in a segment, in the metric's unit."""

    segment: str
    arm: str
    shows: int
    estimate: float | None
    low: float | None
    high: float | None


@dataclass(frozen=True)
class SegmentResult:
    """The results of one segment.

    Attributes:
        segment: its name.
        status: "winner", "undecided", "too early", "not shown" if it has enough visitors but showing
            it would reveal a small group, or "stuck" if no comparison can continue.
        winner: the winning arm, if any.
        visitors: number of visitors; None if a cell is too small to be shown.
        differences: every arm against the default.
        forecast: how long it takes until it is decided, if the estimates are right; None unless it is
            undecided.
    """

    segment: str
    status: str
    winner: str | None
    visitors: int | None
    differences: tuple[Difference, ...]
    forecast: Forecast | None


@dataclass(frozen=True)
class ChoiceResult:
    """A possible action: what it earns, and its effect on privacy.

    Attributes:
        what: "keep", "promote", "within" or "winners" (`deniable.inference.verdict.Choice`).
        arm: the arm to promote, else None.
        title: text for people.
        value: mean reward per visitor.
        gain: the difference from keeping the experiment running.
        privacy: one sentence.
    """

    what: str
    arm: str | None
    title: str
    value: Estimate
    gain: Estimate
    privacy: str


@dataclass(frozen=True)
class Guardrail:
    """A metric that does not decide, with its own confidence sequences.

    Attributes:
        metric: its name.
        cap: its largest value.
        better: whether more or less is better.
        differences: every arm against the default, overall and by segment.
        alerts: one sentence for each difference that got significantly worse.
        improved: one sentence for each that got better.
    """

    metric: str
    cap: float
    better: Better
    differences: tuple[Difference, ...]
    alerts: tuple[str, ...]
    improved: tuple[str, ...]

    @property
    def overall(self) -> tuple[Difference, ...]:
        """Every arm against the default, over all segments."""
        return tuple(one for one in self.differences if one.segment is None)

    def change(self, one: Difference) -> str:
        """Format the interval of a difference."""
        if one.low is None or one.high is None:
            return TOO_EARLY
        return unit_of(self.cap).change(one.low / self.cap, one.high / self.cap)

    def judgement(self, one: Difference) -> str:
        """Return "worse", "better", "no change shown" or "too early"."""
        return judgement(one, self.better)


@dataclass(frozen=True)
class HoldoutEffect:
    """The value of the tables, measured against randomly held-out visitors.

    Attributes:
        share: share of visitors who are held out.
        held_out: number of settled held-out visitors.
        members: number of settled members.
        worth: mean reward of members minus that of held-out visitors: the gain from
            personalisation.
        price: mean reward of each segment's best arm without a promise, minus that of the table in
            force: the cost of the promise and of incomplete knowledge. None if nothing is promised.
    """

    share: float
    held_out: int
    members: int
    worth: Estimate
    price: Estimate | None


@dataclass(frozen=True)
class Results:
    """What an experiment has learned so far.

    Attributes:
        experiment: its key.
        status: draft, running, paused or stopped.
        metric: the deciding metric.
        cap: its largest value.
        default_arm: the arm that differences are measured against.
        sentences: the verdict in words, most important first.
        segments: one result per segment.
        whole: each arm against the default, over all segments.
        rates: of each arm in each segment that may be shown.
        choices: keep running, show one arm to everyone, or show each segment its best arm.
        stop_rule: when to stop, as text.
        guardrails: the other metrics.
        holdout: None without one.
        visitors: total number of visitors.
        waiting: visitors whose rewards may still arrive.
        alpha: error probability over all comparisons of all metrics and all looks.
        n_comparisons: number of comparisons of the deciding metric.
    """

    experiment: str
    status: Status
    metric: str
    cap: float
    default_arm: str
    sentences: tuple[str, ...]
    segments: tuple[SegmentResult, ...]
    whole: tuple[Difference, ...]
    rates: tuple[Rate, ...]
    choices: tuple[ChoiceResult, ...]
    stop_rule: str
    guardrails: tuple[Guardrail, ...]
    holdout: HoldoutEffect | None
    visitors: int
    waiting: int
    alpha: float
    n_comparisons: int

    @property
    def unit(self) -> Unit:
        """The unit in which rewards are displayed."""
        return unit_of(self.cap)

    @property
    def alerts(self) -> tuple[str, ...]:
        """What got worse, according to the guardrails."""
        return tuple(text for guardrail in self.guardrails for text in guardrail.alerts)

    def level(self, value: Estimate | Rate) -> str:
        """Format a mean."""
        return TOO_EARLY if value.estimate is None else self.unit.level(value.estimate / self.cap)

    def span(self, value: Estimate | Rate) -> str:
        """Format the interval of a mean."""
        if value.low is None or value.high is None:
            return TOO_EARLY
        low, high = self.unit.level(value.low / self.cap), self.unit.level(value.high / self.cap)
        return f"{low} to {high}"

    def change(self, value: Estimate | Difference) -> str:
        """Format the interval of a difference."""
        if value.low is None or value.high is None:
            return TOO_EARLY
        return self.unit.change(value.low / self.cap, value.high / self.cap)

    def rate(self, segment: str, arm: str) -> Rate:
        """Return the rate of an arm in a segment that may be shown."""
        return next(one for one in self.rates if (one.segment, one.arm) == (segment, arm))

    @property
    def choices_title(self) -> str:
        """Heading of the table of choices, which depends on whether the experiment has stopped."""
        return "What each choice earns" if self.status == "stopped" else "What to do now"

    @property
    def compared_with(self) -> str:
        """What choices are compared with."""
        return self.choices[0].title.lower() if self.status == "stopped" else "keeping it running"

    def gain(self, choice: ChoiceResult) -> str:
        """Format what a choice earns compared with continuing as before."""
        if choice.what == "keep":
            return "–"
        if choice.gain.low == choice.gain.high == 0:
            return "the same"
        return self.change(choice.gain)

    def to_dict(self) -> JsonObject:
        """Return plain values for JSON."""
        return asdict(self)

    def _repr_html_(self) -> str:
        """Render the verdict and the choices for notebooks."""
        items = "".join(f"<li>{escape(sentence)}</li>" for sentence in self.sentences[1:])
        head = (self.choices_title, "Mean per visitor", "Interval", f"Against {self.compared_with}")
        rows = [
            (one.title, self.level(one.value), self.span(one.value), self.gain(one))
            for one in self.choices
        ]
        body = "".join(
            "<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>" for row in rows
        )
        return (
            f"<p><strong>{escape(self.sentences[0])}</strong></p><ul>{items}</ul>"
            f"<p>{escape(self.stop_rule)}</p>"
            f"<table><thead><tr>{''.join(f'<th>{escape(cell)}</th>' for cell in head)}</tr></thead>"
            f"<tbody>{body}</tbody></table>"
        )


def judgement(one: Difference, better: Better) -> str:
    """Return what a difference shows: "worse", "better", "no change shown" or "too early"."""
    if one.low is None or one.high is None:
        return TOO_EARLY
    if one.low <= 0 <= one.high:
        return "no change shown"
    return "better" if (one.low > 0) == (better == "more") else "worse"


def unit_of(cap: float) -> Unit:
    """Rewards of at most 1 are shares; all others are amounts."""
    return Unit(None if cap == 1 else cap)

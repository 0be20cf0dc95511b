"""What results are made of: value objects that page, command line and HTTP show.

Numbers are in the unit of the metric, and None before they are reliable.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from html import escape

from deniable._types import JsonObject
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
        segment: where; None for the whole.
        arm: whose reward is higher or lower ...
        against: ... than this arm's.
        estimate: the difference; None, like the ends, before it is reliable.
        low: lower end of the asymptotic confidence sequence.
        high: its upper end.
        exact_low: lower end of the exact one.
        exact_high: its upper end.
        stopped: whether one of the arms has retired, so that nothing more will be learned.
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
    """The mean reward of an arm in a segment, whoever was shown it, in the metric's unit."""

    segment: str
    arm: str
    shows: int
    estimate: float | None
    low: float | None
    high: float | None


@dataclass(frozen=True)
class SegmentResult:
    """What is known about one segment.

    Attributes:
        segment: its name.
        status: "winner", "undecided", "too early", or "stuck" where no comparison can go on.
        winner: the arm, where there is one.
        visitors: who entered; None where a cell is too small to be told.
        differences: of every arm against the default.
        more_visitors: of the segment until it is decided, if the estimates are right; None where
            that is not in sight, or not open.
        more_days: the same at the traffic so far.
    """

    segment: str
    status: str
    winner: str | None
    visitors: int | None
    differences: tuple[Difference, ...]
    more_visitors: int | None
    more_days: float | None


@dataclass(frozen=True)
class ChoiceResult:
    """Something to do now: what it earns, and what it does to privacy.

    Attributes:
        what: "keep", "promote", "within" or "winners" (`deniable.inference.verdict.Choice`).
        arm: the arm to promote, else None.
        title: for people.
        value: mean reward per visitor.
        gain: the same minus that of keeping it running.
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
        better: whether more of it is better, or less.
        differences: every arm against the default, in the whole and by segment.
        alerts: one sentence for each that got worse beyond chance.
        improved: one for each that got better.
    """

    metric: str
    cap: float
    better: Better
    differences: tuple[Difference, ...]
    alerts: tuple[str, ...]
    improved: tuple[str, ...]


@dataclass(frozen=True)
class HoldoutEffect:
    """What the tables are worth, by visitors who were held out from them at random.

    Attributes:
        share: of the visitors who are held out.
        held_out: how many of them are settled.
        members: how many others are.
        worth: mean reward of members minus that of held out visitors: what personalisation brings.
        price: mean reward of each segment's best arm without a promise, minus that of the table
            in force: what the promise, and not knowing better, costs.
    """

    share: float
    held_out: int
    members: int
    worth: Estimate
    price: Estimate


@dataclass(frozen=True)
class Results:
    """What an experiment has learned so far.

    Attributes:
        experiment: its key.
        status: draft, running, paused or stopped.
        metric: the one that decides.
        cap: its largest value.
        default_arm: what differences are measured against.
        sentences: the verdict in words, most important first.
        segments: one for each.
        whole: each arm against the default over all segments.
        rates: of each arm in each segment that may be told.
        choices: keep running, each arm for everybody, each segment its best arm.
        stop_rule: when to stop, in words.
        guardrails: the other metrics.
        holdout: None without one.
        visitors: who entered, in all.
        waiting: whose rewards may still come.
        older: from before tables were published, who are left out.
        alpha: error probability over all comparisons of all metrics and all looks.
        n_comparisons: of the deciding metric.
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
    older: int
    alpha: float
    n_comparisons: int

    @property
    def unit(self) -> Unit:
        """How its rewards are told."""
        return unit_of(self.cap)

    @property
    def alerts(self) -> tuple[str, ...]:
        """What got worse, by the guardrails."""
        return tuple(text for guardrail in self.guardrails for text in guardrail.alerts)

    def level(self, value: Estimate | Rate) -> str:
        """A mean in words."""
        return TOO_EARLY if value.estimate is None else self.unit.level(value.estimate / self.cap)

    def span(self, value: Estimate | Rate) -> str:
        """From where to where a mean lies, in words."""
        if value.low is None or value.high is None:
            return TOO_EARLY
        low, high = self.unit.level(value.low / self.cap), self.unit.level(value.high / self.cap)
        return f"{low} to {high}"

    def change(self, value: Estimate | Difference) -> str:
        """From where to where a difference lies, in words."""
        if value.low is None or value.high is None:
            return TOO_EARLY
        return self.unit.change(value.low / self.cap, value.high / self.cap)

    def rate(self, segment: str, arm: str) -> Rate:
        """What is known about an arm in a segment that may be told."""
        return next(one for one in self.rates if (one.segment, one.arm) == (segment, arm))

    @property
    def choices_title(self) -> str:
        """What the table of choices is called: after the stop there is nothing left to do."""
        return "What each choice earns" if self.status == "stopped" else "What to do now"

    @property
    def compared_with(self) -> str:
        """What choices are compared with."""
        return self.choices[0].title.lower() if self.status == "stopped" else "keeping it running"

    def gain(self, choice: ChoiceResult) -> str:
        """What a choice earns more than going on as before, in words."""
        if choice.what == "keep":
            return "–"
        if choice.gain.low == choice.gain.high == 0:
            return "the same"
        return self.change(choice.gain)

    def to_dict(self) -> JsonObject:
        """As plain values, for JSON."""
        return asdict(self)

    def _repr_html_(self) -> str:
        """The verdict and what each choice earns, for notebooks."""
        told = "".join(f"<li>{escape(sentence)}</li>" for sentence in self.sentences[1:])
        head = (self.choices_title, "Mean per visitor", "Interval", f"Against {self.compared_with}")
        rows = [
            (one.title, self.level(one.value), self.span(one.value), self.gain(one))
            for one in self.choices
        ]
        body = "".join(
            "<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>" for row in rows
        )
        return (
            f"<p><strong>{escape(self.sentences[0])}</strong></p><ul>{told}</ul>"
            f"<p>{escape(self.stop_rule)}</p>"
            f"<table><thead><tr>{''.join(f'<th>{escape(cell)}</th>' for cell in head)}</tr></thead>"
            f"<tbody>{body}</tbody></table>"
        )


def unit_of(cap: float) -> Unit:
    """Rewards of at most 1 are shares; all others are amounts."""
    return Unit(None if cap == 1 else cap)

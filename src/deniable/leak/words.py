"""A measured log as text, tables and chart data, shared by the command line and the report."""

from __future__ import annotations

from math import ceil, floor, inf
from typing import TYPE_CHECKING

from deniable._formatting import listed, percent
from deniable.analysis.worth_words import HEADER as WORTH_HEADER
from deniable.analysis.worth_words import (
    QUESTION,
    relative,
    worth_notes,
    worth_rows,
    worth_sentence,
)
from deniable.leak.budgets import MechanismCost
from deniable.leak.measuring import Estimate, ExperimentLeak, Guesses, SegmentBelief, VariantLeak
from deniable.leak.report import Leak
from deniable.report.content import Bullets, Paragraph, Section, Table, section

if TYPE_CHECKING:
    from deniable.charts.leak import BudgetFigures

ROWS = 10
_PICTURES = 3
_SPANS = 12
_LONG = 28


def headline(leak: Leak) -> str:
    """Summarise the log in one or two sentences."""
    worst = leak.worst.worst
    if worst.ratio.low <= 1:
        return (
            "The log proves no leak: no shown variant moves a tracker's odds about a visitor's "
            f"segment for certain. {_ceiling(leak)}"
        )
    return (
        f"One shown variant multiplies a tracker's odds about a visitor's segment by "
        f"{spanned(worst.ratio)}: “{worst.variant}”{_of(leak, leak.worst)} speaks for "
        f"{worst.segment} and against {worst.other}. {belief_sentence(leak.headline)}"
    )


def _ceiling(leak: Leak) -> str:
    if leak.ratio_high == inf:
        return "Nor does it rule one out: some variants were shown too rarely to say."
    return (
        f"The worst odds ratio is at most {ratio(leak.ratio_high)}, with "
        f"{100 * leak.confidence:g}% confidence."
    )


def belief_sentence(belief: SegmentBelief) -> str:
    """Describe the belief before and after, out of 100 visitors."""
    before, after = out_of_100(belief)
    return (
        f"Of 100 visitors, a tracker would have placed {before} in {belief.segment}; of 100 who were "
        f"shown “{belief.variant}”, it places {after} there."
    )


def joint_sentence(leak: Leak) -> str:
    """Describe what all experiments together reveal; empty if visitors could not be joined."""
    joint = leak.joint
    if joint is None:
        return ""
    median, tail = joint.moved[0.5], joint.moved[0.9]
    return (
        f"Joined over the {joint.met_mean:.3g} experiments that a visitor met on average (at most "
        f"{joint.met_most}), odds move by {ratio(median[0])} for half of the visitors and by "
        f"{ratio(tail[0])} for one in ten (proven: {ratio(median[1])} and {ratio(tail[1])}). A tracker "
        f"guesses {percent(joint.guesses.after.value)} of the segments right; without seeing anything, "
        f"{percent(joint.guesses.before)}."
    )


def notes(leak: Leak) -> list[str]:
    """Return caveats about the figures."""
    tally = leak.tally
    lines = [f"All limits hold together with {100 * leak.confidence:g}% confidence."]
    if leak.columns.context is not None:
        lines.append(
            "Every experiment is measured within each context on its own: the figures are what a "
            "variant tells beyond the context. Joining starts from the segments' shares in all contexts."
        )
    if tally.visitors is None:
        lines.append(
            "The log has no visitor ids, so every exposure counts as a visitor of its own. Where "
            "visitors come back, the limits are too narrow."
        )
    if tally.skipped:
        lines.append(
            f"{tally.skipped:,} of {tally.rows:,} rows lack a segment, a variant, an experiment or a "
            "visitor, and were left out."
        )
    if tally.changed_variant:
        lines.append(
            f"{tally.changed_variant:,} times a visitor was shown more than one variant of an "
            "experiment. Only the first counts here; each further one tells more."
        )
    if tally.changed_segment:
        lines.append(
            f"{tally.changed_segment:,} times a visitor changed segments within an experiment. The "
            "first segment counts."
        )
    if leak.unmeasured:
        names = listed([short(name) for name in leak.unmeasured], 5)
        lines.append(f"Not measured, for want of a second segment or variant: {names}.")
    if leak.joint is not None and leak.joint.left_out:
        lines.append(
            f"{leak.joint.left_out:,} visitors had different segments in different experiments and are "
            "not joined."
        )
    if leak.joint is not None:
        lines.append(
            "Joining takes the draws of different experiments as independent, given the segment."
        )
    if leak.todays_reward is not None:
        lines.append(
            f"Changes in {leak.reward_word} use the log's rates and segment shares. Best variants are "
            "chosen on one half of the log and valued on the other; ± is two standard errors."
        )
    lines.append(
        "Shares are averages over the log's period. Where an experiment changed its shares, a tracker "
        "that knows the time learns more."
    )
    return lines


def leak_sections(leak: Leak, most: int = ROWS) -> list[Section]:
    """Return all sections, each with a heading, a paragraph and a table of at most `most` rows."""
    return [
        worth_section(leak, most),
        *contexts_sections(leak),
        _summary(leak),
        experiments_section(leak, most),
        beliefs_section(leak.worst, most),
        variants_section(leak, most),
        *joint_sections(leak, most),
        budgets_section(leak),
        Section("Notes", (Bullets(tuple(notes(leak))),)),
    ]


def _summary(leak: Leak) -> Section:
    title = f"What {leak.file} tells a tracker"
    return Section(title, (Paragraph(headline(leak)), columns_table(leak)))


def worth_section(leak: Leak, most: int = ROWS) -> Section:
    """Return whether personalising pays: the ladder of one experiment, or a row for each of several."""
    if not leak.worths:
        words = f"This log cannot say. It would take {'; '.join(leak.not_worth)}."
        return Section(QUESTION, (Paragraph(words),))
    first = leak.worths[0]
    notes = Bullets(tuple(dict.fromkeys([*worth_notes(first), *leak.not_worth])))
    if len(leak.worths) == 1:
        return Section(
            QUESTION,
            (Paragraph(worth_sentence(first)), Table(WORTH_HEADER, worth_rows(first)), notes),
        )
    rows = tuple(
        (
            short(worth.experiment),
            f"{worth.visitors:,}",
            worth.answer,
            short(worth.arm),
            relative(worth.no_privacy.gain, worth),
            f"{relative(worth.no_privacy.low, worth)} to {relative(worth.no_privacy.high, worth)}",
        )
        for worth in leak.worths[:most]
    )
    header = ("experiment", leak.unit, "personalising", "best for everybody", "gain without privacy",
              "limits")  # fmt: skip
    words = f"{short(first.experiment)}: {worth_sentence(first)}{_cut(len(leak.worths), most)}"
    return Section(QUESTION, (Paragraph(words), Table(header, rows), notes))


def contexts_sections(leak: Leak) -> list[Section]:
    """Return which columns would be worth being contexts; empty if none can say."""
    if not leak.contexts:
        return []
    rows = tuple(
        (
            short(worth.attribute),
            f"{len(worth.segments)}",
            worth.answer,
            relative(worth.no_privacy.gain, worth),
            f"{relative(worth.no_privacy.low, worth)} to {relative(worth.no_privacy.high, worth)}",
        )
        for worth in leak.contexts
    )
    experiment = leak.contexts[0].experiment
    within = "" if leak.columns.experiment is None else f" in {short(experiment)}"
    words = (
        f"What the best variant for each value of a column brings over one arm for everybody{within}. "
        "It needs no budget if every script on the page can read that value anyway, as with device, "
        "language and country: declare such a column as the experiment's contexts. Only you can say "
        "whether they can."
    )
    header = ("column", "values", "as a context", "gain over one arm", "limits")
    return [section("Which columns would be worth being contexts?", words, header, rows)]


def columns_table(leak: Leak) -> Table:
    """Return the table of columns and roles."""
    rows = tuple(
        (
            role,
            column,
            "as given" if role in leak.columns.given else f"guessed; --{role} to change",
        )
        for role, column in leak.columns.used()
    )
    return Table(("read as", "column", ""), rows, words=3)


def size_words(leak: Leak) -> str:
    """Describe rows, visitors, experiments and period."""
    tally = leak.tally
    parts = [f"{tally.rows:,} rows"]
    if tally.visitors is not None:
        parts.append(f"{tally.visitors:,} visitors")
    total = len(tally.experiments)
    parts.append(f"{total:,} experiment{'s' if total > 1 else ''}")
    parts.append(f"{len(tally.names['segment'])} segments")
    if leak.period is not None:
        first, last = leak.period
        parts.append(f"{first:%Y-%m-%d} to {last:%Y-%m-%d}")
    return ", ".join(parts)


def experiments_section(leak: Leak, most: int = ROWS) -> Section:
    """Return a table with one row per experiment."""
    rows = tuple(
        (
            short(found.experiment),
            f"{found.visitors:,}",
            ratio(found.ratio.value),
            limits(found.ratio),
            short(found.worst.variant),
            _guessed(found.guesses),
        )
        for found in leak.experiments[:most]
    )
    return section(
        "Experiments, those that provably tell most first",
        f"{size_words(leak)}. The odds ratio is the worst over variants and pairs of segments."
        + _cut(len(leak.experiments), most),
        ("experiment", leak.unit, "odds ratio", "limits", "by variant", "segments guessed right"),
        rows,
    )


def beliefs_section(found: ExperimentLeak, most: int = ROWS) -> Section:
    """Return the beliefs by segment in one experiment."""
    chosen = _leading(found)[:most]
    rows = tuple(
        (
            short(belief.segment),
            percent(belief.before),
            percent(belief.after.value),
            f"{percent(belief.after.low)} to {percent(belief.after.high)}",
            short(belief.variant),
        )
        for belief in chosen
    )
    return section(
        f"Beliefs by segment, {short(found.experiment)}",
        "What a tracker believes before, and after the variant that tells most about the segment."
        + _cut(len(found.beliefs), most),
        ("segment", "before", "after", "limits", "variant"),
        rows,
    )


def variants_section(leak: Leak, most: int = ROWS) -> Section:
    """Return the most revealing variants, over all experiments."""
    every = _variants(leak)
    rows = tuple(
        (
            short(found.variant),
            *((short(experiment),) if len(leak.experiments) > 1 else ()),
            percent(found.share),
            ratio(found.ratio.value),
            limits(found.ratio),
            short(found.segment),
            short(found.other),
        )
        for experiment, found in every[:most]
    )
    experiment = ("experiment",) if len(leak.experiments) > 1 else ()
    return section(
        "Variants that tell most",
        "By how much a shown variant multiplies the odds of one segment against another."
        + _cut(len(every), most),
        ("variant", *experiment, "shown to", "odds ratio", "limits", "speaks for", "against"),
        rows,
    )


def joint_sections(leak: Leak, most: int = ROWS) -> list[Section]:
    """Return the sections about all experiments of a visitor together; empty without them."""
    joint = leak.joint
    if joint is None:
        return []
    chosen = sorted(joint.beliefs, key=lambda belief: belief.before - belief.mean)[:most]
    return [
        section(
            "All experiments of a visitor together",
            joint_sentence(leak) + _cut(len(joint.beliefs), most),
            ("segment", "before", "after, on average", "one in ten above"),
            tuple(
                (short(b.segment), percent(b.before), percent(b.mean), percent(b.top_tenth))
                for b in chosen
            ),
        )
    ]


def budgets_section(leak: Leak) -> Section:
    """Return the effect of budgets."""
    joined = leak.joint is not None
    names = [cost.mechanism for cost in leak.budgets[0].costs] if leak.budgets else []
    rows = tuple(
        (
            f"{effect.budget:g}",
            ratio(effect.factor),
            percent(effect.belief),
            *((percent(effect.joint_belief or 0),) if joined else ()),
            *(_cost_words(cost, leak.todays_reward) for cost in effect.costs),
        )
        for effect in leak.budgets
    )
    header = ("budget", "odds ratio", "belief", *(("after all",) if joined else ()), *names)
    return section("What a privacy budget would change", _budget_words(leak), header, rows)


def _cost_words(cost: MechanismCost, total: float | None) -> str:
    change = change_words(cost.change, cost.error, total)
    return f"{percent(cost.belief)}, {change}" if change else percent(cost.belief)


def _budget_words(leak: Leak) -> str:
    belief = leak.headline
    sentences = [
        "A budget promises a largest odds ratio, and with it a largest belief in "
        f"{belief.segment}: {percent(belief.before)} before, {percent(belief.after.value)} today."
    ]
    if leak.joint is not None:
        sentences.append(
            f"“After all” is the promise after {leak.joint.met_most} experiments with this budget each; "
            "“deniable allocate” divides one budget instead."
        )
    changes = f", and the change in {leak.reward_word}" if leak.todays_reward else ""
    sentences.append(
        f"The last columns are what would happen: the belief{changes}, if each experiment showed a "
        "randomized response of the variant chosen today"
        + (", or of each segment's best variant." if leak.todays_reward is not None else ".")
    )
    loose = [f"{e.budget:g}" for e in leak.budgets if e.factor >= leak.ratio_high]
    if loose:
        sentences.append(f"Today's tables already keep a budget of {loose[0]}.")
    return " ".join(sentences)


def belief_pictures(leak: Leak) -> list[tuple[str, int, int, str]]:
    """Return (segment, before, after, words) of the segments that leak most, out of 100 people."""
    pictures = []
    for belief in _leading(leak.worst)[:_PICTURES]:
        before, after = out_of_100(belief)
        caption = f"{before} of 100 before, {after} after “{short(belief.variant)}”"
        pictures.append((short(belief.segment), before, after, caption))
    return pictures


def ratio_spans(leak: Leak) -> list[tuple[str, float, float, float]]:
    """Return (variant, estimate, low, high) of the most revealing variants."""
    several = len(leak.experiments) > 1
    return [
        (
            f"{short(experiment)}: {short(found.variant)}" if several else short(found.variant),
            found.ratio.value,
            found.ratio.low,
            found.ratio.high,
        )
        for experiment, found in _variants(leak)[:_SPANS]
    ]


def budget_points(leak: Leak) -> BudgetFigures:
    """Return the data of the budget charts."""
    from deniable.charts.leak import BudgetFigures

    total = leak.todays_reward
    costs = [
        (
            effect.budget,
            cost.mechanism,
            cost.change / total,
            None if cost.error is None else cost.error / total,
        )
        for effect in leak.budgets
        for cost in effect.costs
        if total and cost.change is not None
    ]
    return BudgetFigures(
        budgets=[effect.budget for effect in leak.budgets],
        segment=short(leak.headline.segment),
        before=leak.headline.before,
        today=leak.headline.after.value,
        costs=costs,
    )


def out_of_100(belief: SegmentBelief) -> tuple[int, int]:
    """Return whole people before and after, out of 100."""
    before = round(100 * belief.before)
    return before, max(before, round(100 * belief.after.value))


def ratio(value: float) -> str:
    """Format a factor with three digits.

    >>> ratio(4.2), ratio(41.26), ratio(1234.5), ratio(float("inf"))
    ('4.20', '41.3', '1,234', '∞')
    """
    if value == inf:
        return "∞"
    return f"{value:.{_decimals(value)}f}" if value < 1_000 else f"{value:,.0f}"


def limits(estimate: Estimate) -> str:
    """Format the limits of a factor, the lower rounded down and the upper rounded up."""
    low, high = 10 ** _decimals(estimate.low), 10 ** _decimals(estimate.high)
    bottom = floor(estimate.low * low + 1e-9) / low
    top = ceil(estimate.high * high - 1e-9) / high if estimate.high < inf else inf
    return f"{ratio(bottom)} to {ratio(top)}"


def _decimals(value: float) -> int:
    return 2 if value < 10 else 1 if value < 100 else 0


def spanned(estimate: Estimate) -> str:
    """Format a factor with its limits.

    >>> spanned(Estimate(4.0713, 3.6151, 4.6249))
    '4.07 (3.61 to 4.63)'
    """
    return f"{ratio(estimate.value)} ({limits(estimate)})"


def change_words(change: float | None, error: float | None, total: float | None) -> str:
    """Format a change of rewards, relative to today, with two standard errors.

    >>> change_words(-120.0, 15.0, 4000.0)
    '-3.0% ±0.8%'
    """
    if change is None or not total:
        return ""
    if change == 0 and not error:
        return "as today"
    width = "" if error is None else f" ±{abs(200 * error / total):.1f}%"
    return f"{100 * change / total:+.1f}%{width}"


def short(name: str) -> str:
    """Shorten a name to fit into a table."""
    return name if len(name) <= _LONG else name[: _LONG - 1] + "…"


def _leading(found: ExperimentLeak) -> list[SegmentBelief]:
    """Return the segments whose odds provably rise most."""

    def rise(belief: SegmentBelief) -> float:
        odds = belief.after.low / max(1 - belief.after.low, 1e-300)
        return odds * (1 - belief.before) / belief.before

    return sorted(found.beliefs, key=rise, reverse=True)


def _variants(leak: Leak) -> list[tuple[str, VariantLeak]]:
    every = [
        (found.experiment, variant) for found in leak.experiments for variant in found.variants
    ]
    return sorted(every, key=lambda pair: -pair[1].ratio.low)


def _guessed(guesses: Guesses | None) -> str:
    return "" if guesses is None else f"{percent(guesses.before)} → {percent(guesses.after.value)}"


def _of(leak: Leak, found: ExperimentLeak) -> str:
    return f" of {found.experiment}" if len(leak.experiments) > 1 else ""


def _cut(total: int, most: int) -> str:
    return f" The first {most} of {total:,}." if total > most else ""

"""The report as one self-contained HTML file, without scripts or external resources."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from deniable._formatting import percent
from deniable.charts.leak import budget_beliefs, budget_costs, people_picture, ratio_chart
from deniable.charts.save import chart_svg
from deniable.leak import words
from deniable.leak.report import Leak
from deniable.report.content import Bullets, Figures, Paragraph, Section
from deniable.report.html import Page, page_html

if TYPE_CHECKING:
    from markupsafe import Markup

_ROWS = 25
_WIDTH = 400


def report_page(leak: Leak) -> str:
    """Return the report as one file."""
    return page_html(report(leak))


def report(leak: Leak) -> Page:
    """Return the report's content."""
    title = f"What {leak.file} tells a tracker"
    return Page(
        title=title,
        byline=words.size_words(leak),
        headline=words.headline(leak),
        tone="",
        warning="For people of the firm only: this page names segments and what gives them away.",
        figures=tuple(_figures(leak)),
        sections=(
            words.worth_section(leak, _ROWS),
            *words.contexts_sections(leak),
            _people(leak),
            words.beliefs_section(leak.worst, _ROWS),
            words.variants_section(leak, _ROWS).illustrated(_ratios(leak)),
            *([words.experiments_section(leak, _ROWS)] if len(leak.experiments) > 1 else []),
            *words.joint_sections(leak, _ROWS),
            words.budgets_section(leak).illustrated(*_budget_charts(leak)),
            Section(
                "How to read this",
                (
                    Bullets(tuple(words.notes(leak))),
                    words.columns_table(leak),
                    Paragraph(f"Made with: deniable leak {leak.file}"),
                ),
            ),
        ),
    )


def _people(leak: Leak) -> Section:
    drawn = [
        chart_svg(people_picture(before, after, name, words=caption), f"people{i}-", caption)
        for i, (name, before, after, caption) in enumerate(words.belief_pictures(leak))
    ]
    key = (
        "Black: placed in the segment before. Red: added once the variant was seen. Grey: everybody "
        "else."
    )
    blocks = (Figures(tuple(drawn)), Paragraph(key))
    return Section("Before and after, out of 100 visitors", blocks)


def _ratios(leak: Leak) -> Markup:
    return chart_svg(
        ratio_chart(words.ratio_spans(leak), width=2 * _WIDTH),
        "ratios-",
        "Odds ratios of the variants that tell most, with limits",
    )


def _budget_charts(leak: Leak) -> Iterator[Markup]:
    budgets = words.budget_points(leak)
    beliefs = budget_beliefs(
        budgets.budgets,
        segment=budgets.segment,
        before=budgets.before,
        today=budgets.today,
        width=_WIDTH,
    )
    yield chart_svg(beliefs, "bound-", "The largest belief under each budget")
    if budgets.costs:
        costs = budget_costs(budgets.costs, reward=leak.reward_word, width=_WIDTH)
        yield chart_svg(costs, "costs-", f"Change in {leak.reward_word} under each budget")


def _figures(leak: Leak) -> list[tuple[str, str, str]]:
    """Return (value, description, limits or context) for the figures at the top."""
    worst = leak.worst
    shown = [
        (
            f"× {words.ratio(worst.ratio.value)}",
            "worst odds ratio",
            f"limits {words.limits(worst.ratio)}",
        ),
        (
            percent(leak.headline.after.value),
            f"belief in {words.short(leak.headline.segment)}, after one variant",
            f"{percent(leak.headline.before)} before",
        ),
    ]
    guesses = worst.guesses if leak.joint is None else leak.joint.guesses
    if guesses is not None:
        seen = "one variant seen" if leak.joint is None else "all variants seen"
        shown.append(
            (
                percent(guesses.after.value),
                f"segments guessed right, {seen}",
                f"{percent(guesses.before)} by naming the largest segment",
            )
        )
    if leak.joint is not None:
        shown.append(
            (
                f"× {words.ratio(leak.joint.moved[0.9][0])}",
                "odds of one visitor in ten, all experiments",
                f"proven {words.ratio(leak.joint.moved[0.9][1])}",
            )
        )
    return shown

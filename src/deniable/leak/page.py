"""The report as one self-contained HTML file, without scripts or external resources."""

from __future__ import annotations

from importlib.resources import files

from deniable.charts.leak import budget_beliefs, budget_costs, people_picture, ratio_chart
from deniable.charts.save import chart_svg
from deniable.leak import words
from deniable.leak.report import Leak

_ROWS = 25
_WIDTH = 400


def report_page(leak: Leak) -> str:
    """Return the whole page."""
    from jinja2 import Environment

    template = (files("deniable.leak") / "report.html").read_text(encoding="utf-8")
    page = Environment(autoescape=True, trim_blocks=True, lstrip_blocks=True).from_string(template)
    budgets = words.budget_points(leak)
    return page.render(
        leak=leak,
        size=words.size_words(leak),
        headline=words.headline(leak),
        figures=_figures(leak),
        people=[
            {
                "words": caption,
                "segment": name,
                "svg": chart_svg(
                    people_picture(before, after, name, words=caption), f"people{i}-", caption
                ),
            }
            for i, (name, before, after, caption) in enumerate(words.belief_pictures(leak))
        ],
        beliefs=words.beliefs_section(leak.worst, _ROWS),
        variants=words.variants_section(leak, _ROWS),
        ratios=chart_svg(
            ratio_chart(words.ratio_spans(leak), width=2 * _WIDTH),
            "ratios-",
            "Odds ratios of the variants that tell most, with limits",
        ),
        budgets=words.budgets_section(leak),
        bound=chart_svg(
            budget_beliefs(
                budgets.budgets,
                segment=budgets.segment,
                before=budgets.before,
                today=budgets.today,
                width=_WIDTH,
            ),
            "bound-",
            "The largest belief under each budget",
        ),
        costs=chart_svg(
            budget_costs(budgets.costs, reward=leak.reward_word, width=_WIDTH),
            "costs-",
            f"Change in {leak.reward_word} under each budget",
        )
        if budgets.costs
        else None,
        experiments=words.experiments_section(leak, _ROWS),
        joint=words.joint_sections(leak, _ROWS),
        columns=words.columns_table(leak),
        notes=words.notes(leak),
    )


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
            words.percent(leak.headline.after.value),
            f"belief in {words.short(leak.headline.segment)}, after one variant",
            f"{words.percent(leak.headline.before)} before",
        ),
    ]
    guesses = worst.guesses if leak.joint is None else leak.joint.guesses
    if guesses is not None:
        seen = "one variant seen" if leak.joint is None else "all variants seen"
        shown.append(
            (
                words.percent(guesses.after.value),
                f"segments guessed right, {seen}",
                f"{words.percent(guesses.before)} by naming the largest segment",
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

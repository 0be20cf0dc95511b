"""Numbers and sentences shared by several documents.

Limits are rounded so that they stay true: "at most" upwards, "at least" downwards.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from decimal import ROUND_CEILING, ROUND_FLOOR, Context, Decimal
from fractions import Fraction

from deniable.documents.content import Block, Bullets, Field, Fields, Grid, Paragraph, Section
from deniable.documents.facts import Facts
from deniable.errors import NANO
from deniable.privacy.exact import exp_floor

PRIORS = (Fraction(1, 100), Fraction(1, 10), Fraction(1, 5), Fraction(1, 2))
"""A watcher's prior beliefs, for which limits are stated."""

MOST_LISTED = 40
"""Maximum number of account lines listed individually."""

MOST_NAMED = 12
"""Maximum number of names in a sentence."""

_TRILLION = 10**12
_DIGITS = (1, 2, 3, 4, 6, 9)


def nats(nano: int) -> str:
    """Format nano-nats as nats, exactly.

    >>> nats(1_500_000_000), nats(0), nats(333_333_333)
    ('1.5', '0', '0.333333333')
    """
    whole, rest = divmod(nano, NANO)
    return f"{whole:,}" + (f".{rest:09d}".rstrip("0") if rest else "")


def unit(nano: int) -> str:
    """Format nano-nats as nats with their unit.

    >>> unit(1_000_000_000), unit(2_500_000_000)
    ('1 nat', '2.5 nats')
    """
    return f"{nats(nano)} nat{'' if nano == NANO else 's'}"


def factor(nano: int) -> str:
    """Return the largest factor by which a budget lets the odds change, rounded up to three digits.

    >>> factor(1_000_000_000), factor(0), factor(12_000_000_000)
    ('2.72', '1', '163,000')
    """
    bound = exp_floor(nano)
    if bound > _TRILLION:
        return "more than a trillion"
    context = Context(prec=3, rounding=ROUND_CEILING)
    found = context.divide(Decimal(bound.numerator), Decimal(bound.denominator))
    return f"{found:,.0f}" if found >= 100 else f"{found.normalize():f}"


def highest(prior: Fraction, nano: int) -> Fraction:
    """Return the strongest possible belief: p r / (p r + 1 - p), with r a fraction below e^budget.

    >>> float(round(highest(Fraction(1, 5), 10**9), 6))
    0.40461
    """
    ratio = exp_floor(nano)
    return prior * ratio / (prior * ratio + 1 - prior)


def lowest(prior: Fraction, nano: int) -> Fraction:
    """Return the weakest possible belief: p / (p + (1 - p) r).

    >>> float(round(lowest(Fraction(1, 5), 10**9), 6))
    0.084224
    """
    return prior / (prior + (1 - prior) * exp_floor(nano))


def at_most(share: Fraction) -> str:
    """Format a share as a percentage, rounded up, with more digits if that would give 100%.

    >>> at_most(Fraction(40461, 100000)), at_most(Fraction(99996, 100000)), at_most(Fraction(1))
    ('40.5%', '99.996%', '100%')
    """
    if share == 1:
        return "100%"
    for digits in _DIGITS:
        found = _percent(share, digits, ROUND_CEILING)
        if found < 100:
            return f"{found}%"
    return "practically 100%"


def at_least(share: Fraction) -> str:
    """Format a share as a percentage, rounded down, with more digits if that would give 0%.

    >>> at_least(Fraction(84222, 10**6)), at_least(Fraction(1, 30000)), at_least(Fraction(0))
    ('8.4%', '0.003%', '0%')
    """
    if not share:
        return "0%"
    for digits in _DIGITS:
        found = _percent(share, digits, ROUND_FLOOR)
        if found > 0:
            return f"{found}%"
    return "practically 0%"


def _percent(share: Fraction, digits: int, rounding: str) -> Decimal:
    scaled = share * 100 * 10**digits
    whole = scaled.__ceil__() if rounding == ROUND_CEILING else scaled.__floor__()
    return Decimal(whole).scaleb(-digits)


def plain_percent(share: Fraction) -> str:
    """Format a share that is known exactly.

    >>> plain_percent(Fraction(1, 10)), plain_percent(Fraction(1, 8))
    ('10%', '12.5%')
    """
    return f"{float(share) * 100:g}%"


def day(time: datetime | None) -> str:
    """Format a date for people."""
    return "open" if time is None else f"{time:%-d %B %Y}"


def moment(time: datetime) -> str:
    """Format a time in UTC, to the minute."""
    return f"{time:%-d %B %Y, %H:%M} UTC"


def counted(number: int, word: str) -> str:
    """Format a number with its noun.

    >>> counted(1, "table"), counted(1200, "table")
    ('1 table', '1,200 tables')
    """
    return f"{number:,} {word}{'' if number == 1 else 's'}"


def name(text: str) -> str:
    """Quote a name inside a sentence, isolated from the surrounding text direction.

    >>> name("checkout")
    '“checkout”'
    """
    return f"“{text}”" if text.isascii() else f"“\u2068{text}\u2069”"


def names(texts: Sequence[str], most: int = MOST_NAMED) -> str:
    """List names, truncated if there are many.

    >>> names(["a", "b"]), names([str(i) for i in range(14)])[-22:]
    ('“a”, “b”', ' “10”, “11” and 2 more')
    """
    shown = ", ".join(map(name, texts[:most]))
    more = len(texts) - most
    return shown if more <= 0 else f"{shown} and {more:,} more"


def period(facts: Facts) -> str:
    """Describe when the experiment ran."""
    if facts.started is None:
        return "not started"
    if facts.stopped is not None:
        return f"{day(facts.started)} to {day(facts.stopped)}"
    return f"since {day(facts.started)}, {facts.told.status}"


def beliefs(nano: int) -> Grid:
    """Tabulate the strongest and weakest possible beliefs, by prior belief."""
    return Grid(
        "What a watcher can believe about a segment before and after it sees the version.",
        ("believed before", *map(plain_percent, PRIORS)),
        (
            ("after: at most", *(at_most(highest(prior, nano)) for prior in PRIORS)),
            ("after: at least", *(at_least(lowest(prior, nano)) for prior in PRIORS)),
        ),
    )


WATCHER = (
    "The watcher is anybody outside the firm who sees which version of a page a visitor is "
    "shown: an analytics script, an advertising network, a browser extension. It may know this "
    "software, the budgets and how often each version succeeds, and may send visitors of its own. "
    "It does not see the firm's servers or its store."
)


def segment_words(facts: Facts) -> str:
    """Explain what a segment is, and list them."""
    listed = facts.told.segments
    return (
        "A segment is the group that the firm puts a visitor in before a version is chosen. It is the "
        f"secret that is protected. This experiment distinguishes {counted(len(listed), 'segment')}: "
        f"{names(listed)}. Visitors of any other segment are shown versions that do not depend on it."
    )


def promise_words(facts: Facts) -> str:
    """State the promise in one paragraph."""
    budget = facts.promise.budget_nano
    own = len(set(facts.promise.budgets_nano)) > 1
    return (
        "Suppose somebody watches which version of the page a visitor is shown in this experiment. "
        "Their odds that the visitor belongs to any one segment rather than another change by at "
        f"most the factor {factor(budget)} (a privacy budget of {unit(budget)})"
        + ("; for single versions by less, see the annex" if own else "")
        + ". We draw one version per visitor, once, from published tables of chances; the visitor "
        "keeps it."
    )


def trace_words(facts: Facts) -> str:
    """State what is promised about arms shown to others later."""
    trace = facts.told.trace_nano
    if trace is None:
        return (
            "What others are shown later may carry traces of a visitor's response: there is no trace "
            "budget, and nothing is promised about it."
        )
    return (
        "What others are shown later is part of the promise: with a trace budget of "
        f"{unit(trace)}, the visitor's own version and everything that anybody is shown later "
        f"move the odds by at most the factor {factor(facts.cost_nano)} together."
    )


def grade_words(facts: Facts) -> str:
    """State whether the promise holds for watchers who do not know when a visitor first came."""
    promise = facts.promise
    if promise.stated_grade != "across time":
        if len(facts.proofs) > 1:
            how = ["switched off"] if facts.switched_off or not facts.added else []
            how += ["added"] if facts.added else []
            why = (
                f"a version was {' or '.join(how)}, and the tables before and after that keep the "
                "budget each, not together"
            )
        else:
            why = "each table keeps the budget, and tables follow each other as more is learned"
        return (
            f"This promise is given the time of the first visit: {why}. A watcher who does not know "
            "when a visitor first came could learn more."
        )
    if promise.late and facts.settled is None:
        return (
            "This promise is across time: it also holds for a watcher who does not know when a "
            "visitor first came. So far everybody has the same chances, whatever their segment."
        )
    if promise.late and facts.settled is not None:
        return (
            "This promise is across time: it also holds for a watcher who does not know when a "
            f"visitor first came, among all visitors first drawn since {moment(facts.settled)}. "
            "Before that everybody had the same chances, whatever their segment; whether somebody "
            "came before is not hidden."
        )
    return (
        "This promise is across time: it also holds for a watcher who does not know when a "
        "visitor first came."
    )


def account_words(facts: Facts) -> str:
    """Describe all experiments together."""
    account = facts.account
    if account is None:
        return "The firm has set no budget for all experiments together."
    tenth = PRIORS[1]
    return (
        f"A visitor may meet several experiments, and their budgets add up. On {day(facts.at)}, "
        f"{counted(account.experiments, 'experiment')} "
        f"count{'s' if account.experiments == 1 else ''} in the firm's account: together "
        f"{unit(account.counting_nano)}, of at most {nats(account.budget_nano)} in any "
        f"{counted(account.window_days, 'day')}. A watcher who sees a visitor's versions in all "
        f"of them can go from a belief of {plain_percent(tenth)} to at most "
        f"{at_most(highest(tenth, account.counting_nano))}; the firm's limit allows "
        f"{at_most(highest(tenth, account.budget_nano))}."
    )


def not_covered(facts: Facts) -> tuple[str, ...]:
    """List what the promise does not cover."""
    found = [
        "What visitors click. Where click rates differ by segment, a click is evidence, and no "
        "choice of versions hides it.",
        "A segment that can be read from the page itself, its address, or which pages have "
        "experiments.",
    ]
    if facts.told.trace_nano is None:
        found.append(
            "Traces of a visitor's response in what others are shown later: there is no trace budget."
        )
    found += [
        "One person with several ids (a second device, a cookie and a login): each id counts "
        "separately.",
        "Windows add up: each new window of the firm's budget allows its factor again.",
        "People inside the firm, and anybody who can read its store, backups or private exports.",
    ]
    return tuple(found)


def exact_section(facts: Facts) -> Section:
    """Return the exact table of each version."""
    from deniable.audit.exact import decimal

    promise = facts.promise
    blocks: list[Block] = []
    for proof in facts.proofs:
        when = _when(facts, proof.version)
        over = (
            f"all {counted(proof.n_tables, 'published table')}"
            if proof.n_tables > 1
            else "its published table"
            if proof.n_tables
            else "the first table, before anybody came"
        )
        rows = []
        for arm in proof.arms:
            ratio = arm.promised_ratio
            rows.append(
                (
                    promise.arms[arm.arm],
                    nats(arm.budget_nano),
                    f"{arm.most:,}",
                    f"{arm.least:,}",
                    "some only" if ratio is None else decimal(ratio),
                    decimal(arm.bound),
                    "yes" if arm.holds else "NO",
                )
            )
        blocks.append(
            Grid(
                f"{_sentence(when + 'chances')} out of 2^64 = 18,446,744,073,709,551,616, over all "
                f"segments and {over}.",
                ("version (arm)", "budget", "at most", "at least", "worst factor", "bound", "kept"),
                tuple(rows),
                small=True,
            )
        )
    fractions = [
        f"{_when(facts, proof.version)}{promise.arms[arm.arm]}"
        + f": {arm.promised_ratio.numerator}/{arm.promised_ratio.denominator}"
        for proof in facts.proofs
        for arm in proof.arms
        if arm.promised_ratio is not None
    ]
    blocks += [Paragraph("The worst factors as fractions:"), Bullets(tuple(fractions))]
    return Section("Annex A. The exact tables", tuple(blocks), annex=True)


def _when(facts: Facts, version: int) -> str:
    """Return which part of the experiment's life a version's tables are from; empty for all of it."""
    by_version = {
        since: f"{name(arm)} was switched off" for arm, since in facts.switched_off.items()
    }
    by_version |= {since: f"{name(arm)} was added" for arm, since in facts.added.items()}
    parts = []
    if version in by_version:
        parts.append(f"since {by_version[version]}")
    if version + 1 in by_version:
        parts.append(f"until {by_version[version + 1]}")
    return f"{', '.join(parts)}: " if parts else ""


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:]


def account_section(facts: Facts, title: str) -> Section:
    """List what counts in the firm's account."""
    account = facts.account
    if account is None:
        return Section(title, (Bullets(("The firm has set no budget.",)),))
    shown = account.shares[:MOST_LISTED]
    rows = [
        (
            share.key or "debit of a restored or older store",
            share.layer or "none",
            "while it runs" if share.until is None else day(share.until),
            nats(share.nano),
        )
        for share in shown
    ]
    rest = account.shares[MOST_LISTED:]
    if rest:
        together = sum(share.nano for share in rest)
        rows.append((f"{len(rest):,} more", "", "", nats(together)))
    fields = Fields(
        (
            Field("Counts on this date", unit(account.counting_nano)),
            Field("Most that counted at once under this budget", unit(account.peak_nano)),
            Field(
                "The firm's limit",
                f"{unit(account.budget_nano)} in any {counted(account.window_days, 'day')}",
            ),
        )
    )
    grid = Grid(
        "Lines of one layer are alternatives: a visitor is in one slot of it, and the layer "
        "counts with its largest sum. All others add up.",
        ("experiment", "layer", "counts until", "nats"),
        tuple(rows),
        words=3,
    )
    return Section(title, (fields, grid))

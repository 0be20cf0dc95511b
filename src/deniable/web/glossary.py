"""Words that a page explains where they stand: pointed at, or reached by the keyboard.

The same words are in docs/glossary.md, at more length.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from markupsafe import Markup, escape

WORDS: dict[str, str] = {
    "arm": "One of the versions that the experiment shows: a button, a photo, an offer.",
    "nat": "The unit of privacy budgets. A budget of 1 nat lets the odds be multiplied by at most 2.72, "
    "2 nats by 7.39, 3 nats by 20.1.",
    "odds": "A probability divided by that of the opposite. 20% is odds of 1 to 4; twice those "
    "odds, 2 to 4, is 33%.",
    "segment": "The group that the firm puts a visitor in. It is the secret that is protected.",
    "watcher": "Anyone outside the firm who sees what visitors are shown: an analytics script, an "
    "advertising network, a browser extension.",
    "across time": "The promise also holds for a watcher who does not know when a visitor first came.",
    "given the time": "The promise holds for a watcher who knows when a visitor first came. A watcher "
    "who does not know could learn a little more, because chances change over time.",
}
"""Word -> what it means, in at most two sentences."""

_FOUND = re.compile(rf"\b({'|'.join(WORDS)})(s?)\b")


def glossed(text: str, prefix: str) -> Markup:
    """A sentence in which the first of each word can be pointed at; everything else is escaped.

    Args:
        text: plain text.
        prefix: begins the ids, which must be unique on a page.

    >>> print(glossed("a < b", "x"))
    a &lt; b
    >>> "odds" in glossed("The odds of odds.", "x"), glossed("odds odds", "x").count("tooltip")
    (True, 1)
    """
    return Markup("").join(_parts(text, prefix))


def _parts(text: str, prefix: str) -> Iterator[Markup]:
    told: set[str] = set()
    end = 0
    for found in _FOUND.finditer(text):
        word = found[1]
        if word in told:
            continue
        told.add(word)
        yield escape(text[end : found.start()])
        end = found.end()
        name = f"{prefix}-{word.replace(' ', '-')}"
        yield Markup(
            '<span class="term" tabindex="0" aria-describedby="{0}">{1}</span>'
            '<span class="tip" role="tooltip" id="{0}">{2}</span>'
        ).format(name, found[0], WORDS[word])
    yield escape(text[end:])

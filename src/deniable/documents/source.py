"""Makes the text of a document from its template and the facts.

Templates are Markdown with Jinja2. A chunk between blank lines is a paragraph, a list, a table (its
caption above it) or, without a line of dashes, labels with values. A value that starts with `___` is a
blank, followed by what to fill in. A heading may end in `{annex}` (it starts a page) or `{paper}`
(pages have something else instead), a caption in `{small}`. Facts are escaped, so no name can become
any of this.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING

from deniable._formatting import counted, short_percent
from deniable.documents import limits
from deniable.report.content import (
    Block,
    Bullets,
    Field,
    Fields,
    Paragraph,
    Section,
    Signatures,
    Table,
)

if TYPE_CHECKING:
    from jinja2 import Environment
    from markupsafe import Markup

_LINE_ENDS = re.compile(r"[\n\r\v\f\x1c-\x1e\x85\u2028\u2029]+")
_MARKUP = re.compile(r"[\\|#\-_{}:]")
_CELL = re.compile(r"(?:\\.|[^|\\])+")
_FLAG = re.compile(r" \{(annex|paper|small)\}$")
_BLANK = "___"
_SIGNED = "signed:"


def rendered(template: str, values: Mapping[str, object]) -> str:
    """Return the template's text with the values filled in."""
    return _environment().get_template(f"{template}.md").render(values)


def parsed(text: str) -> tuple[str, tuple[Field, ...], tuple[Section, ...]]:
    r"""Return title, cover and sections.

    >>> title, cover, sections = parsed("# A\n\n| Firm | ___ its name |\n\n## One {annex}\n\nText.")
    >>> title, cover[0].hint, sections[0].annex, sections[0].text
    ('A', 'its name', True, 'Text.')
    """
    chunks = [chunk.split("\n") for chunk in re.split(r"\s*\n\s*\n|\s*\n(?=#)", text.strip())]
    title = _plain(chunks[0][0].removeprefix("# "))
    cover = _fields(_joined(chunks[1], "|"))
    sections: list[tuple[str, list[Block]]] = []
    for lines in chunks[2:]:
        if lines[0].startswith("## "):
            sections.append((lines[0].removeprefix("## "), []))
        else:
            sections[-1][1].append(_block([line.strip() for line in lines]))
    return title, cover.rows, tuple(_section(*each) for each in sections)


def _section(heading: str, blocks: Sequence[Block]) -> Section:
    flag = _FLAG.search(heading)
    name = "" if flag is None else flag[1]
    title = _plain(_FLAG.sub("", heading))
    return Section(title, tuple(blocks), annex=name == "annex", paper=name == "paper")


def _block(lines: Sequence[str]) -> Block:
    if lines[0].startswith("- "):
        return Bullets(tuple(_plain(item[2:]) for item in _joined(lines, "- ")))
    if lines[0].startswith(_SIGNED):
        return Signatures(_cells(lines[0].removeprefix(_SIGNED)))
    start = next((n for n, line in enumerate(lines) if line.startswith("|")), None)
    if start is None:
        return Paragraph(_plain(" ".join(lines)))
    rows = _joined(lines[start:], "|")
    if len(rows) < 2 or not rows[1].startswith("|---"):
        return _fields(rows)
    caption = " ".join(lines[:start])
    return Table(
        _cells(rows[0]),
        tuple(_cells(row) for row in rows[2:]),
        words=rows[1].count("---|"),
        small=_FLAG.search(caption) is not None,
        caption=_plain(_FLAG.sub("", caption)),
    )


def _fields(rows: Sequence[str]) -> Fields:
    return Fields(tuple(_field(row) for row in rows))


def _field(row: str) -> Field:
    label, value = (cell.strip() for cell in _CELL.findall(row))
    if value.startswith(_BLANK):
        return Field(_plain(label), hint=_plain(value.removeprefix(_BLANK)))
    return Field(_plain(label), _plain(value))


def _joined(lines: Sequence[str], start: str) -> list[str]:
    """Join every line that does not begin an item to the one before it; "|" alone ends a row."""
    items: list[str] = []
    for line in lines:
        if line.startswith(start) and line != "|":
            items.append(line)
        else:
            items[-1] += f" {line.strip()}"
    return items


def _cells(row: str) -> tuple[str, ...]:
    return tuple(_plain(cell) for cell in _CELL.findall(row.strip().strip("|")))


def _plain(text: str) -> str:
    return re.sub(r"\\(.)", r"\1", text.strip())


def _escaped(value: object) -> Markup:
    """Escape a fact, so that it cannot become markup; text of the templates stays as it is."""
    from markupsafe import Markup

    if isinstance(value, Markup):
        return value
    return Markup(_MARKUP.sub(r"\\\g<0>", _LINE_ENDS.sub(" ", str(value))))


@cache
def _environment() -> Environment:
    from jinja2 import Environment, PackageLoader, StrictUndefined

    made = Environment(
        loader=PackageLoader("deniable.documents"),
        autoescape=True,
        finalize=_escaped,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,
        newline_sequence="\n",
    )
    made.filters.update(
        at_least=limits.at_least,
        at_most=limits.at_most,
        counted=counted,
        day=limits.day,
        divided_log_odds=limits.divided_log_odds,
        factor=limits.factor,
        highest=limits.highest,
        lowest=limits.lowest,
        mean_log_odds=limits.mean_log_odds,
        moment=limits.moment,
        name=limits.name,
        names=limits.names,
        nats=limits.nats,
        percent=short_percent,
        share=limits.share,
        unit=limits.unit,
        wrong=limits.wrong,
    )
    made.globals.update(
        most_listed=limits.MOST_LISTED,
        most_named=limits.MOST_NAMED,
        priors=limits.PRIORS,
        tenth=limits.PRIORS[1],
    )
    return made

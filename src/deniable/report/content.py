"""What a report says: sections of paragraphs, lists, tables, charts, blanks and signature lines.

All text is plain. `terminal`, `html` and `markdown` decide how it looks and escape it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from markupsafe import Markup


@dataclass(frozen=True)
class Paragraph:
    """One paragraph."""

    text: str


@dataclass(frozen=True)
class Bullets:
    """A list of short paragraphs."""

    items: tuple[str, ...]


@dataclass(frozen=True)
class Field:
    """A label with its value.

    Attributes:
        label: the label.
        value: the value; empty if people fill it in.
        hint: what to fill in.
    """

    label: str
    value: str = ""
    hint: str = ""


@dataclass(frozen=True)
class Fields:
    """Labels with values, one below the other."""

    rows: tuple[Field, ...]


@dataclass(frozen=True)
class Table:
    """A table.

    Attributes:
        header: one name per column.
        rows: rows of text.
        words: number of leading text columns; the others are numbers.
        small: whether it has long numbers.
        caption: caption.
    """

    header: tuple[str, ...] = ()
    rows: tuple[tuple[str, ...], ...] = ()
    words: int = 1
    small: bool = False
    caption: str = ""


@dataclass(frozen=True)
class Figures:
    """Charts, as SVG, for HTML only.

    Attributes:
        images: side by side where there is room.
        beside: whether they stand beside the text that follows.
    """

    images: tuple[Markup, ...]
    beside: bool = False


@dataclass(frozen=True)
class Signatures:
    """Signature lines: name, position, place and date, signature."""

    parties: tuple[str, ...]


Block: TypeAlias = Paragraph | Bullets | Fields | Table | Figures | Signatures


@dataclass(frozen=True)
class Section:
    """A heading with its content.

    Attributes:
        title: the heading.
        blocks: in order.
        annex: whether it starts on a new page.
        paper: whether pages leave it out, because they have something else instead.
        folded: whether it is shown only on request.
    """

    title: str
    blocks: tuple[Block, ...]
    annex: bool = False
    paper: bool = False
    folded: bool = False

    @property
    def text(self) -> str:
        """Its paragraphs."""
        return "\n".join(block.text for block in self.blocks if isinstance(block, Paragraph))

    @property
    def table(self) -> Table:
        """Its first table; an empty one if it has none."""
        return next((block for block in self.blocks if isinstance(block, Table)), Table())

    def illustrated(self, *images: Markup) -> Section:
        """Return the section with charts before its first table."""
        place = next(
            (n for n, b in enumerate(self.blocks) if isinstance(b, Table)), len(self.blocks)
        )
        figures = Figures(images)
        return replace(self, blocks=(*self.blocks[:place], figures, *self.blocks[place:]))


def section(
    title: str,
    text: str = "",
    header: tuple[str, ...] = (),
    rows: tuple[tuple[str, ...], ...] = (),
    *,
    words: int = 1,
    small: bool = False,
) -> Section:
    """Return a section with a paragraph and a table, each left out if it is empty.

    >>> section("Arms", "Two of them.").blocks
    (Paragraph(text='Two of them.'),)
    """
    blocks: list[Block] = [Paragraph(text)] if text else []
    if rows:
        blocks.append(Table(header, rows, words, small))
    return Section(title, tuple(blocks))

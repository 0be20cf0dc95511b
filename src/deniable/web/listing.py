"""Lists that scale: what the address asks for, links to other pages and orders, and CSV files."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from urllib.parse import urlencode

from starlette.requests import Request
from starlette.responses import Response

from deniable.storage.listing import ORDERS, Search
from deniable.web import responses

STATUSES = ("running", "paused", "draft", "stopped")
LIVE = ("running", "paused")
SIZE = 25
MOST_IN_A_FILE = 10_000
LATEST_FIRST = ("visitors", "started", "created", "budget")
"""Orders that begin with the largest."""


@dataclass(frozen=True)
class Listing:
    """What the address of a list says.

    Attributes:
        path: of the page.
        q: words in the name or a tag.
        status: one, or empty for the usual ones.
        owner: exactly this one.
        tag: exactly this one.
        sort: one of ORDERS, with a minus for descending.
        page: from 1 on.
        usual: the statuses that are shown where none is asked for; empty: all.
    """

    path: str
    q: str = ""
    status: str = ""
    owner: str = ""
    tag: str = ""
    sort: str = "-created"
    page: int = 1
    usual: tuple[str, ...] = ()
    usual_sort: str = "-created"

    @classmethod
    def of(
        cls, request: Request, path: str, *, usual: tuple[str, ...] = (), sort: str = "-created"
    ) -> Listing:
        """From the address; what makes no sense is left out."""
        given = request.query_params
        status, order, page = given.get("status", ""), given.get("sort", ""), given.get("page", "")
        return cls(
            path=path,
            q=given.get("q", "").strip()[:128],
            status=status if status in STATUSES else "",
            owner=given.get("owner", "")[:64],
            tag=given.get("tag", "")[:64],
            sort=order if order.removeprefix("-") in ORDERS else sort,
            page=int(page) if page.isascii() and page.isdigit() and 0 < len(page) < 7 else 1,
            usual=usual,
            usual_sort=sort,
        )

    @property
    def filtered(self) -> bool:
        """Whether anything but the order is asked for."""
        return any((self.q, self.status, self.owner, self.tag))

    def search(self, *, everything: bool = False) -> Search:
        """As the store takes it: one page, or all of them for a file."""
        return Search(
            text=self.q,
            statuses=(self.status,) if self.status else self.usual,
            owner=self.owner,
            tag=self.tag,
            order=self.sort.removeprefix("-"),
            descending=self.sort.startswith("-"),
            first=0 if everything else (max(1, self.page) - 1) * SIZE,
            limit=MOST_IN_A_FILE if everything else SIZE,
        )

    def url(self, path: str = "") -> str:
        """The address of this list."""
        given = {
            "q": self.q,
            "status": self.status,
            "owner": self.owner,
            "tag": self.tag,
            "sort": "" if self.sort == self.usual_sort else self.sort,
            "page": "" if self.page == 1 else self.page,
        }
        query = urlencode({name: value for name, value in given.items() if value})
        return (path or self.path) + (f"?{query}" if query else "")

    def at(self, page: int) -> str:
        """The address of another page of it."""
        return replace(self, page=page).url()

    def by(self, order: str) -> str:
        """The address of the same list in another order; the same one the other way round."""
        first, other = (f"-{order}", order) if order in LATEST_FIRST else (order, f"-{order}")
        return replace(self, sort=other if self.sort == first else first, page=1).url()

    def direction(self, order: str) -> str:
        """How it is sorted by this, for `aria-sort`."""
        if self.sort.removeprefix("-") != order:
            return "none"
        return "descending" if self.sort.startswith("-") else "ascending"

    def file(self, path: str) -> str:
        """The address of its file."""
        return replace(self, page=1).url(path)


def pages(total: int) -> int:
    """How many pages there are."""
    return max(1, -(-total // SIZE))


def csv_text(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    r"""A table as a file; a cell never begins with a sign that spreadsheets take as a formula.

    >>> csv_text(["name", "change"], [["=1+1", -2]])
    "name,change\n'=1+1,-2\n"
    """
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(columns)
    for row in rows:
        writer.writerow([_plain(cell) for cell in row])
    return file.getvalue()


def csv_answer(name: str, columns: Sequence[str], rows: Iterable[Sequence[object]]) -> Response:
    """The same as a download."""
    headers = {**responses.HEADERS, "Content-Disposition": f'attachment; filename="{name}.csv"'}
    return Response(csv_text(columns, rows), headers=headers, media_type="text/csv")


def _plain(cell: object) -> object:
    if isinstance(cell, str) and cell[:1] in ("=", "+", "-", "@", "\t", "\r"):
        return f"'{cell}"
    return "" if cell is None else cell

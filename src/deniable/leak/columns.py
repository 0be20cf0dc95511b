"""Assigns roles to the columns of an exposure log, by name or as given."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

from deniable._formatting import listed
from deniable.errors import InvalidArgumentError

REQUIRED = ("segment", "variant")
JOINED = ("segment", "context")
"""Roles that may have several columns, separated by commas, whose values are joined."""

KEYED = (*REQUIRED, "visitor")
"""Roles that are also guessed from the keys of objects, if no column fits."""

NAMES: dict[str, tuple[str, ...]] = {
    "segment": (
        "segment",
        "segmentname",
        "segmentid",
        "usersegment",
        "customersegment",
        "visitorsegment",
        "audience",
        "audiencename",
        "cohort",
        "persona",
        "tier",
        "plan",
        "dimension",
        "dimensionvalue",
    ),
    "variant": (
        "shown",
        "variant",
        "variantid",
        "variantname",
        "variantkey",
        "variation",
        "variationid",
        "variationname",
        "arm",
        "treatment",
        "groupname",
        "experimentgroup",
        "experimentvariant",
        "expvariantstring",
        "group",
        "groupid",
        "bucket",
    ),
    "visitor": (
        "visitor",
        "visitorid",
        "userpseudoid",
        "anonymousid",
        "unitid",
        "userid",
        "user",
        "customerid",
        "deviceid",
        "clientid",
        "stableid",
        "distinctid",
        "cookieid",
    ),
    "time": (
        "time",
        "timestamp",
        "eventtimestamp",
        "exposuretime",
        "exposedat",
        "firstexposure",
        "firstexposureutc",
        "firsttimestamp",
        "decidedat",
        "receivedat",
        "date",
        "eventdate",
        "ts",
    ),
    "count": ("count", "exposures", "impressions", "visitors", "users", "views", "shows", "n"),
    "reward": (
        "reward",
        "click",
        "clicks",
        "clicked",
        "conversion",
        "conversions",
        "converted",
        "purchase",
        "purchases",
        "purchased",
        "response",
        "value",
        "revenue",
    ),
    "propensity": (
        "propensity",
        "propensityscore",
        "pscore",
        "probability",
        "actionprobability",
        "chance",
    ),
    "experiment": (
        "experiment",
        "experimentid",
        "experimentkey",
        "experimentname",
        "flag",
        "flagkey",
        "featureflag",
        "test",
        "testid",
        "testname",
        "campaign",
        "name",
    ),
    "context": (),  # whether trackers read a value anyway is for the firm to say
}
"""Role -> known names, the likeliest first; lower case, letters and digits only."""

NOTHING = "-"
"""Placeholder for a role that should not be read although a column's name fits."""


@dataclass(frozen=True)
class Columns:
    """The column of each role; None if the log has none.

    Attributes:
        segment, context: one column, or several separated by commas, whose values are joined.
        variant, visitor, time, count, reward, propensity, experiment: one column each.
        given: the roles that the caller specified.
    """

    segment: str
    variant: str
    visitor: str | None = None
    time: str | None = None
    count: str | None = None
    reward: str | None = None
    propensity: str | None = None
    experiment: str | None = None
    context: str | None = None
    given: frozenset[str] = frozenset()

    def used(self) -> Iterator[tuple[str, str]]:
        """Yield (role, column) for roles that have a column."""
        for role in NAMES:
            column = getattr(self, role)
            if column is not None:
                yield role, column


def find_columns(
    header: Sequence[str],
    given: Mapping[str, str | None] | None = None,
    keys: Sequence[str] = (),
) -> Columns:
    """Find the columns of a log with this header.

    Args:
        header: the log's column names.
        given: role -> column, overriding the guess. `column.key` reads a key of a column of JSON
            objects; `-` reads nothing.
        keys: such keys, as `column.key`, used for guessing if no column fits.

    Raises:
        InvalidArgumentError: a given column does not exist, two roles share a column, or there is
            no column for the segment or the variant.

    >>> found = find_columns(["user_id", "experiment_id", "variation_id", "timestamp", "Tier"])
    >>> found.segment, found.variant, found.visitor, found.experiment, found.reward
    ('Tier', 'variation_id', 'user_id', 'experiment_id', None)
    """
    named = {role: column for role, column in (given or {}).items() if column is not None}
    for role, column in named.items():
        parts = column.split(",") if role in JOINED else [column]
        if column != NOTHING and not all(_exists(part, header) for part in parts):
            raise InvalidArgumentError(role, column, f"a column of the file: {_names(header)}")
    taken = {part for column in named.values() for part in column.split(",")}
    objects = {key.partition(".")[0] for key in keys}
    free = {_plain(name): name for name in reversed(header) if name not in taken | objects}
    found: dict[str, str | None] = {}
    for role, names in NAMES.items():
        if role in named:
            found[role] = None if named[role] == NOTHING else named[role]
        else:
            fitting = _inner(keys, taken) if role in KEYED else {}
            found[role] = next(
                (known[name] for known in (free, fitting) for name in names if name in known), None
            )
            free = {plain: name for plain, name in free.items() if name != found[role]}
    for role in REQUIRED:
        if found[role] is None:
            raise InvalidArgumentError(
                role,
                named.get(role),
                f"--{role} with one of the file's columns, none of which has a name that fits: "
                f"{_names([*(name for name in header if name in free.values()), *keys])}",
            )
    columns = Columns(**found, given=frozenset(named))  # type: ignore[arg-type]
    seen: dict[str, str] = {}
    for role, column in columns.used():
        if column in seen:
            raise InvalidArgumentError(
                role, column, f"a column of its own: this one is the {seen[column]}"
            )
        seen[column] = role
    return columns


def _exists(column: str, header: Sequence[str]) -> bool:
    return column in header or column.partition(".")[0] in header


def _inner(keys: Sequence[str], taken: Collection[str]) -> dict[str, str]:
    """Return normalised name -> `column.key`, by the key alone and by both together."""
    free = [key for key in keys if key not in taken]
    return {
        form: key for key in reversed(free) for form in (_plain(key), _plain(key.partition(".")[2]))
    }


def _plain(name: str) -> str:
    """Return the name without case, spaces, dashes and underscores."""
    return re.sub(r"[^a-z0-9]", "", name.lower())


def _names(header: Sequence[str]) -> str:
    """Format a header for a message."""
    return listed([name[:40] for name in header], 20)

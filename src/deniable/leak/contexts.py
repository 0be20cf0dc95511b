"""Which other columns of a log would be worth being contexts: what each brings at no budget."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import islice

from deniable.analysis.worth import Worth
from deniable.errors import InvalidArgumentError
from deniable.leak.columns import Columns
from deniable.leak.counting import Counts, counted_log
from deniable.leak.files import LogFile
from deniable.leak.reading import frames
from deniable.leak.worth import worth_of_counts

MOST_CONTEXTS = 50
"""Most values of a context, as in the service."""

MOST_COLUMNS = 10
"""Most columns that are compared; the log is read once for each."""

_SAMPLE = 1_000


def worth_of_contexts(log: LogFile, columns: Columns, confidence: float) -> tuple[Worth, ...]:
    """Return what the best variant by each column brings in the largest experiment, most first.

    Columns are the given context and those without a role that have 2 to 50 values. The intervals of
    all hold together. Columns that cannot say are left out.
    """
    if columns.reward is None:
        return ()
    given = [] if columns.context is None else [columns.context]
    wanted = [*given, *islice(_categories(log, columns), MOST_COLUMNS - len(given))]
    worths = []
    for column in wanted:
        roles = {role: name for role, name in columns.used() if role != "context"}
        try:
            with counted_log(log.path, {**roles, "segment": column}) as (_, read, tally, _):
                counts = _largest(tally.experiments)
                if len(counts.segments) <= MOST_CONTEXTS:
                    each = 1 - (1 - confidence) / len(wanted)
                    worths.append(worth_of_counts(counts, read, tally, each))
        except InvalidArgumentError:
            continue
    return tuple(sorted(worths, key=lambda worth: -worth.no_privacy.low / worth.one_arm.value))


def _largest(experiments: Sequence[Counts]) -> Counts:
    return max(experiments, key=lambda counts: float(counts.shown.sum()))


def _categories(log: LogFile, columns: Columns) -> Iterator[str]:
    """Yield the columns without a role that have 2 to 50 values in the first rows."""
    taken = {part for _, column in columns.used() for part in column.split(",")}
    taken |= {part.partition(".")[0] for part in taken}
    free = [name for name in log.header if name not in taken]
    if not free:
        return
    rows = next(frames(log, replace(columns, segment=",".join(free)))).head(_SAMPLE).collect()
    for name in free:
        values = rows[name].drop_nulls()
        if not values.dtype.is_nested() and 2 <= values.n_unique() <= MOST_CONTEXTS:
            yield name

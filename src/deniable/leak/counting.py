"""Counts exposures by experiment, segment and variant, in two halves.

With visitor ids, a visitor counts once per experiment, with the variant first shown. The halves are
halves of the visitors, so that what is learned from one can be tested on the other. Without ids
every exposure counts, and the halves are random, which is equivalent if exposures are independent.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from deniable._validation import FloatArray
from deniable.errors import InvalidArgumentError
from deniable.leak.columns import Columns, find_columns
from deniable.leak.files import LogFile, as_file, open_log
from deniable.leak.folds import FOLDS, MOMENTS, added, halves
from deniable.leak.reading import KEYS, batches
from deniable.leak.visitors import VisitorFiles

if TYPE_CHECKING:
    import polars as pl

MOST_CELLS = 200_000
MOST_SEGMENTS = 1_000
_SPLIT_SEED = 19

Array: TypeAlias = "FloatArray | None"
"""A column of numbers; None if the log has none."""


@dataclass(frozen=True, eq=False)
class Counts:
    """Exposures of one experiment. Arrays have shape (2 halves, J segments, K variants).

    Attributes:
        experiment: name of the experiment.
        segments, variants: their names, in the order of the arrays.
        shown: exposures, or visitors if the log has ids.
        reward: sum of their rewards; None without rewards.
        reward_squared: sum of squared rewards; None if unknown.
        moments: these sums and others by fold, (moments, folds, J, K); see `folds.MOMENTS`.
    """

    experiment: str
    segments: tuple[str, ...]
    variants: tuple[str, ...]
    shown: FloatArray
    reward: FloatArray | None = None
    reward_squared: FloatArray | None = None
    moments: FloatArray | None = None

    @property
    def total(self) -> FloatArray:
        """Both halves together, shape (J, K)."""
        return np.asarray(self.shown.sum(axis=0))

    @property
    def informative(self) -> bool:
        """Whether there is anything to compare: two segments and two variants."""
        return len(self.segments) > 1 and len(self.variants) > 1


@dataclass
class Tally:
    """The counts of a log, filled by `count_log`.

    Attributes:
        rows: rows read.
        skipped: rows without a segment, a variant, an experiment or (if there is a column) a
            visitor.
        visitors: number of distinct visitors; None without ids.
        changed_variant: visitor-experiment pairs in which more than one variant was shown.
        changed_segment: visitor-experiment pairs with more than one segment.
        first, last: the period in microseconds since 1970; None without times.
        binary: whether every reward is 0 or 1 (or a count of those).
        experiments: one `Counts` per experiment, sorted by name.
        names: sorted names of the experiments, segments and variants.
        cells: experiment, segment and variant of each cell, as indices into `names`, shape (C, 3).
    """

    rows: int = 0
    skipped: int = 0
    visitors: int | None = None
    changed_variant: int = 0
    changed_segment: int = 0
    first: int | None = None
    last: int | None = None
    binary: bool = True
    experiments: tuple[Counts, ...] = ()
    names: dict[str, list[str]] = field(default_factory=dict)
    cells: NDArray[np.int64] = field(default_factory=lambda: np.empty((0, 3), dtype=np.int64))


class _Cells:
    """Numbers the combinations of experiment, segment and variant, in order of appearance."""

    def __init__(self, columns: Columns) -> None:
        self._columns = columns
        self._keys = np.empty(0, dtype=np.uint64)  # sorted; 64-bit hashes do not collide here
        self._numbers = np.empty(0, dtype=np.int64)
        self.frame: pl.DataFrame | None = None

    def numbers(self, batch: pl.DataFrame) -> NDArray[np.int64]:
        """Return the cell of each row."""
        key = batch["key"].to_numpy()
        place = np.searchsorted(self._keys, key)
        known = np.append(self._keys, self._keys[-1:])[place] == key if self._keys.size else key < 0
        if not known.all():
            self._learn(batch.filter(~known).unique("key", keep="first", maintain_order=True))
            place = np.searchsorted(self._keys, key)
        return self._numbers[place]

    def _learn(self, new: pl.DataFrame) -> None:
        import polars as pl

        keys = np.append(self._keys, new["key"].to_numpy())
        numbers = np.append(self._numbers, np.arange(self._keys.size, keys.size))
        order = np.argsort(keys)
        self._keys, self._numbers = keys[order], numbers[order]
        names = new.select(KEYS)
        self.frame = names if self.frame is None else pl.concat([self.frame, names])
        if self.frame.height > MOST_CELLS:
            self._too_many(self.frame)

    def _too_many(self, known: pl.DataFrame) -> None:
        sizes = {key: known[key].n_unique() for key in KEYS}
        role = max(sizes, key=lambda key: sizes[key])
        raise InvalidArgumentError(
            role,
            getattr(self._columns, role),
            f"a column with fewer values; {sizes[role]:,} were met, as if it held ids",
        )


class _Exposures:
    """Sums over the exposures of a log without visitor ids, by fold and cell."""

    def __init__(self) -> None:
        self._rng = np.random.default_rng(_SPLIT_SEED)
        self._moments = np.zeros((len(MOMENTS), FOLDS, 0))
        self._aggregated = False
        self.binary = True

    def add(
        self,
        cell: NDArray[np.int64],
        count: Array,
        reward: Array,
        propensity: Array,
        time: NDArray[np.int64] | None,
    ) -> None:
        """Put each exposure into a random fold.

        A row that stands for several is divided: exposures with and without a reward separately, if
        rewards are 0 or 1. Other rewards are known only as sums, so every fold gets the same mean.
        """
        value = np.zeros(cell.size) if reward is None else reward
        weight = np.ones(cell.size) if count is None else count
        whole = (value >= 0) & (value <= weight) & (value == np.floor(value))
        self.binary &= bool(whole.all())
        if (weight != 1).any():
            self._aggregated = True
            good = np.where(whole, value, 0).astype(np.int64)
            rest = weight.astype(np.int64) - good
            even = np.full(FOLDS, 1 / FOLDS)
            won, lost = (self._rng.multinomial(part, even).T for part in (good, rest))
            shown = (won + lost).astype(np.float64)
            mean = value / np.maximum(weight, 1)
            rewards = np.where(whole, won, shown * mean)
            squares = np.where(whole, won, rewards * value)
            fold = np.repeat(np.arange(FOLDS), cell.size)
        else:
            shown, rewards, squares = weight, value, value**2
            fold = self._rng.integers(FOLDS, size=cell.size)
        copies = fold.size // cell.size
        n_cells = max(int(cell.max()) + 1, self._moments.shape[2])
        self._moments = np.pad(
            self._moments, ((0, 0), (0, 0), (0, n_cells - self._moments.shape[2]))
        )
        self._moments += added(
            fold * n_cells + np.tile(cell, copies),
            (FOLDS, n_cells),
            shown.ravel(),
            rewards.ravel(),
            squares.ravel(),
            propensity=None if propensity is None else np.tile(propensity, copies),
            time=None if time is None else np.tile(time, copies),
        )

    @property
    def squares_known(self) -> bool:
        """Whether squares are known. Rewards are sums; only zeros and ones can be recovered."""
        return self.binary or not self._aggregated

    @property
    def moments(self) -> FloatArray:
        """The sums by fold and cell, shape (moments, folds, C)."""
        return self._moments


@contextmanager
def counted_log(
    path: Any,
    columns: Mapping[str, str | None] | None,
    progress: Callable[[int], None] | None = None,
) -> Iterator[tuple[LogFile, Columns, Tally, VisitorFiles | None]]:
    """Open a log, find its columns and count it; its visitors can be joined inside the context.

    Raises:
        InvalidArgumentError: the file, a column or values cannot be used.
    """
    with as_file(path) as file:
        log = open_log(file)
        found = find_columns(log.header, columns, log.keys)
        with VisitorFiles() if found.visitor is not None else nullcontext() as files:
            yield log, found, count_log(batches(log, found), found, files, progress), files


def count_log(
    pieces: Iterable[pl.DataFrame],
    columns: Columns,
    files: VisitorFiles | None,
    progress: Callable[[int], None] | None = None,
) -> Tally:
    """Count a log that is read in pieces.

    Args:
        pieces: as yielded by `reading.batches`.
        columns: which roles the log has.
        files: joins visitors; None for a log without ids.
        progress: callback that receives the number of rows after each piece.

    Raises:
        InvalidArgumentError: the log has no rows, or too many cells to compare.
    """
    tally, cells, exposures = Tally(), _Cells(columns), _Exposures()
    needed = [*KEYS, *(["visitor"] if files is not None else [])]
    for piece in pieces:
        batch = piece.drop_nulls(needed)
        tally.rows += piece.height
        tally.skipped += piece.height - batch.height
        if progress is not None:
            progress(tally.rows)
        if not batch.height:
            continue
        cell, reward = cells.numbers(batch), _floats(batch, "reward")
        _period(tally, batch)
        propensity, time = _floats(batch, "propensity"), _times(batch)
        if files is None:
            exposures.add(cell, _floats(batch, "count"), reward, propensity, time)
        else:
            files.add(batch["visitor"].to_numpy(), cell, time, reward, propensity)
    if cells.frame is None:
        raise InvalidArgumentError(
            "rows", tally.rows, "a log whose rows have a segment and a variant"
        )
    _name_cells(tally, cells.frame, columns)
    if files is None:
        moments, tally.binary, squares = (
            exposures.moments,
            exposures.binary,
            exposures.squares_known,
        )
    else:
        moments, squares = files.settle(tally.cells), True
        tally.visitors, tally.binary = files.visitors, files.binary
        tally.changed_variant, tally.changed_segment = files.changed_variant, files.changed_segment
    has_reward = columns.reward is not None
    tally.experiments = tuple(
        _experiments(tally, moments, has_reward=has_reward, squares=has_reward and squares)
    )
    return tally


def _name_cells(tally: Tally, frame: pl.DataFrame, columns: Columns) -> None:
    """Sort the names and store each cell as indices into them."""
    names = {key: sorted(frame[key].unique().to_list()) for key in KEYS}
    if len(names["segment"]) > MOST_SEGMENTS:
        raise InvalidArgumentError(
            "segment",
            columns.segment,
            f"up to {MOST_SEGMENTS:,} segments; the log has {len(names['segment']):,}",
        )
    places = {key: {name: i for i, name in enumerate(names[key])} for key in KEYS}
    tally.names = names
    tally.cells = np.array(
        [[places[key][name] for key, name in zip(KEYS, row, strict=True)] for row in frame.rows()],
        dtype=np.int64,
    )


def _experiments(
    tally: Tally, moments: FloatArray, *, has_reward: bool, squares: bool
) -> Iterable[Counts]:
    """Convert the cells' sums, shape (moments, folds, C), to one table per experiment."""
    names, cells = tally.names, tally.cells
    order = np.argsort(cells[:, 0], kind="stable")
    bounds = np.searchsorted(cells[order, 0], np.arange(len(names["experiment"]) + 1))
    for place, name in enumerate(names["experiment"]):
        mine = order[bounds[place] : bounds[place + 1]]
        segments, row = np.unique(cells[mine, 1], return_inverse=True)
        variants, column = np.unique(cells[mine, 2], return_inverse=True)
        sums = np.zeros((*moments.shape[:2], segments.size, variants.size))
        sums[:, :, row, column] = moments[:, :, mine]
        # Drop segments whose visitors all count under another one.
        kept = sums[0].sum(axis=(0, 2)) > 0
        used = sums[0].sum(axis=(0, 1)) > 0
        sums = sums[:, :, kept][:, :, :, used]
        table = halves(sums)
        yield Counts(
            name,
            tuple(names["segment"][i] for i in segments[kept]),
            tuple(names["variant"][i] for i in variants[used]),
            table[0],
            table[1] if has_reward else None,
            table[2] if squares else None,
            sums,
        )


def _floats(batch: pl.DataFrame, name: str) -> Array:
    if name not in batch.columns:
        return None
    return batch[name].fill_null(0.0).to_numpy()


def _times(batch: pl.DataFrame) -> NDArray[np.int64] | None:
    if "time" not in batch.columns:
        return None
    return batch["time"].fill_null(np.iinfo(np.int64).max).to_numpy()


def _period(tally: Tally, batch: pl.DataFrame) -> None:
    if "time" not in batch.columns or batch["time"].null_count() == batch.height:
        return
    low, high = batch["time"].min(), batch["time"].max()
    tally.first = low if tally.first is None else min(tally.first, low)  # type: ignore[assignment, type-var]
    tally.last = high if tally.last is None else max(tally.last, high)  # type: ignore[assignment, type-var]

"""An experiment as data: the observed rates of its arms, and its number of visitors."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from deniable.errors import InvalidArgumentError


@dataclass(frozen=True)
class ExperimentData:
    """One experiment of a portfolio.

    Attributes:
        name: name of the experiment.
        rates: click rate of each arm; the control, if any, is first.
        visitors: total of all arms.
        days: duration; 0 if unknown.

    >>> ExperimentData("page", rates=(0.3, 0.2), visitors=1000).n_arms
    2
    """

    name: str
    rates: tuple[float, ...]
    visitors: int
    days: float = 0.0

    @property
    def n_arms(self) -> int:
        """Number of arms, K."""
        return len(self.rates)


def data_folder() -> Path | None:
    """Return the folder of downloaded data from DENIABLE_DATA; None if it is not set."""
    named = os.environ.get("DENIABLE_DATA")
    return Path(named) if named else None


def data_file(path: Path | str | None, *default: str) -> Path:
    """Return the given file, or the default in the data folder; raises if it does not exist."""
    folder = data_folder()
    file = Path(path) if path is not None else folder.joinpath(*default) if folder else None
    if file is None or not file.is_file():
        raise InvalidArgumentError(
            "path",
            None if file is None else str(file),
            "a downloaded file, or DENIABLE_DATA set to the folder that has it",
        )
    return file

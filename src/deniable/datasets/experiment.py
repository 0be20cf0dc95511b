"""An experiment as data: what was seen of its arms, and how many visitors it had."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from deniable.errors import InvalidArgumentError


@dataclass(frozen=True)
class ExperimentData:
    """One experiment of a portfolio.

    Attributes:
        name: what it is called.
        rates: click rate of each arm; the control is first where there is one.
        visitors: of all arms together.
        days: how long it ran; 0 where that is not known.

    >>> ExperimentData("page", rates=(0.3, 0.2), visitors=1000).n_arms
    2
    """

    name: str
    rates: tuple[float, ...]
    visitors: int
    days: float = 0.0

    @property
    def n_arms(self) -> int:
        """K."""
        return len(self.rates)


def data_folder() -> Path | None:
    """The folder of downloaded data that DENIABLE_DATA names; None where it is not set."""
    named = os.environ.get("DENIABLE_DATA")
    return Path(named) if named else None


def data_file(path: Path | str | None, *default: str) -> Path:
    """The file given, or the default below the data folder; raises where there is none."""
    folder = data_folder()
    file = Path(path) if path is not None else folder.joinpath(*default) if folder else None
    if file is None or not file.is_file():
        raise InvalidArgumentError(
            "path",
            None if file is None else str(file),
            "a downloaded file, or DENIABLE_DATA set to the folder that has it",
        )
    return file

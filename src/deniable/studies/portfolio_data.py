"""The firm's experiments: ASOS's if the file exists, else a synthetic firm like it."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path

from deniable import ExperimentData, Portfolio, asos, synthetic_portfolio
from deniable.studies.context import Context

SHA256 = "bdf88b27185d3f7e65912cbb421129a32ae347c2fb0d9442fe54d74266551524"
"""Checksum of the ASOS file with which the published numbers were checked."""


@dataclass(frozen=True)
class Firm:
    """Experiments and their source.

    Attributes:
        experiments: by name.
        synthetic: whether they are drawn, not observed.
        source: one sentence for the report.
    """

    experiments: tuple[ExperimentData, ...]
    synthetic: bool
    source: str

    @property
    def portfolio(self) -> Portfolio:
        """The experiments as a portfolio."""
        return Portfolio.of(
            (
                {"id": each.name, "arms": each.n_arms, "visitors": each.visitors}
                for each in self.experiments
            ),
            form="paper",
        )

    @property
    def mark(self) -> str:
        """The suffix of captions."""
        return " SYNTHETIC portfolio, not ASOS data." if self.synthetic else ""


def load_firm(context: Context) -> Firm:
    """Load ASOS's 78 experiments if the data folder has them, else 78 synthetic ones."""
    file = context.data_file("asos")
    if file is None:
        return Firm(
            tuple(synthetic_portfolio(seed=context.seed)),
            True,
            "SYNTHETIC DATA: the ASOS file was not given, so these 78 experiments are drawn to match "
            "its published summary statistics. Conclusions about ASOS need the file.",
        )
    known = sha256(file) == SHA256
    checked = "its checksum is verified" if known else "ITS CHECKSUM IS NOT THE ONE KNOWN"
    return Firm(
        tuple(asos(file)),
        False,
        f"The ASOS Digital Experiments Dataset (Liu et al. 2021, CC BY 4.0); {checked}.",
    )


def sha256(file: Path) -> str:
    """Return the file's checksum."""
    return hashlib.sha256(file.read_bytes()).hexdigest()

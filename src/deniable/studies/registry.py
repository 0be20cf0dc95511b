"""All studies by name, in the report's order."""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING

from deniable.errors import InvalidArgumentError

if TYPE_CHECKING:
    from deniable.studies.contract import Run


@dataclass(frozen=True)
class Study:
    """A study's entry in the report.

    Attributes:
        name: name on the command line, and of its folder and module.
        title: its heading.
        in_paper: whether it is in the paper.
    """

    name: str
    title: str
    in_paper: bool = True

    @property
    def module(self) -> ModuleType:
        """Import its module."""
        return import_module(f"deniable.studies.{self.name}")

    @property
    def run(self) -> Run:
        """The function that computes it."""
        run: Run = self.module.run
        return run


STUDIES = (
    Study("beliefs", "What a budget means: belief bounds"),
    Study("strategies", "How a budget is spent: two strategies"),
    Study("website", "Website design"),
    Study("recommendations", "Recommendations"),
    Study("elasticity", "Elasticities of regret"),
    Study("illustration", "Two experiments share a budget"),
    Study("heterogeneity", "A budget for each arm"),
    Study("firm", "The firm's budget over its experiments"),
    Study("appendix", "The appendix: segments, composition, finite rounds"),
    Study("segments", "Segments that really differ", in_paper=False),
    Study("tracker", "What a watcher comes to believe", in_paper=False),
    Study("tightness", "How tight the bounds are", in_paper=False),
    Study("participation", "Visitors who meet only some experiments", in_paper=False),
    Study("groups", "Experiments that exclude each other", in_paper=False),
    Study("joint", "The joint strategy: what segments share is free", in_paper=False),
)
"""All studies; `all` runs them in this order."""

BY_NAME = {study.name: study for study in STUDIES}


def chosen_studies(names: list[str]) -> list[Study]:
    """Return the studies with these names in the report's order; "all" means all.

    >>> [study.name for study in chosen_studies(["strategies", "beliefs"])]
    ['beliefs', 'strategies']
    """
    for name in names:
        if name != "all" and name not in BY_NAME:
            raise InvalidArgumentError("study", name, "all, " + ", ".join(BY_NAME))
    return [study for study in STUDIES if "all" in names or study.name in names]

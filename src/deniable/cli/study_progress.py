"""Progress of a reproduction on standard error: a line a study, and a bar while it simulates."""

from __future__ import annotations

from types import TracebackType
from typing import TYPE_CHECKING

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn

if TYPE_CHECKING:
    from deniable.studies.registry import Study
    from deniable.studies.reproduce import Finished

_LINES = 10  # of a simulation, without a terminal


class StudyProgress:
    """Told when a study starts, how its simulation gets on, and when it ends.

    Where there is no terminal, a line for each study's start, each tenth of its simulation, and its end.
    """

    def __init__(self, console: Console | None = None) -> None:
        self._console = console or Console(stderr=True, highlight=False)
        self._study = ""
        self._told = 0
        self._bar = Progress(
            SpinnerColumn(),
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            console=self._console,
            transient=True,
        )
        self._task = self._bar.add_task("", total=None)

    def __enter__(self) -> StudyProgress:
        self._bar.__enter__()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._bar.__exit__(kind, error, trace)

    def started(self, study: Study) -> None:
        """A study begins."""
        self._study, self._told = study.name, 0
        self._bar.reset(self._task, description=study.name, total=None)
        if not self._console.is_terminal:
            self._console.print(f"{study.name:<16} started")

    def repetitions(self, done: int, total: int) -> None:
        """Repetitions of the simulation that is running."""
        self._bar.update(self._task, completed=done, total=total)
        part = _LINES * done // total if total else 0
        if part < self._told:  # the study's next simulation
            self._told = 0
        if not self._console.is_terminal and part > self._told:
            self._told = part
            self._console.print(f"{self._study:<16} {done:,} of {total:,} repetitions")

    def finished(self, done: Finished) -> None:
        """A study is over."""
        told = "found" if done.found else f"{done.seconds:.1f} s"
        self._console.print(f"{done.study.name:<16} {told:>8}  {_counts(done)}")


def _counts(done: Finished) -> str:
    claims = done.record.claims
    held = sum(claim.verdict == "holds" for claim in claims)
    return f"{held} of {len(claims)} claims hold" if claims else ""

"""Progress of a reproduction on standard error: a line a study, and a bar while it simulates."""

from __future__ import annotations

from types import TracebackType
from typing import TYPE_CHECKING

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn

if TYPE_CHECKING:
    from deniable.studies.registry import Study
    from deniable.studies.reproduce import Finished


class StudyProgress:
    """Told when a study starts, how its simulation gets on, and when it ends."""

    def __init__(self) -> None:
        self._console = Console(stderr=True, highlight=False)
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
        self._bar.reset(self._task, description=study.name, total=None)

    def repetitions(self, done: int, total: int) -> None:
        """Repetitions of the simulation that is running."""
        self._bar.update(self._task, completed=done, total=total)

    def finished(self, done: Finished) -> None:
        """A study is over."""
        told = "found" if done.found else f"{done.seconds:.1f} s"
        self._console.print(f"{done.study.name:<16} {told:>8}  {_counts(done)}")


def _counts(done: Finished) -> str:
    claims = done.record.claims
    held = sum(claim.verdict == "holds" for claim in claims)
    return f"{held} of {len(claims)} claims hold" if claims else ""

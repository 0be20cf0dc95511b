"""Runs the tests of each fault in a copy of the project; the checkout is never written to.

What was caught is kept (`Results`) by a hash of the fault, its file and its tests, so that a second run
only does what changed. Before a layer's faults, all their tests run once without a fault: a test that
fails anyway notices nothing.
"""

from __future__ import annotations

import json
import queue
import re
import shutil
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

from tests.mutants.fault import Fault, StaleFaultError
from tests.mutants.warm import MODULES, Warm

LIMIT = 60.0
"""Seconds that the tests of one fault may take."""

LONGEST = 600.0
"""Seconds that the tests of a layer may take together without a fault, at least."""

LEFT_BEHIND = (".git", ".venv", "build", "dist", "__pycache__", ".*_cache", ".hypothesis", "*.db*")
"""What is not copied."""

CAUGHT, SURVIVED, STALE, LATE, BROKEN = "caught", "SURVIVED", "STALE", "TOO SLOW", "BROKEN"


@dataclass(frozen=True)
class Outcome:
    """What became of one fault.

    Attributes:
        key: see `Fault.key`; empty for a stale fault.
        state: caught, SURVIVED, STALE (the text was not found once), TOO SLOW (time ran out and the
            fault does not say that it hangs) or BROKEN (the tests could not be run at all).
        seconds: how long the tests took.
        told: which test noticed, or why none could.
    """

    key: str
    layer: str
    file: str
    why: str
    state: str
    seconds: float
    told: str = ""


class Results:
    """Outcomes by key, one line of JSON each, appended as they come."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.known: dict[str, Outcome] = {}
        if path.exists():
            for line in path.read_text("utf-8").splitlines():
                outcome = Outcome(**json.loads(line))
                self.known[outcome.key] = outcome

    def caught(self, key: str) -> Outcome | None:
        """The kept outcome of a fault that was caught; any other is tried again."""
        found = self.known.get(key)
        return found if found is not None and found.state == CAUGHT else None

    def add(self, outcome: Outcome) -> None:
        """Keep an outcome."""
        self.known[outcome.key] = outcome
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self.path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(asdict(outcome)) + "\n")


def copy_project(root: Path, to: Path) -> Path:
    """A copy to plant faults in."""
    shutil.copytree(root, to, ignore=shutil.ignore_patterns(*LEFT_BEHIND), symlinks=True)
    return to


@contextmanager
def planted(fault: Fault, copy: Path) -> Iterator[None]:
    """The copy with the fault in it. Compiled code of the file goes, whatever its time stamp says."""
    path = copy / fault.path
    text = path.read_text("utf-8")
    path.write_text(fault.applied(text), "utf-8")
    _forget(path)
    try:
        yield
    finally:
        path.write_text(text, "utf-8")
        _forget(path)


def _forget(source: Path) -> None:
    for compiled in (source.parent / "__pycache__").glob(f"{source.stem}.*.pyc"):
        compiled.unlink(missing_ok=True)


def tried(layer: str, fault: Fault, key: str, warm: Warm, limit: float) -> Outcome:
    """Plant one fault, run its tests, and take it out again."""
    start = time.monotonic()
    with planted(fault, warm.copy):
        code, output = warm.pytest(fault.tests, limit)
    seconds = round(time.monotonic() - start, 1)
    state, told = judged(code, output, fault.hangs)
    return Outcome(key, layer, fault.file, fault.why, state, seconds, told)


def judged(code: int | None, output: str, hangs: bool) -> tuple[str, str]:
    """The state that follows from pytest's exit code, and what to tell about it."""
    if code is None:
        return (CAUGHT if hangs else LATE), "the time limit"
    if code == 1:
        noticed = re.search(r"^(?:FAILED|ERROR) (.+?)(?: - |$)", output, re.M)
        return CAUGHT, noticed[1] if noticed else "a test"
    if code == 0:
        return SURVIVED, "all tests passed"
    # Nothing collected, a bad option, a file that cannot be imported: no test has looked.
    return BROKEN, " / ".join(output.strip().splitlines()[-3:])


def run(
    root: Path,
    faults: Sequence[tuple[str, Fault]],
    results: Results,
    scratch: Path,
    *,
    jobs: int = 1,
    limit: float = LIMIT,
    until: float = float("inf"),
    environment: dict[str, str] | None = None,
    modules: Iterable[str] = MODULES,
    told: Callable[[Outcome], None] = lambda outcome: None,
) -> tuple[list[Outcome], int]:
    """The outcomes of these faults by layer, and how many were left because the time was over.

    Args:
        root: the project.
        faults: layer and fault; equivalent ones are passed over.
        results: what is known already, and where new outcomes go.
        scratch: a folder for the copies.
        jobs: how many to try at once, each in a copy of its own.
        limit: seconds for the tests of one fault.
        until: the monotonic time after which no more are begun.
        environment: more variables for the tests.
        modules: what to import once for all runs.
        told: called with each outcome as it comes.
    """
    outcomes: list[Outcome] = []
    todo: dict[str, list[tuple[Fault, str]]] = {}
    for layer, fault in faults:
        if fault.equivalent:
            continue
        try:
            fault.applied((root / fault.path).read_text("utf-8"))
            key = fault.key(root)
        except (StaleFaultError, FileNotFoundError) as reason:
            outcomes.append(Outcome("", layer, fault.file, fault.why, STALE, 0.0, str(reason)))
            told(outcomes[-1])
            continue
        known = results.caught(key)
        if known is None:
            todo.setdefault(layer, []).append((fault, key))
        else:
            outcomes.append(known)
            told(known)
    if not todo:
        return outcomes, 0
    left = 0
    copies: queue.Queue[Warm] = queue.Queue()

    def one(layer: str, fault: Fault, key: str) -> Outcome | None:
        if time.monotonic() > until:
            return None
        warm = copies.get()
        try:
            return tried(layer, fault, key, warm, limit)
        finally:
            copies.put(warm)

    with ExitStack() as stack:
        for number in range(jobs):
            warm = Warm(copy_project(root, scratch / f"copy-{number}"), environment, modules)
            stack.callback(warm.close)
            copies.put(warm)
        for layer, entries in todo.items():
            if time.monotonic() > until:
                left += len(entries)
                continue
            problem = _without_faults(entries, copies, limit)
            if problem:
                for fault, _ in entries:
                    outcomes.append(Outcome("", layer, fault.file, fault.why, BROKEN, 0.0, problem))
                    told(outcomes[-1])
                continue
            with ThreadPoolExecutor(jobs) as pool:
                futures = [pool.submit(one, layer, fault, key) for fault, key in entries]
                for future in as_completed(futures):
                    outcome = future.result()
                    if outcome is None:
                        left += 1
                        continue
                    results.add(outcome)
                    outcomes.append(outcome)
                    told(outcome)
    return outcomes, left


def _without_faults(
    entries: Sequence[tuple[Fault, str]], copies: queue.Queue[Warm], limit: float
) -> str:
    """What is wrong with the tests themselves: empty where all of them pass and none is skipped."""
    tests = sorted({test for fault, _ in entries for test in fault.tests})
    warm = copies.get()
    try:
        longest = max(LONGEST, limit * len(entries))
        code, output = warm.pytest(tests, longest, {"DENIABLE_NO_SKIPS": "1"})
    finally:
        copies.put(warm)
    if code == 0:
        return ""
    return f"without a fault: {judged(code, output, False)[1]}"

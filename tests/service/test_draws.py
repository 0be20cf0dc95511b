"""Draws: the right frequencies, never the parent's again, and equal work whatever the outcome.

The work of a draw is compared, not its time, which also depends on what else the machine does: every
step of the interpreter, every call of compiled code and every comparison of the search, in order.
"""

from __future__ import annotations

import gc
import os
import random
import subprocess
import sys
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import accumulate, pairwise
from types import FrameType
from typing import Any

import pytest
from scipy.stats import chi2
from tests.patience import PATIENCE
from tests.promise.support import taught
from tests.service.support import running, serving

from deniable.privacy.exact import SPACE
from deniable.privacy.tables import Row, thresholds
from deniable.service import batch
from deniable.service.batch import ENTROPY, MARK_BYTES
from deniable.service.experiment_state import ExperimentState, system_bytes
from deniable.storage.records import Role

NEVER = 1e-9
"""A right sampler fails by chance once in a billion runs."""
DRAWS = 200_000
ARMS, SEGMENTS = ("w", "x", "y", "z"), ("a", "b")


@pytest.fixture
def state() -> Iterator[ExperimentState]:
    """An experiment whose segments have learned to prefer different arms."""
    with serving("memory:", budget=3) as service:
        running(service, arms=ARMS, segments=SEGMENTS, strategy="constant")
        taught(service, "checkout", {"a": "w", "b": "y"}, visitors=150)
        service.decide("checkout", "somebody", "a")
        found = service.writer.engine.state("checkout")
        assert found is not None
        yield found


def rows(state: ExperimentState) -> list[Row]:
    """The table's rows, from the ends of the arms' intervals."""
    ends = [[0, *(end for end in row if end < SPACE), SPACE] for row in state.rows]
    return [tuple(b - a for a, b in pairwise(row)) for row in ends]


def shown(state: ExperimentState, segment: int, count: int) -> list[int]:
    visitors = [(bytes(16), segment, int(Role.MEMBER))] * count
    found = batch.drawn(state, visitors, batch.randomness(count), 0, 1, (0, bytes(32)))
    return [row[4] for row in found.rows]


def p_value(counts: Counter[int], row: Row) -> float:
    total = counts.total()
    expected = [total * part / SPACE for part in row]
    statistic = sum((counts[arm] - e) ** 2 / e for arm, e in enumerate(expected))
    return float(chi2.sf(statistic, df=len(row) - 1))


def off_by_three_percent(row: Row) -> Row:
    """The likeliest arm is shown 3% less often, and the first other one as much more often."""
    top = max(range(len(row)), key=row.__getitem__)
    other = 0 if top else 1
    extra = row[top] * 3 // 100
    return tuple(
        part - extra if arm == top else part + extra if arm == other else part
        for arm, part in enumerate(row)
    )


def test_rows_are_those_of_the_published_table(state: ExperimentState) -> None:
    found = rows(state)
    assert [sum(row) for row in found] == [SPACE, SPACE]
    assert [row.index(max(row)) for row in found] == [ARMS.index("w"), ARMS.index("y")]


@pytest.mark.parametrize("source", ["seeded", "system"])
@pytest.mark.parametrize("segment", range(len(SEGMENTS)))
def test_frequencies(
    state: ExperimentState, segment: int, source: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if source == "seeded":
        monkeypatch.setattr(batch, "system_bytes", random.Random(20).randbytes)
    counts = Counter(shown(state, segment, DRAWS))
    row = rows(state)[segment]
    assert p_value(counts, row) > NEVER
    assert p_value(counts, off_by_three_percent(row)) < NEVER, "the test has no power"


FORK = """
import os, random
from bisect import bisect_right
from deniable.privacy.tables import thresholds
from deniable.service.experiment_state import system_bytes

ends = thresholds((2**61,) * 8)
for source in (system_bytes, random.Random(5).randbytes):
    source(8)
    reader, writer = os.pipe()
    child = os.fork()
    arms = [bisect_right(ends, int.from_bytes(source(8), "little")) for _ in range(400)]
    drawn = "".join(map(str, arms)).encode()
    if child == 0:
        os.write(writer, drawn)
        os._exit(0)
    os.waitpid(child, 0)
    print(int(os.read(reader, 400) == drawn))
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system cannot fork")
def test_a_forked_child_does_not_repeat_its_parent() -> None:
    """The system's entropy differs after a fork; a seeded generator repeats, so the test can tell."""
    output = subprocess.run(
        [sys.executable, "-c", FORK], check=True, capture_output=True, text=True, timeout=PATIENCE
    ).stdout
    assert output.split() == ["0", "1"]


# -- equal work ------------------------------------------------------------------------------------


def traced(call: Callable[[], object]) -> list[object]:
    """Interpreter steps and calls of compiled code, in order."""
    done: list[object] = []

    def trace(frame: FrameType, event: str, _argument: Any) -> Any:
        frame.f_trace_opcodes = True
        if event == "opcode":
            done.append((frame.f_code, frame.f_lasti))
        return trace

    def profile(_frame: FrameType, event: str, argument: Any) -> None:
        if event == "c_call":
            done.append(argument.__qualname__)

    before = sys.gettrace(), sys.getprofile()
    gc.disable()  # its callbacks would be counted too
    sys.settrace(trace)
    sys.setprofile(profile)
    try:
        call()
    finally:
        sys.setprofile(None)
        sys.settrace(None)
        sys.setprofile(before[1])
        sys.settrace(before[0])
        gc.enable()
    return done


def kinds_of_work(state: ExperimentState, monkeypatch: pytest.MonkeyPatch) -> list[list[object]]:
    """The different kinds of work over segments and shown arms: one, if it tells nothing."""
    kinds: list[list[object]] = []
    seen: set[tuple[int, ...]] = set()
    for turn in range(2):  # Python 3.12 overlooks the steps of what is traced first
        for segment, row in enumerate(rows(state)):
            for end in accumulate(row):
                point = (end - 1).to_bytes(8, "little")
                entropy = bytes(MARK_BYTES) + point + bytes(ENTROPY.size - 8)
                monkeypatch.setattr(batch, "system_bytes", lambda _size, given=entropy: given)
                seen.add((segment, *shown(state, segment, 1)))
                work = traced(partial(shown, state, segment, 1))
                if turn and work not in kinds:
                    kinds.append(work)
    assert len(seen) == len(ARMS) * len(SEGMENTS)
    return kinds


def test_the_work_does_not_depend_on_the_segment_or_the_arm(
    state: ExperimentState, monkeypatch: pytest.MonkeyPatch
) -> None:
    (work,) = kinds_of_work(state, monkeypatch)
    assert sum(isinstance(step, tuple) for step in work) > 10
    assert "bisect_right" in work


def _walking(ends: Sequence[int], point: int) -> int:
    """The obvious way to find an arm, which stops where it is found."""
    arm = 0
    while arm < len(ends) and ends[arm] <= point:
        arm += 1
    return arm


def _helping(ends: Sequence[int], point: int) -> int:
    """As many steps for every arm, one of which calls something slower for the first arm."""
    arm = bisect_right(ends, point)
    (bytes, os.urandom)[arm == 0](64)
    return arm


@pytest.mark.parametrize("fault", [_walking, _helping])
def test_the_work_of_a_faulty_search_does(
    state: ExperimentState, fault: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batch, "draw", fault)
    assert len(kinds_of_work(state, monkeypatch)) > 1


class _Counting(int):
    """A threshold that counts how often it is compared."""

    comparisons = 0

    def __gt__(self, other: int) -> bool:
        _Counting.comparisons += 1
        return int(self) > other

    def __lt__(self, other: int) -> bool:
        _Counting.comparisons += 1
        return int(self) < other


def comparisons(ends: Sequence[int], row: Row) -> set[int]:
    """How many comparisons it takes to find each arm."""
    counts = set()
    for end in accumulate(row):
        _Counting.comparisons = 0
        bisect_right(list(map(_Counting, ends)), end - 1)
        counts.add(_Counting.comparisons)
    return counts


@pytest.mark.parametrize("n_arms", [2, 3, 4, 5, 8, 50, 300])
def test_every_search_compares_equally_often(n_arms: int) -> None:
    row = (SPACE - (n_arms - 1) * 2**50, *[2**50] * (n_arms - 1))
    assert comparisons(thresholds(row), row) == {(n_arms - 1).bit_length()}


def test_an_unpadded_search_would_not() -> None:
    row = (SPACE - 5 * 2**50, *[2**50] * 5)
    assert len(comparisons(list(accumulate(row[:-1])), row)) == 2


def test_entropy_is_the_systems() -> None:
    """Seeding Python's own generator changes nothing: two runs differ."""
    runs = []
    for _ in range(2):
        random.seed(1)
        runs.append(system_bytes(32))
    assert runs[0] != runs[1]

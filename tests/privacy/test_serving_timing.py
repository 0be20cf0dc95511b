"""A draw must not tell by its time whether the greedy arm was shown because it was greedy.

Its work is compared, not its time, which also depends on what else the machine does: every step of the
interpreter, every call of compiled code, every byte of entropy and every comparison of the search, in
order. A sampler that branches, the obvious way to write epsilon-greedy, fails, and so do one whose
branches are equally long and one that only calls something slower.
"""

from __future__ import annotations

import gc
import os
import sys
from bisect import bisect_right
from collections.abc import Callable
from itertools import accumulate
from types import FrameType
from typing import Any

import pytest

from deniable import ServingTable, arm_specific_table, symmetric_table
from deniable.errors import NANO
from deniable.privacy.exact import SPACE
from deniable.privacy.serving import Entropy

Draw = Callable[[int, Entropy], int]

TABLES = [symmetric_table(k, NANO) for k in (2, 3, 4, 5, 8, 50, 300)]
TABLES.append(arm_specific_table([NANO // 2, NANO, 2 * NANO]))


def _branching(table: ServingTable) -> Draw:
    """Epsilon-greedy as one would write it first: explore or exploit."""
    explored = sum(table.pieces)

    def draw(greedy: int, entropy: Entropy) -> int:
        if int.from_bytes(entropy(8), "little") < explored:
            return int.from_bytes(entropy(8), "little") * table.n_arms // SPACE
        return greedy

    return draw


def _two_equal_branches(table: ServingTable) -> Draw:
    """As many steps in either case, but not the same ones."""
    explored = sum(table.pieces)

    def draw(greedy: int, entropy: Entropy) -> int:
        number = int.from_bytes(entropy(8), "little")
        if number < explored:
            return number % table.n_arms
        return greedy % table.n_arms

    return draw


def _slower_call(table: ServingTable) -> Draw:
    """The same steps in either case, but one of them calls what takes longer."""
    explored = sum(table.pieces)
    shuffles: tuple[Callable[[int], Any], ...] = (bytes, os.urandom)

    def draw(greedy: int, entropy: Entropy) -> int:
        number = int.from_bytes(entropy(8), "little")
        shuffles[number < explored](4096)
        return greedy

    return draw


FAULTS = [_branching, _two_equal_branches, _slower_call]


def _numbers(table: ServingTable) -> dict[int, int]:
    """For each outcome of the table (its last is the greedy piece) a number that leads to it."""
    ends = list(accumulate((*table.pieces, table.bonus)))
    return {outcome: end - 1 for outcome, end in enumerate(ends)}


def _work(draw: Draw, greedy: int, number: int) -> list[object]:
    """Interpreter steps, calls of compiled code and reads of entropy of one draw, in order."""
    done: list[object] = []

    def trace(frame: FrameType, event: str, argument: Any) -> Any:
        frame.f_trace_opcodes = True
        if event == "opcode":
            done.append((frame.f_code, frame.f_lasti))
        return trace

    def profile(frame: FrameType, event: str, argument: Any) -> None:
        if event == "c_call":
            done.append(argument.__qualname__)

    def entropy(size: int) -> bytes:
        done.append(size)
        return number.to_bytes(size, "little")

    before = sys.gettrace(), sys.getprofile()
    gc.disable()  # its callbacks would be counted too
    sys.settrace(trace)
    sys.setprofile(profile)
    try:
        draw(greedy, entropy)
    finally:
        sys.setprofile(None)
        sys.settrace(None)
        sys.setprofile(before[1])
        sys.settrace(before[0])
        gc.enable()
    return done


def _all_work(draw: Draw, table: ServingTable) -> list[list[object]]:
    """The different kinds of work over greedy arms and outcomes: one, if it tells nothing."""
    kinds: list[list[object]] = []
    _work(draw, 0, 0)  # Python 3.12 overlooks the steps of what is traced first
    for greedy in sorted({0, 1, table.n_arms - 1}):
        for number in _numbers(table).values():
            done = _work(draw, greedy, number)
            if done not in kinds:
                kinds.append(done)
    return kinds


@pytest.mark.parametrize("table", TABLES)
def test_the_work_does_not_depend_on_the_greedy_arm_or_the_outcome(table: ServingTable) -> None:
    (work,) = _all_work(table.draw, table)
    assert sum(isinstance(step, tuple) for step in work) > 10
    assert [step for step in work if isinstance(step, int)] == [8]
    assert "bisect_right" in work


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("table", TABLES)
def test_the_work_of_a_faulty_sampler_does(
    table: ServingTable, fault: Callable[[ServingTable], Draw]
) -> None:
    assert len(_all_work(fault(table), table)) == 2


class _Counting(int):
    """A threshold that counts how often it is compared."""

    comparisons = 0

    def __gt__(self, other: int) -> bool:
        _Counting.comparisons += 1
        return int(self) > other

    def __lt__(self, other: int) -> bool:
        _Counting.comparisons += 1
        return int(self) < other


def _comparisons(thresholds: tuple[int, ...], number: int) -> int:
    counting = tuple(map(_Counting, thresholds))
    _Counting.comparisons = 0
    bisect_right(counting, number)
    return _Counting.comparisons


@pytest.mark.parametrize("table", TABLES)
def test_every_search_compares_equally_often(table: ServingTable) -> None:
    counts = {_comparisons(table.thresholds, number) for number in _numbers(table).values()}
    assert counts == {table.n_arms.bit_length()}


def test_an_unpadded_search_would_not() -> None:
    table = symmetric_table(5, NANO)
    plain = tuple(accumulate(table.pieces))
    assert len({_comparisons(plain, number) for number in _numbers(table).values()}) == 2

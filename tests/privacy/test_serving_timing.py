"""A draw must not tell by its work whether the greedy arm was shown because it was greedy.

Counted first (steps of the interpreter, comparisons of the search: exact, never flaky), then timed with
a wide margin. A sampler that branches, the obvious way to write epsilon-greedy, fails all three.
"""

from __future__ import annotations

import gc
import os
import sys
from bisect import bisect_right
from collections.abc import Callable
from itertools import accumulate
from statistics import median
from time import perf_counter_ns
from types import FrameType
from typing import Any

import pytest

from deniable import ServingTable, arm_specific_table, symmetric_table
from deniable.errors import NANO
from deniable.privacy.serving import SPACE, Entropy

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


def _numbers(table: ServingTable) -> dict[int, int]:
    """For each outcome of the table (its last is the greedy piece) a number that leads to it."""
    ends = list(accumulate((*table.pieces, table.bonus)))
    return {outcome: end - 1 for outcome, end in enumerate(ends)}


def _opcodes(draw: Draw, greedy: int, number: int) -> int:
    """Interpreter steps of one draw, those of the entropy source included."""
    steps = 0

    def trace(frame: FrameType, event: str, argument: Any) -> Any:
        nonlocal steps
        frame.f_trace_opcodes = True
        steps += event == "opcode"
        return trace

    def entropy(size: int) -> bytes:
        return number.to_bytes(size, "little")

    before = sys.gettrace()
    gc.disable()  # its callbacks would be counted too
    sys.settrace(trace)
    try:
        draw(greedy, entropy)
    finally:
        sys.settrace(before)
        gc.enable()
    return steps


@pytest.mark.parametrize("table", TABLES)
def test_steps_do_not_depend_on_the_greedy_arm_or_the_outcome(table: ServingTable) -> None:
    greedy_arms = {0, 1, table.n_arms - 1}
    steps = {_opcodes(table.draw, g, n) for g in greedy_arms for n in _numbers(table).values()}
    assert len(steps) == 1
    assert steps.pop() > 10


@pytest.mark.parametrize("table", TABLES)
def test_steps_of_a_branching_sampler_do(table: ServingTable) -> None:
    steps = {_opcodes(_branching(table), 0, n) for n in _numbers(table).values()}
    assert len(steps) == 2


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


Event = tuple[int, int]  # a greedy arm and the number that is drawn


def _time_ratio(draw: Draw, one: Event, other: Event, rounds: int = 61, draws: int = 1500) -> float:
    """Median over rounds of the time of one kind of draw over the other's, taken alternately."""

    def block(greedy: int, number: int) -> int:
        outcome = number.to_bytes(8, "little")

        def entropy(size: int) -> bytes:
            os.urandom(size)  # the real source's cost, so that a second call is as visible as live
            return outcome

        start = perf_counter_ns()
        for _ in range(draws):
            draw(greedy, entropy)
        return perf_counter_ns() - start

    return median(block(*one) / block(*other) for _ in range(rounds))


def test_greedy_and_other_draws_take_the_same_time() -> None:
    """A branching sampler shows a factor of about 1.9; ours stays within 25% of 1."""
    table = symmetric_table(8, NANO)
    numbers = _numbers(table)
    explored, exploited = (0, numbers[3]), (0, numbers[8])
    ours = _time_ratio(table.draw, explored, exploited)
    by_arm = _time_ratio(table.draw, (0, numbers[8]), (7, numbers[8]))
    control = _time_ratio(_branching(table), explored, exploited)
    assert 0.8 < ours < 1.25, ours
    assert 0.8 < by_arm < 1.25, by_arm
    assert control > 1.4, control

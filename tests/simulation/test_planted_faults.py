"""The comparison of leap and step has power: one fault in one part of the leap kernel, and it fails.

The kernel runs as Python, with one of its parts replaced. Each of its ways to advance is tested on its
own: blocks, those of a decaying schedule and of two arms, words of 64 visitors for two arms and
for more.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

import numpy as np
import pytest
from tests.simulation.two_samples import NEVER, Samples, least_p_value, named, sample, world_of

from deniable._compile import as_python
from deniable.policies.base import GreedyRule
from deniable.simulation.job import SimulationJob, kernel_rule
from deniable.simulation.kernels import (
    bit_parallel,
    block,
    challenger_shows,
    decaying_exploration,
    leap,
    step,
    two_arms,
)
from deniable.simulation.kernels.exploration import explore, scheduled
from deniable.simulation.kernels.random_numbers import generator_state, hypergeometric, threshold
from deniable.simulation.kernels.run import leap_space
from deniable.simulation.kernels.state import World

REPETITIONS = 2000
THREE = (0.3, 0.32, 0.1)
Parts = dict[str, Any]


def _run_in_python(job: SimulationJob, seed: int, repetition: int) -> Any:
    rule = job.rule
    assert isinstance(rule, GreedyRule)
    state = generator_state(np.random.SeedSequence(seed, spawn_key=(repetition,)))
    shows, clicks = np.zeros(job.rates.shape, np.int64), np.zeros(job.rates.shape, np.int64)
    clocks = np.zeros(1, np.int64)
    world = World(job.rates, job.arrival, shows, clicks, clocks, state)
    n_segments, n_arms = job.rates.shape
    space = leap_space(n_segments, n_arms, 1)
    words = None if n_arms == 2 else np.empty((3, n_arms), np.uint64)
    seen = []
    for done, point in zip((0, *job.checkpoints[:-1]), job.checkpoints, strict=True):
        visit = as_python(leap.leap_visitors)
        visit(kernel_rule(rule), int(point - done), space, words, world)
        seen.append((shows.copy(), clicks.copy()))
    return np.array([s for s, _ in seen]), np.array([c for _, c in seen])


# The ways to advance. Any block length is exact; long ones are full of changes: every part has work.


def _blocks(settle: Parts, **parts: Any) -> Parts:
    length = leap._quiet_length
    return {
        "LONG": 0.0,  # no words
        "_quiet_length": lambda *rest: min(rest[-1], 40 + 8 * length(*rest)),
        "settle_block": as_python(block.settle_block, **settle),
        **parts,
    }


def _decaying_blocks(**parts: Any) -> Parts:
    return _blocks({}, advance_decaying=as_python(decaying_exploration.advance_decaying, **parts))


def _word_of(digits: Callable[[float], Any] = threshold) -> Any:
    return lambda probability: np.uint64(digits(probability))


def _coin_of(digits: Callable[[float], Any] = threshold) -> Any:
    return as_python(two_arms._coin, threshold=_word_of(digits))


def _pair_words(**parts: Any) -> Parts:
    only_words = {
        "_coin": _coin_of(),
        "threshold": _word_of(),
        "_BLOCK": 1e9,
        "LONG": 1e9,
        "_FAR": 1e9,
    }
    return {
        "LONG": 1e9,
        "advance_two_arms": as_python(two_arms.advance_two_arms, **{**only_words, **parts}),
    }


def _pair_blocks(**parts: Any) -> Parts:
    """Blocks whose check takes both arms together, from the second arm's first show on."""

    def long(n: int, c: int, k: int, d: int, *rest: float) -> float:
        return min(rest[-1], 120.0) if k > 0 else 0.0

    taken = as_python(two_arms._take_block, **{"lead_length": long, "_BLOCK": 0.0, **parts})
    # Blocks from the start on, but not where a tie is broken.
    return _pair_words(_BLOCK=0.0, _take_block=taken)


def _pair_shows(**parts: Any) -> Parts:
    """Blocks of the challenger's shows, so long that the leader often falls in them."""
    taken = as_python(challenger_shows.take_shows, **{"_SAFE": 0.5, **parts})
    return _pair_blocks(lead_length=lambda *rest: 0.0, take_shows=taken)


def _words_of_arms(take: Parts, **parts: Any) -> Parts:
    usual = {"threshold": _word_of(), "_SHORT": 0.0, "LONG": 1e9}
    taken = {"_take_word": as_python(bit_parallel._take_word, **{"threshold": _word_of(), **take})}
    made = as_python(bit_parallel.advance_words, **{**usual, **taken, **parts})
    return {"LONG": 1e9, "advance_words": made}


# The faults.


def _yes(*arguments: Any) -> bool:
    return True


def _first_tied(shows: Any, clicks: Any, leader: int, rank: int) -> int:
    return leader


def _one_more(good: int, bad: int, size: int, state: Any) -> int:
    got = int(hypergeometric(good, bad, size, state))
    return got + 1 if got < min(good, size) else got


def _early(n_arms: int, clock: int) -> float:
    """The schedule of an earlier clock."""
    return float(scheduled(n_arms, max(1, clock // 4)))


def _early_explore(rule: Any, clock: int, out: Any) -> float:
    return float(explore(rule, max(1, clock // 4), out))


def _early_slope(n_arms: int, floor: float, clock: int) -> Any:
    return decaying_exploration._schedule_and_slope(n_arms, floor, max(1, clock // 4))


def _keep_going(function: Any) -> Any:
    def go_on(*arguments: Any) -> bool:
        function(*arguments)
        return True

    return go_on


def _take_all(size: int, seated: int, blocks: Any, leaders: Any, world: Any) -> bool:
    """A step taken to its end, whoever leads."""
    block.take_block(size, seated, blocks, world)
    return True


def _walk_on(
    size: int, others: int, wins: int, hits: int, n: int, c: int, k: int, d: int, state: Any
) -> Any:
    """A small block walked to its end, whoever leads: the leader's clicks are made to look many."""
    passed, _, n, c, k, d = two_arms._walk(size, others, wins, hits, n, c + 10**6, k, d, state)
    return passed, True, n, c - 10**6, k, d


def _whole_word(visitors: int, coin: Any, arms: Any) -> None:
    """A word taken whole, whatever happens in it: the leader's clicks are made to look many."""
    gap = arms.clicks[0] * arms.shows[1] - arms.clicks[1] * arms.shows[0]
    leader = 0 if gap > 0 else 1
    many = 10**6 if gap != 0 else 0
    arms.clicks[leader] += many
    two_arms._take_word(visitors, coin, arms)
    arms.clicks[leader] -= many


def _first_of_tie(visitors: int, coin: Any, arms: Any) -> None:
    """Where the arms are tied, everybody sees the first."""
    for _ in range(visitors):
        if arms.clicks[0] * arms.shows[1] == arms.clicks[1] * arms.shows[0]:
            two_arms.show(0, arms)
        else:
            two_arms._take_word(1, coin, arms)


def _stays_up(*arguments: Any) -> tuple[int, int]:
    """The leader never falls to the bar."""
    return 0, 0


def _above_the_bar(others: int, bar: float, below: float, *rest: Any) -> Any:
    """The challenger passes the bar unseen."""
    return challenger_shows._until_bar(others, bar, below + 1e6, *rest)


def _forget_the_last(*arguments: Any) -> Any:
    """The click that ends a block is not counted."""
    shown, hits, ended = challenger_shows._until_bar(*arguments)
    return shown, hits - 1 if ended else hits, ended


def _in_the_middle(rank: int, total: int, state: Any) -> float:
    return 0.5


def _all_before(place: int, mine: int, others: int, state: Any) -> int:
    return others


def _never(scale: float, state: Any) -> int:
    """Nobody clicks on the better arm only."""
    return 2**62


def _tenth_more(probability: float) -> Any:
    return threshold(min(1.0, 1.1 * probability))


NO_FAULT: dict[str, tuple[Parts, str, float, tuple[float, ...], int]] = {
    "blocks": (_blocks({}), "constant", 3, THREE, 400),
    "blocks of a decaying schedule": (_decaying_blocks(), "dynamic", 4, THREE, 400),
    "words of two arms": (_pair_words(), "dynamic", 4, (0.3, 0.32), 400),
    "blocks of two arms": (_pair_blocks(), "constant", 3, (0.3, 0.32), 400),
    "shows of the challenger": (_pair_shows(), "constant", 3, (0.3, 0.32), 400),
    "words of three arms": (_words_of_arms({}), "dynamic", 4, THREE, 400),
}
_off = {"_split_block": as_python(block._split_block, hypergeometric=_one_more)}
_ties = {
    "step_visitors": as_python(step.step_visitors, tied_arm=_first_tied),
    "draw_totals": as_python(block.draw_totals, tied_arm=_first_tied),
}
_late = {
    "explore": _early_explore,
    "_draw_undecided": as_python(leap._draw_undecided, explore=_early_explore),
}
_rest = {"_walk_block": _keep_going(block._walk_block)}
_deal_off = as_python(decaying_exploration._deal, hypergeometric=_one_more)
_all_wander = as_python(decaying_exploration._count_wanderers, uniform=lambda state: 0.0)
_single = as_python(bit_parallel._single, tied_arm=_first_tied)
_two, _few, _high = (0.3, 0.32), (0.05, 0.05, 0.05), (0.8, 0.7, 0.75)
FAULTS: dict[str, tuple[Parts, str, float, tuple[float, ...], int]] = {
    "accepting a block too early": (_blocks({"_holds": _yes}), "constant", 3, THREE, 400),
    "not dropping the rest": (_blocks(_rest), "constant", 3, THREE, 400),
    "wrong tie rule": (_blocks({}, **_ties), "constant", 3, _few, 60),
    "wrong schedule": (_blocks({}, **_late), "arm-dynamic", 4, THREE, 400),
    "hypergeometric off by one": (_blocks(_off), "constant", 3, THREE, 400),
    "decaying: accepting too early": (
        _decaying_blocks(keeps_leader=_yes),
        "dynamic",
        4,
        THREE,
        400,
    ),
    "decaying: not dropping the rest": (
        _decaying_blocks(settle_block=_take_all),
        "dynamic",
        4,
        THREE,
        400,
    ),
    "decaying: wrong schedule": (
        _decaying_blocks(scheduled=_early, _schedule_and_slope=_early_slope),
        "dynamic",
        4,
        THREE,
        400,
    ),
    "decaying: every candidate wanders": (
        _decaying_blocks(_count_wanderers=_all_wander),
        "dynamic",
        4,
        THREE,
        400,
    ),
    "decaying: dealt out off by one": (_decaying_blocks(_deal=_deal_off), "dynamic", 4, THREE, 400),
    "pair: a word taken whole": (_pair_words(_take_word=_whole_word), "constant", 3, _two, 400),
    "pair: wrong digits": (_pair_words(_coin=_coin_of(_tenth_more)), "constant", 1, _two, 400),
    "pair: wrong schedule": (_pair_words(scheduled=_early), "dynamic", 4, _two, 400),
    "pair: wrong tie rule": (
        _pair_words(_take_word=_first_of_tie),
        "constant",
        3,
        (0.05, 0.05),
        400,
    ),
    "pair: the better arm's further clicks": (
        _pair_words(failures_before_success=_never),
        "constant",
        3,
        (0.3, 0.4),
        400,
    ),
    "pair: accepting a block too early": (
        _pair_blocks(almost_surely_below=_yes),
        "constant",
        3,
        _two,
        400,
    ),
    "pair: both together, unchecked": (
        _pair_blocks(keeps_lead=_yes),
        "constant",
        3,
        _two,
        400,
    ),
    "shows: a fall overlooked": (
        _pair_shows(first_fall=_stays_up, _NEAR=1e9, _SAFE=0.05),
        "constant",
        3,
        _two,
        400,
    ),
    "shows: the bar passed unseen": (
        _pair_shows(_until_bar=_above_the_bar),
        "constant",
        3,
        _two,
        400,
    ),
    "shows: a click forgotten": (
        _pair_shows(_until_bar=_forget_the_last),
        "constant",
        3,
        _two,
        400,
    ),
    "shows: all in the middle": (
        _pair_shows(_order_statistic=_in_the_middle),
        "constant",
        3,
        _two,
        400,
    ),
    "shows: all before a fall": (_pair_shows(_shows_before=_all_before), "constant", 1, _two, 400),
    "pair: not dropping the rest": (_pair_blocks(_walk=_walk_on), "constant", 3, _two, 400),
    "pair: hypergeometric off by one": (
        _pair_blocks(hypergeometric=_one_more),
        "constant",
        3,
        _two,
        400,
    ),
    "words: a word taken whole": (_words_of_arms({"_stays": _yes}), "constant", 3, THREE, 400),
    "words: a lost lead overlooked": (_words_of_arms({"_leads": _yes}), "constant", 3, _high, 400),
    "words: wrong digits": (
        _words_of_arms({"threshold": _word_of(_tenth_more)}, threshold=_word_of(_tenth_more)),
        "constant",
        1,
        THREE,
        400,
    ),
    "words: wrong schedule": (_words_of_arms({}, scheduled=_early), "dynamic", 4, THREE, 400),
    "words: wrong tie rule": (_words_of_arms({}, _single=_single), "constant", 3, _few, 100),
}


@cache
def _stepped(name: str, budget: float, rates: tuple[float, ...], horizon: int) -> Samples:
    """What several faults are compared with."""
    policy = named(name, budget, len(rates))
    return sample(world_of(rates, 1, horizon), policy, "step", REPETITIONS, seed=2)


def _p_values(
    case: Any, parts: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> Iterator[float]:
    """After so many repetitions, one part after the other."""
    replaced, name, budget, rates, horizon = case
    world = world_of(rates, 1, horizon)
    policy = named(name, budget, len(rates))
    stepped = _stepped(name, budget, rates, horizon)
    leapt = stepped[:0]
    for part in parts:
        with monkeypatch.context() as patch:
            for place, replacement in replaced.items():
                patch.setattr(leap, place, replacement)
            wanted = range(len(leapt), part)
            more = sample(world, policy, "leap", wanted, seed=1, run=_run_in_python)
        leapt = np.concatenate([leapt, more])
        yield least_p_value(leapt, stepped[:part])


@pytest.mark.parametrize("fault", FAULTS)
def test_planted_faults_are_found(fault: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Most of them already in a part of the repetitions: the whole has more power."""
    parts = (REPETITIONS // 8, REPETITIONS // 2, REPETITIONS)
    assert any(found < NEVER for found in _p_values(FAULTS[fault], parts, monkeypatch))


@pytest.mark.parametrize("way", NO_FAULT)
def test_the_same_harness_passes_without_a_fault(way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    (found,) = _p_values(NO_FAULT[way], (REPETITIONS,), monkeypatch)
    assert found > NEVER

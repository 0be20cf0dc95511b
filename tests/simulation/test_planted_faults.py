"""The comparison of leap and step has power: one fault in one part of the leap kernel, and it fails.

The kernel runs as Python, with one of its parts replaced. Each of its ways to advance is tested on its
own: blocks, those of a falling schedule and of two arms, words of 64 visitors for two arms and for more.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from tests.simulation.two_samples import NEVER, least_p_value, named, sample, world_of

from deniable.policies.contract import GreedyRule
from deniable.simulation import _block, _falling, _leap, _pair, _pair_block, _settle, _step, _words
from deniable.simulation._block_length import pair_length
from deniable.simulation._exploring import explore, scheduled
from deniable.simulation._generator import generator_state
from deniable.simulation._samplers import hypergeometric
from deniable.simulation.job import Job

REPETITIONS = 2000
THREE = (0.3, 0.32, 0.1)
Parts = dict[str, Any]


def _run_in_python(job: Job, seed: int, repetition: int) -> Any:
    rule = job.rule
    assert isinstance(rule, GreedyRule)
    state = generator_state(np.random.SeedSequence(seed, spawn_key=(repetition,)))
    shows, clicks = np.zeros(job.rates.shape, np.int64), np.zeros(job.rates.shape, np.int64)
    clocks = np.zeros(1, np.int64)
    kind = {"fixed": 0, "dynamic": 1, "arm-dynamic": 2}[rule.kind]
    seen = []
    for done, point in zip((0, *job.checkpoints[:-1]), job.checkpoints, strict=True):
        _leap.leap_visitors.py_func(  # type: ignore[attr-defined]
            kind,
            rule.exploring,
            rule.floor,
            rule.budgets,
            rule.turns,
            clocks,
            job.rates,
            job.arrival,
            int(point - done),
            shows,
            clicks,
            state,
        )
        seen.append((shows.copy(), clicks.copy()))
    return np.array([s for s, _ in seen]), np.array([c for _, c in seen])


def _python(function: Any, **replaced: Any) -> Any:
    """A compiled function as Python, with some of what it calls replaced."""
    source = function.py_func
    return type(source)(source.__code__, {**source.__globals__, **replaced}, source.__name__)


# The ways to advance. Any block length is exact; long ones are full of changes: every part has work.


def _blocks(settle: Parts, **parts: Any) -> Parts:
    length = _leap._quiet_length
    return {
        "LONG": 0.0,  # no words
        "_quiet_length": lambda *rest: min(rest[-1], 40 + 8 * length(*rest)),
        "settle_block": _python(_settle.settle_block, **settle),
        **parts,
    }


def _falling_blocks(**parts: Any) -> Parts:
    return _blocks({}, falling_visitors=_python(_falling.falling_visitors, **parts))


def _word_of(threshold: Callable[[float], int] = _pair.threshold) -> Any:
    return lambda probability: np.uint64(threshold(probability))


def _pair_words(**parts: Any) -> Parts:
    only_words = {"threshold": _word_of(), "_BLOCK": 1e9, "_SHORT": 2.0, "LONG": 1e9, "_FAR": 1e9}
    return {"LONG": 1e9, "pair_visitors": _python(_pair.pair_visitors, **{**only_words, **parts})}


def _pair_blocks(**parts: Any) -> Parts:
    length = pair_length
    long = {"pair_length": lambda *rest: min(rest[-1], 40 + 8 * length(*rest)), **parts}
    block = _python(_pair_block.take_block, **long)
    # Blocks from the start on, but not where a tie is broken.
    return _pair_words(_BLOCK=0.0, take_block=block)


def _words_of_arms(take: Parts, **parts: Any) -> Parts:
    usual = {"threshold": _word_of(), "_SHORT": 0.0, "LONG": 1e9}
    taken = {"_take_word": _python(_words._take_word, **{"threshold": _word_of(), **take})}
    made = _python(_words.word_visitors, **{**usual, **taken, **parts})
    return {"LONG": 1e9, "word_visitors": made}


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


def _early_explore(kind: int, clock: int, *rest: Any) -> float:
    return float(explore(kind, max(1, clock // 4), *rest))


def _early_slope(n_arms: int, floor: float, clock: int) -> Any:
    return _falling._schedule_and_slope(n_arms, floor, max(1, clock // 4))


def _keep_going(function: Any) -> Any:
    def go_on(*arguments: Any) -> bool:
        function(*arguments)
        return True

    return go_on


def _take_all(size: int, seated: int, *arguments: Any) -> bool:
    """A step taken to its end, whoever leads."""
    _, _, undecided, _, _, shown, won, clocks, shows, clicks, _ = arguments
    shows += shown[0]
    clicks += won[0]
    for j, arm, hit in undecided[:seated]:
        shows[j, arm] += 1
        clicks[j, arm] += hit
    clocks[0] += size
    return True


def _walk_on(
    size: int, others: int, wins: int, hits: int, n: int, c: int, k: int, d: int, state: Any
) -> Any:
    """A small block walked to its end, whoever leads: the leader's clicks are made to look many."""
    passed, _, n, c, k, d = _pair_block._walk(size, others, wins, hits, n, c + 10**6, k, d, state)
    return passed, True, n, c - 10**6, k, d


def _whole_word(*arguments: Any) -> Any:
    """A word taken whole, whatever happens in it: the leader's clicks are made to look many."""
    leader, _, clicks, _ = arguments[-4:]
    clicks[leader] += 10**6
    done = _pair._take_word(*arguments)
    clicks[leader] -= 10**6
    return done


def _tenth_more(probability: float) -> Any:
    return _pair.threshold(min(1.0, 1.1 * probability))


def _always_first(gap: int, wanders: bool, state: Any) -> int:
    return 0


NO_FAULT: dict[str, tuple[Parts, str, float, tuple[float, ...], int]] = {
    "blocks": (_blocks({}), "constant", 3, THREE, 400),
    "blocks of a falling schedule": (_falling_blocks(), "dynamic", 4, THREE, 400),
    "words of two arms": (_pair_words(), "dynamic", 4, (0.3, 0.32), 400),
    "blocks of two arms": (_pair_blocks(), "constant", 3, (0.3, 0.32), 400),
    "words of three arms": (_words_of_arms({}), "dynamic", 4, THREE, 400),
}
_off = {"split_block": _python(_block.split_block, hypergeometric=_one_more)}
_ties = {
    "step_visitors": _python(_step.step_visitors, tied_arm=_first_tied),
    "draw_totals": _python(_block.draw_totals, tied_arm=_first_tied),
}
_rest = {"walk_block": _keep_going(_block.walk_block)}
_deal_off = _python(_falling._deal, hypergeometric=_one_more)
_all_wander = _python(_falling._wander, uniform=lambda state: 0.0)
_single = _python(_words._single, tied_arm=_first_tied)
_two, _few, _high = (0.3, 0.32), (0.05, 0.05, 0.05), (0.8, 0.7, 0.75)
FAULTS: dict[str, tuple[Parts, str, float, tuple[float, ...], int]] = {
    "accepting a block too early": (_blocks({"holds": _yes}), "constant", 3, THREE, 400),
    "not dropping the rest": (_blocks(_rest), "constant", 3, THREE, 400),
    "wrong tie rule": (_blocks({}, **_ties), "constant", 3, _few, 60),
    "wrong schedule": (_blocks({}, explore=_early_explore), "arm-dynamic", 4, THREE, 400),
    "hypergeometric off by one": (_blocks(_off), "constant", 3, THREE, 400),
    "falling: accepting too early": (_falling_blocks(keeps_leader=_yes), "dynamic", 4, THREE, 400),
    "falling: not dropping the rest": (
        _falling_blocks(settle_block=_take_all),
        "dynamic",
        4,
        THREE,
        400,
    ),
    "falling: wrong schedule": (
        _falling_blocks(scheduled=_early, _schedule_and_slope=_early_slope),
        "dynamic",
        4,
        THREE,
        400,
    ),
    "falling: every candidate wanders": (
        _falling_blocks(_wander=_all_wander),
        "dynamic",
        4,
        THREE,
        400,
    ),
    "falling: dealt out off by one": (_falling_blocks(_deal=_deal_off), "dynamic", 4, THREE, 400),
    "pair: a word taken whole": (_pair_words(_take_word=_whole_word), "constant", 3, _two, 400),
    "pair: wrong digits": (_pair_words(threshold=_word_of(_tenth_more)), "constant", 1, _two, 400),
    "pair: wrong schedule": (_pair_words(scheduled=_early), "dynamic", 4, _two, 400),
    "pair: wrong tie rule": (
        _pair_words(_greedy_or_not=_always_first),
        "constant",
        3,
        (0.05, 0.05),
        400,
    ),
    "pair: accepting a block too early": (
        _pair_blocks(almost_surely_below=_yes),
        "constant",
        3,
        _two,
        400,
    ),
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


def _p_value(case: Any, monkeypatch: pytest.MonkeyPatch) -> float:
    parts, name, budget, rates, horizon = case
    world = world_of(rates, 1, horizon)
    policy = named(name, budget, len(rates))
    step = sample(world, policy, "step", REPETITIONS, seed=2)
    for part, replacement in parts.items():
        monkeypatch.setattr(_leap, part, replacement)
    leap = sample(world, policy, "leap", REPETITIONS, seed=1, run=_run_in_python)
    return least_p_value(leap, step)


@pytest.mark.parametrize("fault", FAULTS)
def test_planted_faults_are_found(fault: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert _p_value(FAULTS[fault], monkeypatch) < NEVER


@pytest.mark.parametrize("way", NO_FAULT)
def test_the_same_harness_passes_without_a_fault(way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert _p_value(NO_FAULT[way], monkeypatch) > NEVER

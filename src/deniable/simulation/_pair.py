"""Two arms, one segment, near a tie: 64 visitors as one machine word.

Near a tie the leader changes often and blocks are short, so the cost of a short block is what
counts. Here 64 visitors are a word: a random bit for "the challenger is shown" and one for each click,
made by comparing the binary digits of 64 uniform numbers with those of a probability at once. Totals
are counts of bits; where they do not settle that the leader stays, the word is walked bit by bit.

The leader has n shows and c clicks, the challenger k and d. It leads while c k - d n > 0.

A falling schedule is cut into epochs. Within one, each visitor has the exploration of the epoch's end,
but for a rare visitor, found by geometric waits, whose own clock decides.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from deniable.policies._compile import compiled
from deniable.simulation._exploring import FIXED, scheduled
from deniable.simulation._generator import scrambled_word, uniform
from deniable.simulation._greedy import PRODUCT_SAFE
from deniable.simulation._pair_block import take_block
from deniable.simulation._samplers import failures_before_success, wait_scale

_FIVES, _THREES = np.uint64(0x5555555555555555), np.uint64(0x3333333333333333)
_FS, _ONES = np.uint64(0x0F0F0F0F0F0F0F0F), np.uint64(0x0101010101010101)
_U1, _U2, _U4, _U8, _U56, _U63 = (np.uint64(x) for x in (1, 2, 4, 8, 56, 63))
_ZERO, _FULL = np.uint64(0), np.uint64(0xFFFFFFFFFFFFFFFF)
_BYTE = np.uint64(0xFF)

_NEVER = np.int64(2**62)

WORD = 64
LONG = 250.0  # visitors of a quiet block, from which drawing it by binomials is cheaper
_BLOCK = 200.0  # ... from which it is cheaper here, where it takes no arrays
_FAR = 1000.0  # ... from which many steps of a falling schedule are better taken together
_SHORT = 10.0  # ... below which visitors are taken one by one
_RUN = 8
_SHARE = 0.7  # of the visitors whose expected worst order would close the gap
_FEW = 6  # shows of the challenger in a word that are cheaper tossed one by one


@compiled
def ones(word: Any) -> Any:
    """How many bits are set."""
    word = word - ((word >> _U1) & _FIVES)
    word = (word & _THREES) + ((word >> _U2) & _THREES)
    word = (word + (word >> _U4)) & _FS
    return np.int64((word * _ONES) >> _U56)


@compiled
def threshold(probability: Any) -> Any:
    """The probability as 63 binary digits; exact for floats of 2^-10 and more, else to 2^-63."""
    if probability >= 1.0:
        return _FULL
    return np.uint64(probability * 9223372036854775808.0) << _U1


@compiled
def coins(limit: Any, state: Any) -> Any:
    """64 independent bits, each set with probability limit / 2^64.

    Each bit is "a uniform number is below the limit", decided at the first binary digit in which
    the two differ; all 64 are decided after about eight digits.
    """
    if limit == _FULL:
        return _FULL
    result = _ZERO
    undecided = _FULL
    while undecided != _ZERO and limit != _ZERO:
        word = scrambled_word(state)
        if limit >> _U63 != _ZERO:
            result |= undecided & ~word
            undecided &= word
        else:
            undecided &= ~word
        limit <<= _U1
    return result


@compiled
def _clicks_of_shown(shown: Any, rate: Any, limit: Any, state: Any) -> Any:
    """A click bit for each bit set in `shown`; the others are of no account."""
    if ones(shown) > _FEW:
        return coins(limit, state) & shown
    clicked = _ZERO
    while shown != _ZERO:
        lowest = shown & (~shown + _U1)
        if uniform(state) < rate:
            clicked |= lowest
        shown ^= lowest
    return clicked


@compiled
def pair_visitors(
    kind: Any,
    fixed: Any,
    floor: Any,
    settles_at: Any,
    clocks: Any,
    rates: Any,
    visitors: Any,
    shows: Any,
    clicks: Any,
    state: Any,
) -> None:
    """Advance two arms of one segment, at most by `visitors`.

    It ends early where the two are well apart and the schedule still falls.

    Args:
        kind: FIXED or DYNAMIC.
        fixed: the rule's exploration of the two arms, then its bonus.
        floor: the rule's least exploration.
        settles_at: the clock from which the rule stays as it is.
        clocks: visitors so far, (1,).
        rates: click rates, (2,).
        visitors: how many at most.
        shows: counts so far, (2,); all below `PRODUCT_SAFE`.
        clicks: counts so far, (2,).
        state: the generator.
    """
    start = clocks[0]
    clock = start
    end = clock + min(visitors, PRODUCT_SAFE - shows[0], PRODUCT_SAFE - shows[1])
    stack = np.empty((64, 4), np.int64)
    limits = (threshold(rates[0]), threshold(rates[1]))
    explored = (fixed[0], fixed[1])
    epoch_end = _NEVER if kind == FIXED else clock
    rare_at = _NEVER
    loose, scale = 0.0, 0.0
    show_limits = (threshold(explored[1]), threshold(explored[0]))
    while clock < end:
        if clock >= epoch_end:
            # At clock + 1 and after: the epoch is short enough that few visitors are rare.
            first = max(floor, scheduled(2, clock + 1))
            epoch_end = clock + 64 + clock // 128
            rate = first
            if clock + 1 >= settles_at:
                epoch_end = _NEVER
            else:
                rate = max(floor, scheduled(2, epoch_end))
            loose = first - rate
            scale = wait_scale(loose)
            rare_at = clock + failures_before_success(scale, state)
            sure = 1.0 - loose
            explored = (rate / 2.0 / sure, rate / 2.0 / sure)
            show_limits = (threshold(explored[1]), threshold(explored[0]))
        gap = clicks[0] * max(shows[1], 1) - clicks[1] * max(shows[0], 1)
        if clock == rare_at:
            now = max(floor, scheduled(2, clock + 1))
            last = explored[0] * 2.0 * (1.0 - loose)
            wanders = uniform(state) * loose < now - last
            arm = _greedy_or_not(gap, wanders, state)
            _show(arm, rates, shows, clicks, state)
            clock += 1
            rare_at = clock + failures_before_success(scale, state)
            continue
        if gap == 0:
            u = uniform(state)
            arm = 0 if u < explored[0] else 1
            if u >= explored[0] + explored[1]:
                arm = _greedy_or_not(gap, False, state)
            _show(arm, rates, shows, clicks, state)
            clock += 1
            continue
        leader = 0 if gap > 0 else 1
        other = 1 - leader
        wander = explored[other]
        closing = (1.0 - wander) * (1.0 - rates[leader]) * clicks[other]
        closing += wander * rates[other] * (shows[leader] - clicks[leader])
        ahead = _SHARE * abs(gap)
        room = min(end, epoch_end, rare_at) - clock
        # Blocks longer than an epoch are better taken together with those after it.
        longer = ahead > min(max(LONG, clock / 128.0), _FAR) * closing
        if longer and epoch_end != _NEVER and clock > start:
            break
        if ahead > _BLOCK * closing and room >= _BLOCK:
            done = take_block(
                room, wander, rates[leader], rates[other], leader, shows, clicks, stack, state
            )
        elif ahead < _SHORT * closing:
            done = _take_singles(
                min(_RUN, room), wander, rates[leader], rates[other], leader, shows, clicks, state
            )
        else:
            done = _take_word(
                min(WORD, room),
                show_limits[leader],
                limits[leader],
                limits[other],
                rates[other],
                leader,
                shows,
                clicks,
                state,
            )
        clock += done
    clocks[0] = clock


@compiled
def _greedy_or_not(gap: Any, wanders: Any, state: Any) -> Any:
    """An arm at random, or the greedy one, itself at random where the two are tied."""
    if wanders or gap == 0:
        return 0 if uniform(state) < 0.5 else 1
    return 0 if gap > 0 else 1


@compiled
def _show(arm: Any, rates: Any, shows: Any, clicks: Any, state: Any) -> None:
    shows[arm] += 1
    if uniform(state) < rates[arm]:
        clicks[arm] += 1


@compiled
def _take_singles(
    visitors: Any,
    wander: Any,
    own_rate: Any,
    other_rate: Any,
    leader: Any,
    shows: Any,
    clicks: Any,
    state: Any,
) -> Any:
    """Visitors one by one until the lead is lost; returns how many."""
    n, c, k, d = shows[leader], clicks[leader], shows[1 - leader], clicks[1 - leader]
    done = 0
    while done < visitors:
        done += 1
        if uniform(state) < wander:
            k += 1
            if uniform(state) < other_rate:
                d += 1
        else:
            n += 1
            if uniform(state) < own_rate:
                c += 1
        if c * max(k, 1) <= d * n:
            break
    shows[leader], clicks[leader], shows[1 - leader], clicks[1 - leader] = n, c, k, d
    return done


@compiled
def _take_word(
    visitors: Any,
    show_limit: Any,
    own_limit: Any,
    other_limit: Any,
    other_rate: Any,
    leader: Any,
    shows: Any,
    clicks: Any,
    state: Any,
) -> Any:
    """Up to 64 visitors at once, until the lead is lost; returns how many."""
    n, c, k, d = shows[leader], clicks[leader], shows[1 - leader], clicks[1 - leader]
    mask = _FULL if visitors == WORD else (_U1 << np.uint64(visitors)) - _U1
    others = coins(show_limit, state) & mask
    own_clicks = coins(own_limit, state) & mask & ~others
    other_clicks = _clicks_of_shown(others, other_rate, other_limit, state)
    own_failures = mask & ~others & ~own_clicks
    hits, losses = ones(other_clicks), ones(own_failures)
    done = 0
    if c * max(k + hits, 1) > (d + hits) * (n + losses):
        wins = ones(own_clicks)
        n, c, k, d = n + wins + losses, c + wins, k + ones(others), d + hits
        done = visitors
    leading = True
    while done < visitors and leading:
        # Eight visitors: by their totals if those settle it, else one by one.
        size = min(8, visitors - done)
        byte_others, byte_hits = others & _BYTE, other_clicks & _BYTE
        byte_wins, byte_losses = own_clicks & _BYTE, own_failures & _BYTE
        hits, losses = ones(byte_hits), ones(byte_losses)
        if c * max(k + hits, 1) > (d + hits) * (n + losses):
            wins = ones(byte_wins)
            n, c, k, d = n + wins + losses, c + wins, k + ones(byte_others), d + hits
            done += size
        else:
            bit = _U1
            while size > 0 and leading:
                if others & bit != _ZERO:
                    k += 1
                    d += 1 if other_clicks & bit != _ZERO else 0
                else:
                    n += 1
                    c += 1 if own_clicks & bit != _ZERO else 0
                leading = c * max(k, 1) > d * n
                bit <<= _U1
                size -= 1
                done += 1
        others >>= _U8
        other_clicks >>= _U8
        own_clicks >>= _U8
        own_failures >>= _U8
    shows[leader], clicks[leader], shows[1 - leader], clicks[1 - leader] = n, c, k, d
    return done

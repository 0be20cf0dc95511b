"""Two arms, one segment: 64 visitors as one machine word near a tie, blocks otherwise.

Near a tie the leader changes often and blocks are short, so the cost of a short block matters. Here
64 visitors are a word: a random bit for "the challenger is shown" and one for each click, computed
by comparing the binary digits of 64 uniform numbers with those of a probability at once. Totals are
counts of bits; if they do not prove that the leader stays, the word is processed bit by bit.

The leader has n shows and c clicks, the challenger k and d. It leads while c k - d n > 0.

A decaying schedule is divided into epochs. Within one, each visitor has the exploration of the epoch's
end, except for a rare visitor, found by geometric waiting times, whose own clock decides.
"""

from __future__ import annotations

import numpy as np

from deniable._compile import compiled
from deniable.simulation.kernels.block_length import pair_length
from deniable.simulation.kernels.exploration import scheduled
from deniable.simulation.kernels.leader import PRODUCT_SAFE, almost_surely_below
from deniable.simulation.kernels.random_numbers import (
    FULL_WORD,
    ZERO_WORD,
    binomial,
    coins,
    failures_before_success,
    hypergeometric,
    ones,
    threshold,
    uniform,
    wait_scale,
)
from deniable.simulation.kernels.state import FIXED, NEVER, Arms, IntArray, Rule, WordArray

_U1, _U8 = np.uint64(1), np.uint64(8)
_BYTE = np.uint64(0xFF)

WORD = 64
LONG = 250.0  # block length from which drawing it by binomials is cheaper
_BLOCK = 200.0  # ... from which it is cheaper here, without arrays
_FAR = 1000.0  # ... from which many steps of a decaying schedule are better processed together
_SHORT = 10.0  # ... below which visitors are processed one by one
_RUN = 8
_SHARE = 0.7  # share of the visitors whose expected worst order would close the gap
_FEW = 6  # up to this many shows of the challenger per word, tossing one by one is cheaper
_LEAF = 16  # parts of this size are walked through


@compiled
def advance_two_arms(rule: Rule, visitors: int, stack: IntArray, arms: Arms) -> None:
    """Advance two arms of one segment, by at most `visitors`.

    Stops early if the two are far apart while the schedule still falls.

    Args:
        rule: FIXED or DYNAMIC.
        visitors: maximum number of visitors.
        stack: scratch space for the parts of a block, (DEPTH, 4).
        arms: with shows below `PRODUCT_SAFE`.
    """
    rates, shows, clicks, state = arms.rates, arms.shows, arms.clicks, arms.state
    floor = rule.floor
    start = arms.clocks[0]
    clock = start
    end = clock + min(visitors, PRODUCT_SAFE - shows[0], PRODUCT_SAFE - shows[1])
    limits = (threshold(rates[0]), threshold(rates[1]))
    explored = (rule.fixed[0], rule.fixed[1])
    epoch_end = NEVER if rule.kind == FIXED else clock
    rare_at = NEVER
    loose, scale = 0.0, 0.0
    # Indexed by leader: the probability of showing the other arm.
    show_limits = (threshold(explored[1]), threshold(explored[0]))
    while clock < end:
        if clock >= epoch_end:
            # From clock + 1 on. The epoch is short enough that few visitors are rare.
            first = max(floor, scheduled(rates.size, clock + 1))
            epoch_end = clock + 64 + clock // 128
            rate = first
            if clock + 1 >= rule.turns[-1]:
                epoch_end = NEVER
            else:
                rate = max(floor, scheduled(rates.size, epoch_end))
            loose = first - rate
            scale = wait_scale(loose)
            rare_at = clock + failures_before_success(scale, state)
            sure = 1.0 - loose
            explored = (rate / 2.0 / sure, rate / 2.0 / sure)
            show_limits = (threshold(explored[1]), threshold(explored[0]))
        # The sign of the difference of the click rates, in integers.
        gap = clicks[0] * max(shows[1], 1) - clicks[1] * max(shows[0], 1)
        if clock == rare_at:
            # This visitor may explore at its own clock though not at the epoch's last one.
            now = max(floor, scheduled(rates.size, clock + 1))
            last = explored[0] * 2.0 * (1.0 - loose)
            wanders = uniform(state) * loose < now - last
            arm = _greedy_or_not(gap, wanders, state)
            show(arm, arms)
            clock += 1
            rare_at = clock + failures_before_success(scale, state)
            continue
        if gap == 0:
            # A tie lasts a visitor or two, so a word is not worthwhile.
            u = uniform(state)
            arm = 0 if u < explored[0] else 1
            if u >= explored[0] + explored[1]:
                arm = _greedy_or_not(gap, gap == 0, state)
            show(arm, arms)
            clock += 1
            continue
        leader = 0 if gap > 0 else 1
        other = 1 - leader
        wander = explored[other]
        # Expected fall of |gap| per visitor from the leader's failures and the challenger's clicks.
        closing = (1.0 - wander) * (1.0 - rates[leader]) * clicks[other]
        closing += wander * rates[other] * (shows[leader] - clicks[leader])
        ahead = _SHARE * abs(gap)
        room = min(end, epoch_end, rare_at) - clock
        # Blocks longer than an epoch are better processed together with those after it.
        longer = ahead > min(max(LONG, clock / 128.0), _FAR) * closing
        if longer and epoch_end != NEVER and clock > start:
            break
        if ahead > _BLOCK * closing and room >= _BLOCK:
            done = _take_block(room, wander, leader, stack, arms)
        elif ahead < _SHORT * closing:
            done = _take_singles(min(_RUN, room), wander, leader, arms)
        else:
            done = _take_word(
                min(WORD, room),
                show_limits[leader],
                limits[leader],
                limits[other],
                leader,
                arms,
            )
        clock += done
    arms.clocks[0] = clock


@compiled
def _greedy_or_not(gap: int, wanders: bool, state: WordArray) -> int:
    """Return a random arm, or the greedy one, which is random if the two are tied."""
    if wanders or gap == 0:
        return 0 if uniform(state) < 0.5 else 1
    return 0 if gap > 0 else 1


@compiled
def show(arm: int, arms: Arms) -> None:
    """Show an arm once."""
    arms.shows[arm] += 1
    if uniform(arms.state) < arms.rates[arm]:
        arms.clicks[arm] += 1


@compiled
def _take_singles(visitors: int, wander: float, leader: int, arms: Arms) -> int:
    """Process visitors one by one until the lead is lost; return how many."""
    n, c = arms.shows[leader], arms.clicks[leader]
    k, d = arms.shows[1 - leader], arms.clicks[1 - leader]
    own_rate, other_rate, state = arms.rates[leader], arms.rates[1 - leader], arms.state
    # Local variables, so that the counts stay in registers.
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
    arms.shows[leader], arms.clicks[leader] = n, c
    arms.shows[1 - leader], arms.clicks[1 - leader] = k, d
    return done


@compiled
def _clicks_of_shown(
    shown: np.uint64, rate: float, limit: np.uint64, state: WordArray
) -> np.uint64:
    """Draw a click bit for each bit set in `shown`; the others are ignored."""
    if ones(shown) > _FEW:
        return coins(limit, state) & shown
    clicked = ZERO_WORD
    while shown != ZERO_WORD:
        lowest = shown & (~shown + _U1)
        if uniform(state) < rate:
            clicked |= lowest
        shown ^= lowest
    return clicked


@compiled
def _take_word(
    visitors: int,
    show_limit: np.uint64,
    own_limit: np.uint64,
    other_limit: np.uint64,
    leader: int,
    arms: Arms,
) -> int:
    """Process up to 64 visitors at once, until the lead is lost; return how many."""
    n, c = arms.shows[leader], arms.clicks[leader]
    k, d = arms.shows[1 - leader], arms.clicks[1 - leader]
    mask = FULL_WORD if visitors == WORD else (_U1 << np.uint64(visitors)) - _U1
    others = coins(show_limit, arms.state) & mask
    own_clicks = coins(own_limit, arms.state) & mask & ~others
    other_clicks = _clicks_of_shown(others, arms.rates[1 - leader], other_limit, arms.state)
    own_failures = mask & ~others & ~own_clicks
    hits, losses = ones(other_clicks), ones(own_failures)
    done = 0
    # Check the worst order (all failures and the challenger's clicks first) in 63-bit products.
    if c * max(k + hits, 1) > (d + hits) * (n + losses):
        wins = ones(own_clicks)
        n, c, k, d = n + wins + losses, c + wins, k + ones(others), d + hits
        done = visitors
    leading = True
    while done < visitors and leading:
        # Eight visitors: by their totals if those decide it, else one by one.
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
                if others & bit != ZERO_WORD:
                    k += 1
                    d += 1 if other_clicks & bit != ZERO_WORD else 0
                else:
                    n += 1
                    c += 1 if own_clicks & bit != ZERO_WORD else 0
                # Drop the rest of the word: its visitors were drawn for the old leader.
                leading = c * max(k, 1) > d * n
                bit <<= _U1
                size -= 1
                done += 1
        others >>= _U8
        other_clicks >>= _U8
        own_clicks >>= _U8
        own_failures >>= _U8
    arms.shows[leader], arms.clicks[leader] = n, c
    arms.shows[1 - leader], arms.clicks[1 - leader] = k, d
    return done


@compiled
def _take_block(longest: int, wander: float, leader: int, stack: IntArray, arms: Arms) -> int:
    """Advance by one block, as far as the lead is kept; return by how many visitors.

    Like a block of `block.py` (drawn, checked, split, walked through), but specialised for the most
    common case, in a few numbers: `others` visitors see the challenger and click `hits` times, and
    the rest see the leader and click `wins` times.

    Args:
        longest: maximum number of visitors.
        wander: probability of seeing the challenger.
        leader: the arm that leads, 0 or 1.
        stack: scratch space for parts of the block, (DEPTH, 4).
        arms: advanced in place.
    """
    own_rate, other_rate, state = arms.rates[leader], arms.rates[1 - leader], arms.state
    n, c = arms.shows[leader], arms.clicks[leader]
    k, d = arms.shows[1 - leader], arms.clicks[1 - leader]
    size = int(pair_length(n, c, k, d, wander, own_rate, other_rate, float(longest)))
    others = binomial(size, wander, state)
    wins = binomial(size - others, own_rate, state)
    hits = binomial(others, other_rate, state)
    done = 0
    depth = 0
    leading = True
    while leading:
        mine = size - others
        # The leader after all its failures first, against the challenger after all its clicks
        # first.
        if c * max(k + hits, 1) > (d + hits) * (n + mine - wins) or almost_surely_below(
            c, n, wins, mine, d, k, hits, others
        ):
            n, c, k, d = n + mine, c + wins, k + others, d + hits
            done += size
        elif size <= _LEAF:
            passed, leading, n, c, k, d = _walk(size, others, wins, hits, n, c, k, d, state)
            done += passed
        else:
            # Defer the later half, and continue with the earlier one.
            early = size // 2
            early_others = hypergeometric(others, mine, early, state)
            early_wins = hypergeometric(wins, mine - wins, early - early_others, state)
            early_hits = hypergeometric(hits, others - hits, early_others, state)
            stack[depth, 0] = size - early
            stack[depth, 1] = others - early_others
            stack[depth, 2] = wins - early_wins
            stack[depth, 3] = hits - early_hits
            depth += 1
            size, others, wins, hits = early, early_others, early_wins, early_hits
            continue
        if depth == 0:
            break
        depth -= 1
        size, others = stack[depth, 0], stack[depth, 1]
        wins, hits = stack[depth, 2], stack[depth, 3]
    arms.shows[leader], arms.clicks[leader] = n, c
    arms.shows[1 - leader], arms.clicks[1 - leader] = k, d
    return done


@compiled
def _walk(
    size: int,
    others: int,
    wins: int,
    hits: int,
    n: int,
    c: int,
    k: int,
    d: int,
    state: WordArray,
) -> tuple[int, bool, int, int, int, int]:
    """Draw a small block's visitors one by one without replacement, until the lead is lost.

    Returns how many, whether the leader still leads, and the counts after them.
    """
    passed = 0
    leading = True
    while leading and passed < size:
        left = size - passed
        passed += 1
        if uniform(state) * left < others:
            hit = uniform(state) * others < hits
            others -= 1
            k += 1
            if hit:
                hits -= 1
                d += 1
        else:
            hit = uniform(state) * (left - others) < wins
            n += 1
            if hit:
                wins -= 1
                c += 1
        leading = c * max(k, 1) > d * n
    return passed, leading, n, c, k, d

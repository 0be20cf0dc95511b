"""Two arms, one segment: 64 visitors as one machine word near a tie, blocks otherwise.

Near a tie the leader changes often and blocks are short, so the cost of a short block matters. Here
64 visitors are a word: random bits for who explores, which arm, and who clicks, computed by comparing
the binary digits of 64 uniform numbers with those of the probabilities at once. They do not depend on
the leader: all click at the lower of the two rates, and the visitors who would click on the better arm
only, found by geometric waiting times, are processed on their own. So a word need not be dropped when
the leader changes. Totals are counts of bits; if they do not prove that the leader stays, eight
visitors are tried, and then one by one.

The leader has n shows and c clicks, the challenger k and d. It leads while c k - d n > 0.

A decaying schedule is divided into epochs. Within one, each visitor has the exploration of the epoch's
end, except for a rare visitor, found by geometric waiting times, whose own clock decides.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from deniable._compile import compiled
from deniable.simulation.kernels.challenger_shows import take_shows
from deniable.simulation.kernels.exploration import scheduled
from deniable.simulation.kernels.lead import keeps_lead, lead_length
from deniable.simulation.kernels.leader import PRODUCT_SAFE, almost_surely_below
from deniable.simulation.kernels.random_numbers import (
    FULL_WORD,
    ZERO_WORD,
    binomial,
    coins,
    failures_before_success,
    hypergeometric,
    ones,
    three_coins,
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
_FAR = 4000.0  # ... from which many steps of a decaying schedule are better processed together
_CLOSE = 100  # failures of the leader that would close the gap: from here on, count in shows
_OFTENER = 4  # ... of a challenger that was shown this many times less often
_SHARE = 0.7  # share of the visitors whose expected worst order would close the gap
_TINY, _SURE = 1e-300, 1.0 - 1e-16
_LEAF = 16  # parts of this size are walked through


class Coin(NamedTuple):
    """The probabilities of a word's random bits, as binary digits.

    Attributes:
        explore_click: to explore and click.
        explore: to explore.
        either: to explore or click.
        first: that whoever explores sees the first arm.
    """

    explore_click: np.uint64
    explore: np.uint64
    either: np.uint64
    first: np.uint64


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
    better = 0 if rates[0] > rates[1] else 1
    common = rates[1 - better]
    extra = (rates[better] - common) / max(1.0 - common, _TINY)
    extra_scale = wait_scale(min(extra, _SURE))
    extra_at = clock + failures_before_success(extra_scale, state)
    explored = (rule.fixed[0], rule.fixed[1])
    epoch_end = NEVER if rule.kind == FIXED else clock
    rare_at = NEVER
    loose, scale, rate = 0.0, 0.0, 1.0
    coin = _coin(explored, common)
    limits = (threshold(rates[0]), threshold(rates[1]))
    while clock < end:
        if clock >= epoch_end:
            # From clock + 1 on. The epoch is short enough that few visitors are rare.
            settled = clock + 1 >= rule.turns[-1]
            if settled or clock == start:
                rate = max(floor, scheduled(rates.size, clock + 1))
            # Else that of the last epoch's end: exploration is no higher after it.
            first = rate
            epoch_end = NEVER if settled else clock + 64 + clock // 128
            if not settled:
                rate = max(floor, scheduled(rates.size, epoch_end))
            loose = first - rate
            scale = wait_scale(loose)
            rare_at = clock + failures_before_success(scale, state)
            sure = 1.0 - loose
            explored = (rate / 2.0 / sure, rate / 2.0 / sure)
            coin = _coin(explored, common)
        if extra_at < clock:
            # Passed by a block or a rare visitor, drawn at the true rates. Waiting has no memory.
            extra_at = clock + failures_before_success(extra_scale, state)
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
        if clock == extra_at:
            u = uniform(state)
            arm = 0 if u < explored[0] else 1
            if u >= explored[0] + explored[1]:
                arm = _greedy_or_not(gap, False, state)
            shows[arm] += 1
            clicks[arm] += 1 if arm == better or uniform(state) < common else 0
            clock += 1
            continue
        leader = 0 if gap > 0 else 1
        other = 1 - leader
        wander = explored[other]
        # Expected fall of |gap| per visitor from the leader's failures and the challenger's clicks.
        closing = (1.0 - wander) * (1.0 - rates[leader]) * clicks[other]
        closing += wander * rates[other] * (shows[leader] - clicks[leader])
        ahead = _SHARE * abs(gap)
        # Blocks longer than an epoch are better processed together with those after it.
        longer = ahead > min(max(LONG, clock / 128.0), _FAR) * closing
        if longer and epoch_end != NEVER and clock > start:
            break
        room = min(end, epoch_end, rare_at) - clock
        long = ahead > _BLOCK * closing
        if shows[leader] > _OFTENER * shows[other]:
            long = long or abs(gap) > _CLOSE * clicks[other]
        if long and room >= _BLOCK:
            clock += _take_block(room, wander, limits[other], leader, stack, arms)
        else:
            size = min(WORD, room, extra_at - clock)
            _take_word(size, coin, arms)
            clock += size
    arms.clocks[0] = clock


@compiled
def _coin(explored: tuple[float, float], click: float) -> Coin:
    """Return the coins for these probabilities of exploring each arm and of a click."""
    exploring = explored[0] + explored[1]
    share = explored[0] / exploring if exploring > 0.0 else 0.5
    return Coin(
        threshold(exploring * click),
        threshold(exploring),
        threshold(exploring + (1.0 - exploring) * click),
        threshold(share),
    )


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
def _take_word(visitors: int, coin: Coin, arms: Arms) -> None:
    """Process up to 64 visitors at once, also if the leader changes on the way.

    What is drawn does not depend on the leader: who explores, which arm, and who clicks on any arm.
    """
    state = arms.state
    mask = FULL_WORD if visitors == WORD else (_U1 << np.uint64(visitors)) - _U1
    clicked, exploring, either = three_coins(coin.explore_click, coin.explore, coin.either, state)
    clicked |= either & ~exploring
    exploring &= mask
    first = exploring & coins(coin.first, state) if exploring != ZERO_WORD else ZERO_WORD
    n0, c0, n1, c1 = arms.shows[0], arms.clicks[0], arms.shows[1], arms.clicks[1]
    left = visitors
    while True:
        gap = c0 * max(n1, 1) - c1 * max(n0, 1)
        if gap == 0:
            click = int(np.int64(clicked & _U1))
            sees_first = first & _U1 != ZERO_WORD
            if exploring & _U1 == ZERO_WORD:
                sees_first = uniform(state) < 0.5
            if sees_first:
                n0, c0 = n0 + 1, c0 + click
            else:
                n1, c1 = n1 + 1, c1 + click
            done = 1
        elif gap > 0:
            done, n0, c0, n1, c1 = _while_leading(
                left, mask, exploring ^ first, clicked, n0, c0, n1, c1
            )
        else:
            done, n1, c1, n0, c0 = _while_leading(left, mask, first, clicked, n1, c1, n0, c0)
        left -= done
        if left == 0:
            break
        shift = np.uint64(done)
        mask, exploring, first, clicked = (
            mask >> shift,
            exploring >> shift,
            first >> shift,
            clicked >> shift,
        )
    arms.shows[0], arms.clicks[0], arms.shows[1], arms.clicks[1] = n0, c0, n1, c1


@compiled
def _while_leading(
    visitors: int,
    mask: np.uint64,
    others: np.uint64,
    clicked: np.uint64,
    n: int,
    c: int,
    k: int,
    d: int,
) -> tuple[int, int, int, int, int]:
    """Process the visitors of a word until the leader loses its lead.

    Args:
        visitors: number of visitors, the lowest bits.
        mask: these bits.
        others: who sees the challenger.
        clicked: who clicks.
        n: the leader's shows.
        c: its clicks.
        k: the challenger's shows.
        d: its clicks.

    Returns:
        How many were processed, and n, c, k and d after them.
    """
    hits, failures = others & clicked, mask & ~(others | clicked)
    # The worst order: all failures of the leader and all clicks of the challenger first.
    hit, failed = ones(hits), ones(failures)
    if c * max(k + hit, 1) > (d + hit) * (n + failed):
        shown = ones(others)
        own = visitors - shown
        return visitors, n + own, c + own - failed, k + shown, d + hit
    done = 0
    while done < visitors:
        # Eight visitors: by their totals if those decide it, else one by one.
        size = min(8, visitors - done)
        hit, failed = ones(hits & _BYTE), ones(failures & _BYTE)
        if c * max(k + hit, 1) > (d + hit) * (n + failed):
            shown = ones(others & _BYTE)
            own = size - shown
            n, c, k, d = n + own, c + own - failed, k + shown, d + hit
        else:
            for lane in range(size):
                bit = _U1 << np.uint64(lane)
                click = 1 if clicked & bit != ZERO_WORD else 0
                if others & bit != ZERO_WORD:
                    k, d = k + 1, d + click
                else:
                    n, c = n + 1, c + click
                if c * max(k, 1) <= d * n:
                    return done + lane + 1, n, c, k, d
        done += size
        others, clicked = others >> _U8, clicked >> _U8
        hits, failures = hits >> _U8, failures >> _U8
    return visitors, n, c, k, d


@compiled
def _take_block(
    longest: int, wander: float, limit: np.uint64, leader: int, stack: IntArray, arms: Arms
) -> int:
    """Advance by one block, as far as the lead is kept; return by how many visitors.

    Like a block of `block.py` (drawn, checked, split, walked through), but specialised for the most
    common case, in a few numbers: `others` visitors see the challenger and click `hits` times, and
    the rest see the leader and click `wins` times. The first check is that of `lead.py`. If single
    clicks matter, the block is one of `challenger_shows.py`.

    Args:
        longest: maximum number of visitors.
        wander: probability of seeing the challenger.
        limit: the challenger's click rate, as binary digits.
        leader: the arm that leads, 0 or 1.
        stack: scratch space for parts of the block, (DEPTH, 4).
        arms: advanced in place.
    """
    own_rate, other_rate, state = arms.rates[leader], arms.rates[1 - leader], arms.state
    n, c = arms.shows[leader], arms.clicks[leader]
    k, d = arms.shows[1 - leader], arms.clicks[1 - leader]
    length = lead_length(n, c, k, d, wander, own_rate, other_rate, float(longest))
    if length <= _BLOCK:
        return take_shows(longest, wander, limit, leader, stack, arms)
    size = int(length)
    others = binomial(size, wander, state)
    hits = binomial(others, other_rate, state)
    wins = binomial(size - others, own_rate, state)
    # What is bounded before the totals are known must be checked before they are split.
    kept = keeps_lead(n, c, k, d, wander, wander, own_rate, other_rate, size, others, wins, hits)
    done = 0
    depth = 0
    leading = True
    if kept:
        n, c, k, d = n + size - others, c + wins, k + others, d + hits
        done = size
    while leading and not kept:
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

"""One repetition from start to horizon: the compiled entry points, one for each kind of rule.

All take click rates as (J, K), segment shares cumulated as (J,), ascending checkpoints as numbers of
visitors, and write the counts at each checkpoint into (C, J, K) arrays.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from deniable.policies._compile import compiled
from deniable.simulation._generator import uniform
from deniable.simulation._index import leap_index, step_index
from deniable.simulation._leap import leap_visitors
from deniable.simulation._samplers import binomial, split_multinomial
from deniable.simulation._step import step_visitors


@compiled
def run_greedy(
    leap: Any,
    kind: Any,
    fixed: Any,
    floor: Any,
    budgets: Any,
    turns: Any,
    on_segment_clock: Any,
    rates: Any,
    arrival: Any,
    checkpoints: Any,
    state: Any,
    out_shows: Any,
    out_clicks: Any,
) -> None:
    """An epsilon-greedy rule, by either kernel."""
    n_segments, n_arms = rates.shape
    # On their own clocks, segments are worlds of one segment each; on a common clock, one of all.
    together = not (leap and on_segment_clock)
    worlds = 1 if together else n_segments
    shows = np.zeros((worlds, n_segments // worlds, n_arms), np.int64)
    clicks = np.zeros((worlds, n_segments // worlds, n_arms), np.int64)
    clocks = np.zeros((worlds, n_segments // worlds if on_segment_clock else 1), np.int64)
    own_rates = rates.copy().reshape(shows.shape)
    own_arrival = arrival if together else np.ones(1)
    visitors = np.empty(worlds, np.int64)
    done = 0
    for i in range(checkpoints.size):
        if together:
            visitors[0] = checkpoints[i] - done
        else:
            split_multinomial(checkpoints[i] - done, arrival, visitors, state)
        done = checkpoints[i]
        for w in range(worlds):
            if leap:
                leap_visitors(
                    kind,
                    fixed,
                    floor,
                    budgets,
                    turns,
                    clocks[w],
                    own_rates[w],
                    own_arrival,
                    visitors[w],
                    shows[w],
                    clicks[w],
                    state,
                )
            else:
                step_visitors(
                    kind,
                    fixed,
                    floor,
                    budgets,
                    turns[-1],
                    clocks[w],
                    own_rates[w],
                    own_arrival,
                    visitors[w],
                    shows[w],
                    clicks[w],
                    state,
                )
        out_shows[i] = shows.reshape(rates.shape)
        out_clicks[i] = clicks.reshape(rates.shape)


@compiled
def run_fixed(
    leap: Any,
    cumulative: Any,
    rates: Any,
    arrival: Any,
    checkpoints: Any,
    state: Any,
    out_shows: Any,
    out_clicks: Any,
) -> None:
    """Arms from one distribution by segment, cumulated as (J, K), whatever is clicked."""
    n_segments, n_arms = rates.shape
    shows = np.zeros((n_segments, n_arms), np.int64)
    clicks = np.zeros((n_segments, n_arms), np.int64)
    arrivals = np.empty(n_segments, np.int64)
    part = np.empty(n_arms, np.int64)
    done = 0
    for i in range(checkpoints.size):
        visitors = checkpoints[i] - done
        done = checkpoints[i]
        if leap:
            split_multinomial(visitors, arrival, arrivals, state)
            for j in range(n_segments):
                split_multinomial(arrivals[j], cumulative[j], part, state)
                for arm in range(n_arms):
                    shows[j, arm] += part[arm]
                    clicks[j, arm] += binomial(part[arm], rates[j, arm], state)
        else:
            for _ in range(visitors):
                j = pick(arrival, state) if n_segments > 1 else 0
                arm = pick(cumulative[j], state)
                shows[j, arm] += 1
                if uniform(state) < rates[j, arm]:
                    clicks[j, arm] += 1
        out_shows[i] = shows
        out_clicks[i] = clicks


@compiled
def pick(cumulative: Any, state: Any) -> Any:
    """An index drawn from cumulative probabilities."""
    place = uniform(state)
    index = 0
    while index < cumulative.size - 1 and place >= cumulative[index]:
        index += 1
    return index


@compiled
def run_index(
    leap: Any,
    small: Any,
    bonus: Any,
    grid: Any,
    rates: Any,
    arrival: Any,
    checkpoints: Any,
    state: Any,
    out_shows: Any,
    out_clicks: Any,
) -> None:
    """The Gittins index policy: segments learn apart, so each is run on its own."""
    n_segments, n_arms = rates.shape
    shows = np.zeros((n_segments, n_arms), np.int64)
    clicks = np.zeros((n_segments, n_arms), np.int64)
    arrivals = np.empty(n_segments, np.int64)
    done = 0
    for i in range(checkpoints.size):
        split_multinomial(checkpoints[i] - done, arrival, arrivals, state)
        done = checkpoints[i]
        for j in range(n_segments):
            if leap:
                leap_index(small, bonus, grid, rates[j], arrivals[j], shows[j], clicks[j], state)
            else:
                step_index(small, bonus, grid, rates[j], arrivals[j], shows[j], clicks[j], state)
        out_shows[i] = shows
        out_clicks[i] = clicks

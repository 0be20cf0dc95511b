"""One repetition from start to horizon: the entry points of the kernels, one per kind of rule.

Each consists of a Python function that creates the arrays and a compiled one that fills them. All
take click rates as (J, K), cumulative segment shares as (J,), ascending checkpoints as numbers of
visitors, and a generator, which they advance. They return shows and clicks at each checkpoint, (C,
J, K) each.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from deniable._compile import compiled
from deniable.simulation.kernels.block import pick
from deniable.simulation.kernels.leap import leap_visitors
from deniable.simulation.kernels.random_numbers import binomial, split_multinomial, uniform
from deniable.simulation.kernels.state import (
    DEPTH,
    UNDECIDED,
    Blocks,
    FloatArray,
    IntArray,
    Leaders,
    LeapSpace,
    Rule,
    StepSpace,
    WordArray,
    World,
)
from deniable.simulation.kernels.step import step_visitors


class Setting(NamedTuple):
    """The conditions under which a rule is run.

    Attributes:
        rates: click rates, (J, K).
        arrival: cumulative shares of the segments, (J,).
        checkpoints: numbers of visitors at which to record the counts, ascending, (C,).
        state: the generator.
        rates_until: if click rates change, those that apply until each checkpoint, (C, J, K); they
            are copied to `rates` one after the other. Else empty.
    """

    rates: FloatArray
    arrival: FloatArray
    checkpoints: IntArray
    state: WordArray
    rates_until: FloatArray = np.empty((0, 0, 0))


class Record(NamedTuple):
    """Counts so far, (J, K), and at each checkpoint, (C, J, K)."""

    shows: IntArray
    clicks: IntArray
    all_shows: IntArray
    all_clicks: IntArray


def run_greedy(
    leap: bool, rule: Rule, on_segment_clock: bool, setting: Setting
) -> tuple[IntArray, IntArray]:
    """Run an epsilon-greedy rule with either kernel."""
    n_segments, n_arms = setting.rates.shape
    # In the leap kernel, segments with their own clocks are separate worlds of one segment each;
    # otherwise one world contains all of them.
    apart = leap and on_segment_clock
    shape = (n_segments, 1, n_arms) if apart else (1, n_segments, n_arms)
    record = record_of(setting)
    clocks = np.zeros((shape[0], shape[1] if on_segment_clock else 1), np.int64)
    worlds = World(
        setting.rates.reshape(shape),
        np.ones(1) if apart else setting.arrival,
        record.shows.reshape(shape),
        record.clicks.reshape(shape),
        clocks,
        setting.state,
    )
    visitors = np.empty(shape[0], np.int64)
    space = leap_space(shape[1], n_arms, clocks.shape[1])
    if leap:
        _leap_greedy(rule, worlds, space, setting, visitors, record)
    else:
        _step_greedy(rule, worlds, space.leaders, space.step, setting, record)
    return record.all_shows, record.all_clicks


def run_fixed(leap: bool, cumulative: FloatArray, setting: Setting) -> tuple[IntArray, IntArray]:
    """Draw arms from one distribution per segment until each checkpoint, cumulative, (C, J, K)."""
    record = record_of(setting)
    parts = np.empty(sum(setting.rates.shape), np.int64)
    _run_fixed(leap, cumulative, setting, parts, record)
    return record.all_shows, record.all_clicks


def record_of(setting: Setting) -> Record:
    """Return empty counts."""
    shape = setting.rates.shape
    points = (setting.checkpoints.size, *shape)
    return Record(*(np.zeros(size, np.int64) for size in (shape, shape, points, points)))


def leap_space(n_segments: int, n_arms: int, n_clocks: int) -> LeapSpace:
    """Allocate scratch space for either kernel on one world."""

    def integers(*shape: int) -> IntArray:
        return np.empty(shape, np.int64)

    return LeapSpace(
        leaders=Leaders(integers(n_segments), integers(n_segments)),
        blocks=Blocks(
            sizes=integers(DEPTH),
            shown=integers(DEPTH + 1, n_segments, n_arms),
            won=integers(DEPTH + 1, n_segments, n_arms),
            places=integers(UNDECIDED),
            undecided=integers(UNDECIDED, 3),
        ),
        exploring=np.empty((3, n_arms)),
        step=StepSpace(np.empty((n_clocks, n_arms)), np.empty(n_clocks), integers(n_clocks)),
    )


@compiled
def _leap_greedy(
    rule: Rule,
    worlds: World,
    space: LeapSpace,
    setting: Setting,
    visitors: IntArray,
    record: Record,
) -> None:
    """Run the leap kernel. Arrays in `worlds` have an additional leading axis."""
    done = 0
    for i in range(setting.checkpoints.size):
        # Divide the visitors between two checkpoints among the worlds first; each then runs by
        # itself.
        if visitors.size == 1:
            visitors[0] = setting.checkpoints[i] - done
        else:
            split_multinomial(
                setting.checkpoints[i] - done, setting.arrival, visitors, setting.state
            )
        done = setting.checkpoints[i]
        enter_phase(setting, i)
        for w in range(visitors.size):
            world = World(
                worlds.rates[w],
                worlds.arrival,
                worlds.shows[w],
                worlds.clicks[w],
                worlds.clocks[w],
                setting.state,
            )
            leap_visitors(rule, visitors[w], space, world)
        note(record, i)


@compiled
def _step_greedy(
    rule: Rule,
    worlds: World,
    leaders: Leaders,
    space: StepSpace,
    setting: Setting,
    record: Record,
) -> None:
    """Run the step kernel on all segments at once."""
    world = World(
        worlds.rates[0],
        worlds.arrival,
        worlds.shows[0],
        worlds.clicks[0],
        worlds.clocks[0],
        setting.state,
    )
    done = 0
    for i in range(setting.checkpoints.size):
        enter_phase(setting, i)
        step_visitors(rule, setting.checkpoints[i] - done, leaders, space, world)
        done = setting.checkpoints[i]
        note(record, i)


@compiled
def _run_fixed(
    leap: bool, cumulative: FloatArray, setting: Setting, parts: IntArray, record: Record
) -> None:
    done = 0
    for i in range(setting.checkpoints.size):
        enter_phase(setting, i)
        serve(leap, setting.checkpoints[i] - done, cumulative[i], setting, parts, record)
        done = setting.checkpoints[i]
        note(record, i)


@compiled
def serve(
    leap: bool,
    visitors: int,
    cumulative: FloatArray,
    setting: Setting,
    parts: IntArray,
    record: Record,
) -> None:
    """Add visitors who are all drawn from one table.

    Args:
        leap: draw all at once; otherwise one by one.
        visitors: number of visitors.
        cumulative: the table's cumulative rows, (J, K).
        setting: the setting.
        parts: scratch space, (J + K,).
        record: counts, updated in place.
    """
    rates, state = setting.rates, setting.state
    n_segments, n_arms = rates.shape
    arrivals, part = parts[:n_segments], parts[n_segments:]
    if leap:
        split_multinomial(visitors, setting.arrival, arrivals, state)
        for j in range(n_segments):
            split_multinomial(arrivals[j], cumulative[j], part, state)
            for arm in range(n_arms):
                record.shows[j, arm] += part[arm]
                record.clicks[j, arm] += binomial(part[arm], rates[j, arm], state)
    else:
        for _ in range(visitors):
            j = pick(setting.arrival, state) if n_segments > 1 else 0
            arm = pick(cumulative[j], state)
            record.shows[j, arm] += 1
            if uniform(state) < rates[j, arm]:
                record.clicks[j, arm] += 1


@compiled
def enter_phase(setting: Setting, checkpoint: int) -> None:
    """Set the click rates that apply until a checkpoint, if they change."""
    if setting.rates_until.shape[0] > 0:
        for j in range(setting.rates.shape[0]):
            for arm in range(setting.rates.shape[1]):
                setting.rates[j, arm] = setting.rates_until[checkpoint, j, arm]


@compiled
def note(record: Record, checkpoint: int) -> None:
    """Record the counts at a checkpoint."""
    for j in range(record.shows.shape[0]):
        for arm in range(record.shows.shape[1]):
            record.all_shows[checkpoint, j, arm] = record.shows[j, arm]
            record.all_clicks[checkpoint, j, arm] = record.clicks[j, arm]

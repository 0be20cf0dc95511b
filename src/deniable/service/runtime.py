"""An experiment as a writer knows it: counters, clocks and the tables it draws from.

Counters are this writer's own, always exact, plus the sums of all others, as fresh as the last look.
They choose the greedy arm and the segments' clocks, that is, how fast is learned. What keeps the
promise does not depend on them: every table is within the budget, and the clock of the arm-specific
dynamic strategy is the one that all writers share.
"""

from __future__ import annotations

from collections.abc import Iterable

from deniable.privacy.serving import ServingSchedule, ServingTable, arm_specific_table
from deniable.service.greedy import greedy_arm
from deniable.service.visitors import VisitorHash, group_scope
from deniable.storage.records import UNKNOWN_SEGMENT, Experiment

CLOCK_BITS = 6
"""Tables change with the leading bits of the clock: at most 32 for each doubling of the visitors."""


NEVER = float("-inf")
FOREVER = float("inf")


def rounded_clock(clock: int) -> int:
    """The clock with all but its leading bits cleared: never later, at most 1/32 earlier.

    >>> [rounded_clock(n) for n in (1, 63, 65, 1000)]
    [1, 63, 64, 992]
    """
    excess = clock.bit_length() - CLOCK_BITS
    return clock if excess <= 0 else clock >> excess << excess


def next_rounded_clock(clock: int) -> int:
    """The first later clock that is rounded to another one.

    >>> [next_rounded_clock(n) for n in (1, 63, 65, 1000)]
    [2, 64, 66, 1008]
    """
    excess = max(0, clock.bit_length() - CLOCK_BITS)
    return ((clock >> excess) + 1) << excess


class Runtime:
    """One experiment, with everything that drawing for its next visitor needs.

    Args:
        experiment: as stored.
        key: of the visitors' HMACs.
        period_ends: the end of the firm's period; from then on nothing is left to spend.
    """

    def __init__(self, experiment: Experiment, key: bytes, *, period_ends: int | None) -> None:
        self.id = bytes.fromhex(experiment.id)
        self.key = experiment.key
        self.revision = experiment.revision
        self.version = experiment.version
        self.group = experiment.group
        self.visitor_hash = VisitorHash(key, self.id)
        self.member_hash = VisitorHash(key, group_scope(experiment.group or ""))
        self.status = experiment.status
        self.period_ends = period_ends
        self.exhausted = experiment.exhausted
        self.attribution = (
            None
            if experiment.attribution_seconds is None
            else experiment.attribution_seconds * 1_000_000
        )
        self.arm_keys = tuple(arm.key for arm in experiment.arms)
        self.segments: dict[str | None, int] = {
            name: position for position, name in enumerate(experiment.segments)
        }
        self.active = tuple(i for i, arm in enumerate(experiment.arms) if arm.active)
        self.fixed_arm = experiment.winner or experiment.default_arm
        self.uniform = uniform_table(experiment)
        self.schedule = serving_schedule(experiment)
        self.arm_specific = experiment.arm_specific
        self.shared_clock = experiment.arm_specific and experiment.strategy == "dynamic"
        self.clock = 0  # of the whole experiment, as stored; set at the start of every batch
        width, height = len(self.arm_keys), len(self.segments) + 1
        self.own_shows = [[0] * width for _ in range(height)]
        self.own_clicks = [[0] * width for _ in range(height)]
        self.shows = [[0] * width for _ in range(height)]
        self.clicks = [[0] * width for _ in range(height)]
        self.visitors = [0] * height
        self._tables: list[tuple[ServingTable, int, float]] = [(self.uniform, 0, 0.0)] * height
        self.refreshed_at = NEVER

    @property
    def serves_draws(self) -> bool:
        """Whether visitors are drawn for and stored: while running and paused."""
        return self.status in ("running", "paused")

    def closed(self, now: int) -> bool:
        """Whether new visitors get a uniform arm: paused, exhausted, or the period is over."""
        return (
            self.status != "running"
            or self.exhausted
            or (self.period_ends is not None and now >= self.period_ends)
        )

    def count(self, rows: Iterable[tuple[int, int, int, int, int]], writer: int) -> None:
        """Take the counters as stored: those of `writer` are its own, the others are added to them."""
        for table in (self.own_shows, self.own_clicks, self.shows, self.clicks):
            for line in table:
                line[:] = [0] * len(line)
        for segment, arm, owner, shows, clicks in rows:
            self.shows[segment][arm] += shows
            self.clicks[segment][arm] += clicks
            if owner == writer:
                self.own_shows[segment][arm] = shows
                self.own_clicks[segment][arm] = clicks
        self.visitors = [sum(line) for line in self.shows]

    @property
    def total(self) -> int:
        """Decisions of the whole experiment, as far as known."""
        return sum(self.visitors)

    def draw(
        self, segment: int, tie_point: int, shown_point: int, closed: bool
    ) -> tuple[int, int, int, int]:
        """Draw for one visitor and count it: (greedy, shown, clock, risk in nano-nats).

        Args:
            segment: its position, or UNKNOWN_SEGMENT.
            tie_point: uniform in [0, 2^64), for ties of the greedy arm.
            shown_point: uniform in [0, 2^64), for the shown arm.
            closed: whether this visitor must be served uniformly.
        """
        shows, active = self.shows[segment], self.active
        clock = (self.clock if self.shared_clock else self.visitors[segment]) + 1
        table, risk, until = self._tables[segment]
        if clock >= until:
            table, risk, until = self._tables[segment] = self._table(segment, clock)
        if closed:
            table, risk = self.uniform, 0
        greedy = greedy_arm(shows, self.clicks[segment], active, tie_point)
        shown = active[table.arm_at(shown_point, greedy)]
        shows[shown] += 1
        self.own_shows[segment][shown] += 1
        self.visitors[segment] += 1
        return active[greedy], shown, clock, risk

    def _table(self, segment: int, clock: int) -> tuple[ServingTable, int, float]:
        """The table at this clock, its risk, and the first clock that needs another look."""
        # A uniform arm for visitors of no listed segment is within any common budget, but not within
        # budgets by arm: a sensitive arm is shown far more often than one in K. They get the table.
        if segment == UNKNOWN_SEGMENT and not self.arm_specific:
            return self.uniform, 0, FOREVER
        table = self.schedule.table(rounded_clock(clock))
        risk = max(table.budgets)
        final = not self.schedule.dynamic or risk == max(self.schedule.budgets)
        return table, risk, FOREVER if final else next_rounded_clock(clock)

    def click(self, segment: int, arm: int, value: int) -> None:
        """Count a reward."""
        self.clicks[segment][arm] += value
        self.own_clicks[segment][arm] += value


def active_budgets(experiment: Experiment) -> tuple[int, ...]:
    """The budget of each arm that new visitors can get."""
    return tuple(
        experiment.budget_nano if arm.budget_nano is None else arm.budget_nano
        for arm in experiment.active_arms
    )


def serving_schedule(experiment: Experiment) -> ServingSchedule:
    """The checked tables of the experiment's present version."""
    return ServingSchedule(active_budgets(experiment), dynamic=experiment.strategy == "dynamic")


def uniform_table(experiment: Experiment) -> ServingTable:
    """The table that tells nothing, over the arms of the present version."""
    return arm_specific_table((0,) * len(experiment.active_arms))

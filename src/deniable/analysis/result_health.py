"""Whether an experiment is sound: draws by table, delays of rewards, drift, novelty.

Nothing is reported before it is meaningful. Draws and drift are judged by e-values and exact tests,
which are valid at any time; novelty by two confidence sequences that have become disjoint. Segments
with small cells are not named.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from datetime import datetime

import numpy as np
from sqlalchemy import Connection, func, select

from deniable.analysis.evidence import (
    USUAL_VISITORS,
    Evidence,
    evidence_of,
    first_state,
)
from deniable.analysis.result_records import unit_of
from deniable.analysis.results import ALPHA, guardrails_of, undecided_of
from deniable.analysis.small_cells import visible_segments
from deniable.inference.e_values import draw_evidence
from deniable.inference.health import drift, sample_ratios
from deniable.inference.intervals import of_sums
from deniable.inference.state import update_all
from deniable.privacy.exact import SPACE
from deniable.privacy.tables import decoded_table
from deniable.storage import experiments, promises, times
from deniable.storage.records import MICRO, Experiment, Role
from deniable.storage.released import release_of
from deniable.storage.schema import counters, decisions, rewards

SUSPICIOUS = 1e-6
"""A mismatch less likely than this by chance is reported; 200 experiments checked each minute for ten
years then raise some false alarms, not one a day."""

DRIFT_ALPHA = 0.01
EARLY_PART = 0.2
"""The share of planned visitors that counts as early. Their lifts are compared with later ones."""

LEAST_REWARDS = 100
MOST_REWARDS = 2_000
"""Maximum rewards for the delay curve, sampled by the random ids of their decisions."""

CURVE = (0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.99)


@dataclass(frozen=True)
class ResultHealth:
    """The findings of a check of an experiment's results.

    Attributes:
        tables: number of published tables with visitors.
        worst_table: the table whose shows deviate most from its design.
        chance: probability that some table deviates this much by chance.
        log_e_value: evidence over all tables that draws do not follow them.
        delays: (share of the rewards, seconds within which they arrived); empty while there are
            few.
        alerts: one sentence each.
        guardrails: one sentence for each metric that got worse.
        undecided: what the results say about open comparisons, and how long they take.
    """

    tables: int
    worst_table: int | None
    chance: float
    log_e_value: float
    delays: tuple[tuple[float, float], ...]
    alerts: tuple[str, ...]
    guardrails: tuple[str, ...] = ()
    undecided: tuple[str, ...] = ()

    @property
    def as_designed(self) -> bool:
        """Whether arms are shown as their tables say."""
        return self.chance >= SUSPICIOUS and self.log_e_value < -math.log(SUSPICIOUS)


def health_of(connection: Connection, experiment: Experiment) -> ResultHealth:
    """Check everything that is released of an experiment; counters are read again every time."""
    drawn = evidence_of(connection, replace(experiment, attribution_seconds=None))
    settled = drawn
    if experiment.attribution_seconds is not None:
        settled = evidence_of(connection, experiment)
    worst, chance, log_e, tables = _draws(drawn)
    alerts = []
    if chance < SUSPICIOUS or log_e >= -math.log(SUSPICIOUS):
        alerts.append(
            f"Arms do not come as table {worst} says. Pause it and look into the log."
            if chance < SUSPICIOUS
            else "Over all tables, arms do not come as they say. Pause it and look into the log."
        )
    alerts += _drifted(settled)
    alerts += _novelty(settled)
    broken = [text for one in guardrails_of(settled) for text in one.alerts]
    delays = delays_of(connection, experiment)
    return ResultHealth(
        tables,
        worst,
        chance,
        log_e,
        delays,
        tuple(alerts),
        tuple(broken),
        tuple(undecided_of(settled)),
    )


def _draws(evidence: Evidence) -> tuple[int | None, float, float, int]:
    used = [
        (number, batch)
        for number, batch in zip(evidence.numbers, evidence.batches(), strict=True)
        if batch.shows.sum() > 0
    ]
    if not used:
        return None, 1.0, 0.0, 0
    batches = [batch for _, batch in used]
    checks = sample_ratios(batches)
    worst = min(range(len(checks)), key=lambda i: checks[i].p_value)
    chance = min(1.0, checks[worst].p_value * len(checks))
    return used[worst][0], chance, draw_evidence(batches).log_e_value, len(used)


def _drifted(evidence: Evidence) -> list[str]:
    experiment = evidence.experiment
    parts = zip(evidence.batches(), evidence.ended, strict=True)
    used = [(batch, ended) for batch, ended in parts if batch.shows.sum() > 0]
    if len(used) < 2:
        return []
    found = drift([batch for batch, _ in used])
    visible = visible_segments(evidence.all_shows, [arm.active for arm in experiment.arms])
    if not found.alarm(DRIFT_ALPHA):
        return []
    if found.segment not in visible:
        return ["The mean of an arm changed in a small segment."]
    unit = unit_of(experiment.metrics[0].cap)
    arm, segment = experiment.arms[found.arm].key, experiment.rows[found.segment]
    before, since = unit.level(found.rate_before), unit.level(found.rate_since)
    when = times.as_datetime(int(used[found.after - 1][1]))
    return [
        f"The mean of {arm} for {segment} changed from {before} to {since}, most likely about "
        f"{when:%-d %b %Y %H:%M} UTC. Lifts are averages over the whole time."
    ]


def _novelty(evidence: Evidence) -> list[str]:
    """Report lifts that changed since the start: their two confidence sequences do not overlap."""
    experiment = evidence.experiment
    names = [arm.key for arm in experiment.arms]
    default = names.index(experiment.default_arm)
    pairs = [(default, arm) for arm in range(len(names)) if arm != default]
    planned = EARLY_PART * (experiment.planned_visitors or USUAL_VISITORS)
    so_far = np.cumsum(evidence.shows.sum(axis=(1, 2)))
    cut = int(np.searchsorted(so_far, planned))
    if cut >= len(so_far):
        return []
    each = ALPHA / (2 * len(pairs) * len(experiment.rows))
    sums = (evidence.probabilities, evidence.shows, evidence.rewards[0], evidence.squares[0])
    ends = []
    for part in (slice(0, cut), slice(cut, None)):
        state = update_all(first_state(evidence, pairs), *(one[part] for one in sums))
        between = state.between
        ends.append(of_sums(between, state.planned_between, state.rate, each, -1.0, exact=False))
    early, later = ends
    apart = early.ready & later.ready & ((early.low > later.high) | (early.high < later.low))
    visible = visible_segments(evidence.all_shows, [arm.active for arm in experiment.arms])
    unit = unit_of(experiment.metrics[0].cap)
    return [
        f"The lift of {names[pairs[row][1]]} for {experiment.rows[j]} was "
        f"{unit.change(early.low[j, row], early.high[j, row])} at first and is "
        f"{unit.change(later.low[j, row], later.high[j, row])} since: perhaps a novelty."
        for j, row in np.argwhere(apart).tolist()
        if j in visible
    ]


def delays_of(connection: Connection, experiment: Experiment) -> tuple[tuple[float, float], ...]:
    """Return the delays of the deciding metric's rewards, from a random sample."""
    identity = bytes.fromhex(experiment.id)
    rows = connection.execute(
        select(rewards.c.rewarded_at - decisions.c.decided_at)
        .join(
            decisions,
            (decisions.c.experiment_id == rewards.c.experiment_id)
            & (decisions.c.id == rewards.c.decision_id),
        )
        .where(rewards.c.experiment_id == identity, rewards.c.metric == 0)
        .order_by(rewards.c.decision_id)
        .limit(MOST_REWARDS)
    ).scalars()
    seconds = np.array([int(row) / MICRO for row in rows])
    if len(seconds) < LEAST_REWARDS:
        return ()
    quantiles = np.quantile(seconds, CURVE)
    return tuple((share, float(value)) for share, value in zip(CURVE, quantiles, strict=True))


# -- a quick check of the draws, from counters alone -----------------------------------------------


@dataclass(frozen=True)
class DrawCheck:
    """The released decisions of one experiment compared with the tables they were drawn from.

    Attributes:
        decisions: number of decisions compared.
        rewarded: how many of them have a reward, whatever its value.
        shown: how often each arm was shown.
        expected: how often each arm should have been shown on average, per the tables.
        variance: variance of that number, per arm.
    """

    decisions: int
    rewarded: int
    shown: tuple[int, ...]
    expected: tuple[float, ...]
    variance: tuple[float, ...]


def draw_check(connection: Connection, experiment: Experiment) -> DrawCheck:
    """Compare every released decision with the table that it names, however many there are."""
    width = len(experiment.arms)
    shown, expected, variance = [0] * width, [0.0] * width, [0.0] * width
    published = experiments.published(connection, experiment)
    tables = {table.number: decoded_table(table.rows, width) for table in published}
    versions = {table.number: table.version for table in published}
    promise = promises.promise_of(connection, experiment)
    drawn: dict[tuple[int, int | None], int] = {}
    rewarded = 0
    keys = (counters.c.table_number, counters.c.role, counters.c.segment, counters.c.arm)
    for number, role, segment, arm, shows, answered in connection.execute(
        select(*keys, func.sum(counters.c.shows), func.sum(counters.c.rewarded))
        .where(
            counters.c.experiment_id == bytes.fromhex(experiment.id),
            counters.c.metric == 0,
            counters.c.table_number > 0,
            counters.c.table_number < release_of(connection, experiment).tables,
        )
        .group_by(*keys)
    ):
        row = (number, segment if role == Role.MEMBER else None)
        drawn[row] = drawn.get(row, 0) + int(shows)
        shown[arm] += int(shows)
        rewarded += int(answered)
    for (number, segment), count in drawn.items():
        if segment is None:
            chances = promise.neutral_of(versions[number])
        else:
            chances = tables[number].row(segment)
        for arm, entry in enumerate(chances):
            chance = entry / SPACE
            expected[arm] += count * chance
            variance[arm] += count * chance * (1 - chance)
    return DrawCheck(sum(shown), rewarded, tuple(shown), tuple(expected), tuple(variance))


def mismatch_chance(check: DrawCheck) -> float:
    """A bound on the probability of so uneven arms, were they drawn from their tables.

    For each arm the shown count is a sum of independent draws of known probabilities; Bernstein's
    inequality bounds its tail by ``2 exp(-d^2 / (2 variance + 2 d / 3))`` with d the distance from
    its mean, whatever the sample's size. The smallest is multiplied by the number of arms.

    >>> check = DrawCheck(100, 0, shown=(80, 20), expected=(50.0, 50.0), variance=(25.0, 25.0))
    >>> f"{mismatch_chance(check):.1e}"
    '1.0e-05'
    """
    smallest = 1.0
    for shown, expected, variance in zip(check.shown, check.expected, check.variance, strict=True):
        distance = abs(shown - expected)
        if distance > 0:
            smallest = min(
                smallest, 2 * math.exp(-(distance**2) / (2 * variance + 2 * distance / 3))
            )
    return min(1.0, smallest * len(check.shown))


@dataclass(frozen=True)
class Health:
    """What a spot check found.

    Attributes:
        check: its figures.
        chance: that so large a mismatch between shown arms and tables comes by chance, at most.
        checked_at: when.
        learned: draws by table, delays, drift and novelty.
    """

    check: DrawCheck
    chance: float
    checked_at: datetime
    learned: ResultHealth | None = None

    @property
    def as_designed(self) -> bool:
        """Whether the arms come in the designed proportions."""
        by_table = self.learned is None or self.learned.as_designed
        return self.chance >= SUSPICIOUS and by_table

    @property
    def rewarded_share(self) -> float | None:
        """Share of the decisions that had a reward, 0 included."""
        return self.check.rewarded / self.check.decisions if self.check.decisions else None

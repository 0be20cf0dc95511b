"""Where an experiment stands: one record for its page, `deniable status` and HTTP.

It tells segments apart only where the small-cell rule allows. Everything else is over all visitors.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime

from deniable._types import JsonObject
from deniable.analysis.history import HistoryPoint, experiment_history
from deniable.analysis.leaderboard import Leaderboard, LeaderboardRow
from deniable.analysis.segment_risk import SegmentRisk, common_share, regret_bound, segment_risks
from deniable.analysis.small_cells import SMALLEST_CELL
from deniable.storage.counts import Sample
from deniable.storage.records import PublishedTable, Status


@dataclass(frozen=True)
class SegmentRates:
    """The plain click rates of one segment that may be told apart.

    Attributes:
        segment: its name.
        visitors: decided for so far.
        rates: of each arm that is on, by key.
        best_arm: the arm with the highest rate.
    """

    segment: str
    visitors: int
    rates: dict[str, float]
    best_arm: str


@dataclass(frozen=True)
class ExperimentSummary:
    """Where an experiment stands. Private: for the firm's staff only.

    Attributes:
        experiment: its key.
        status: draft, running, paused or stopped.
        time: when this was so.
        visitors: decided for so far.
        clicks: clicks among them.
        click_rate: clicks per visitor; None before the first.
        gain_over_random: clicks won over random arms, as a share of theirs; None while too early.
        common_share: share of new visitors whose arm does not depend on the segment.
        clicks_lost: estimated clicks lost against always showing each segment its best arm.
        clicks_lost_at_random: the same, had every visitor been shown a random arm.
        regret_bound: the theory's bound on the expected loss after so many visitors.
        leaderboard: the arms, best first, as if everybody had been shown each of them.
        segments: rates by segment, of those that may be told apart.
        segment_risks: risk by segment, of the same; empty before the first table.
        hidden_segments: how many segments may not be told apart.
        smallest_cell: visitors of a segment that every arm must have been shown to.
        history: totals and losses over time, oldest first.
    """

    experiment: str
    status: Status
    time: datetime
    visitors: int
    clicks: int
    click_rate: float | None
    gain_over_random: float | None
    common_share: float
    clicks_lost: float
    clicks_lost_at_random: float
    regret_bound: float
    leaderboard: tuple[LeaderboardRow, ...]
    segments: tuple[SegmentRates, ...]
    segment_risks: tuple[SegmentRisk, ...]
    hidden_segments: int
    smallest_cell: int
    history: tuple[HistoryPoint, ...]

    def to_dict(self) -> JsonObject:
        """Return plain values; times stay times."""
        return asdict(self)


def summarize(
    board: Leaderboard,
    published: PublishedTable | None,
    samples: Sequence[Sample],
    now: datetime | None = None,
) -> ExperimentSummary:
    """Return where an experiment stands.

    Args:
        board: its counters.
        published: its table in force; None before the start.
        samples: its stored totals, oldest first.
        now: the present.
    """
    experiment, now = board.experiment, now or datetime.now(UTC)
    return ExperimentSummary(
        experiment=experiment.key,
        status=experiment.status,
        time=now,
        visitors=board.visitors,
        clicks=board.total_clicks,
        click_rate=board.click_rate,
        gain_over_random=board.gain_over_random,
        common_share=common_share(board, published),
        clicks_lost=board.lost,
        clicks_lost_at_random=board.lost_at_random,
        regret_bound=regret_bound(experiment, board.visitors),
        leaderboard=tuple(board.rows()),
        segments=tuple(_rates(board, position) for position in board.visible),
        segment_risks=() if published is None else tuple(segment_risks(board, published, now)),
        hidden_segments=len(experiment.rows) - len(board.visible),
        smallest_cell=SMALLEST_CELL,
        history=experiment_history(board, samples, now),
    )


def _rates(board: Leaderboard, position: int) -> SegmentRates:
    shows, clicks = board.shows[position], board.clicks[position]
    rates = {
        arm.key: float(clicks[i] / shows[i])
        for i, arm in enumerate(board.experiment.arms)
        if arm.active
    }
    name, visitors = board.experiment.rows[position], int(shows.sum())
    return SegmentRates(name, visitors, rates, max(rates, key=lambda key: rates[key]))

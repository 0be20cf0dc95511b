"""What needs a look, in words: one sentence each, the serious ones first."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Literal, Protocol, TypeAlias

from deniable._formatting import in_nats, nats, percent, whole
from deniable.analysis.leaderboard import Leaderboard
from deniable.analysis.result_health import Health
from deniable.storage.records import Experiment, Firm

SILENT_AFTER = 1_000
"""Visitors after which missing rewards mean something: somebody forgot to send them."""


AlertKind: TypeAlias = Literal["bad", "note", "good"]


class Figures(Protocol):
    """What the writer counted since it started."""

    @property
    def unstored(self) -> int:
        """Answers that could not be stored."""

    @property
    def refused(self) -> int:
        """Requests that were refused because the queue was full."""


@dataclass(frozen=True)
class Alert:
    """One sentence.

    Attributes:
        kind: how serious: bad, note or good.
        text: the sentence.
        experiment: the key it is about, if it is about one.
    """

    kind: AlertKind
    text: str
    experiment: str | None = None


def alerts(
    firm: Firm | None,
    leaderboards: Sequence[Leaderboard] | None,
    health: Mapping[str, Health],
    figures: Figures,
    now: datetime | None = None,
) -> list[Alert]:
    """All of them; `leaderboards` is None while experiments are looked at for the first time."""
    found = _of_the_firm(firm, now or datetime.now(UTC)) + _of_the_service(figures)
    if leaderboards is None:
        words = "The service has just started: its experiments are checked within seconds."
        found.append(Alert("note", words))
    for board in leaderboards or ():
        found += _of_one(board, health.get(board.experiment.key))
    return sorted(found, key=lambda alert: ("bad", "note", "good").index(alert.kind))


def _of_the_firm(firm: Firm | None, now: datetime) -> list[Alert]:
    if firm is None:
        return []
    found = []
    if firm.budget_nano and firm.remaining_nano < firm.budget_nano / 10:
        found.append(
            Alert(
                "note",
                f"Only {nats(firm.remaining)} of the firm’s {in_nats(firm.budget)} are free: "
                "another experiment may not fit.",
            )
        )
    return found


def _of_the_service(figures: Figures) -> list[Alert]:
    found = []
    if figures.unstored:
        found.append(
            Alert(
                "bad",
                f"{whole(figures.unstored)} answers since the start were random arms that could "
                "not be stored. Those visitors may see another arm when they come back.",
            )
        )
    if figures.refused:
        found.append(
            Alert("note", f"{whole(figures.refused)} requests were refused: the queue was full.")
        )
    return found


def _of_one(board: Leaderboard, health: Health | None) -> list[Alert]:
    experiment = board.experiment
    key, found = experiment.key, []
    if health is not None and not health.as_designed:
        found.append(
            Alert(
                "bad",
                "Arms are not shown in the designed proportions. Pause it and investigate.",
                key,
            )
        )
    if health is not None and health.as_designed and health.learned is not None:
        found += [Alert("note", text, key) for text in health.learned.alerts]
        found += [Alert("note", f"Guardrail: {text}", key) for text in health.learned.guardrails]
    if board.visitors >= SILENT_AFTER and board.total_clicks == 0:
        found.append(
            Alert(
                "bad",
                f"{whole(board.visitors)} visitors and not a single click reported.",
                key,
            )
        )
    elif health is not None and health.check.decisions >= SILENT_AFTER:
        rewarded = health.check.rewarded / health.check.decisions
        if rewarded < 0.01:
            told = f"Only {percent(rewarded)} of the decisions have a reported reward."
            found.append(Alert("note", told, key))
    if _planned_is_over(experiment, board.visitors):
        open_still = health.learned.undecided if health and health.learned else ()
        what_next = " ".join(open_still) or "Time to decide."
        found.append(Alert("note", f"It has seen as many visitors as planned. {what_next}", key))
    return found


def _planned_is_over(experiment: Experiment, visitors: int) -> bool:
    planned = experiment.planned_visitors
    return experiment.status == "running" and planned is not None and visitors >= planned

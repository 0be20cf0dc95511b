"""The service as a page of plain Python: what the state machine compares the real one with."""

from __future__ import annotations

from dataclasses import dataclass, field

from deniable.errors import NANO


@dataclass
class ModelDecision:
    id: str
    arm: str
    segment: str | None
    barred: bool
    uniform: bool
    rewarded: bool = False
    erased: bool = False


@dataclass
class ModelExperiment:
    key: str
    arms: list[str]
    budget: float
    group: str | None
    strategy: str
    status: str = "draft"
    off: set[str] = field(default_factory=set)
    winner: str | None = None
    exhausted: bool = False
    ran_in_period: int | None = None
    version: int = 1
    by_visitor: dict[str, ModelDecision] = field(default_factory=dict)
    shows: int = 0
    clicks: int = 0

    @property
    def nano(self) -> int:
        return int(self.budget * NANO)

    @property
    def live(self) -> bool:
        return self.status in ("running", "paused")

    @property
    def fixed(self) -> str:
        return self.winner or self.arms[0]

    @property
    def active(self) -> list[str]:
        return [arm for arm in self.arms if arm not in self.off]


@dataclass
class Model:
    budget: int = 0
    committed: int = 0
    period: int = 0
    experiments: dict[str, ModelExperiment] = field(default_factory=dict)
    members: dict[tuple[str, str], str] = field(default_factory=dict)
    decisions: dict[str, tuple[ModelExperiment, ModelDecision]] = field(default_factory=dict)

    def cost(self, experiment: ModelExperiment) -> int:
        """What starting it takes: the part by which it exceeds its group's largest."""
        if experiment.group is None:
            return experiment.nano
        largest = max(
            (
                other.nano
                for other in self.experiments.values()
                if other.group == experiment.group and other.ran_in_period == self.period
            ),
            default=0,
        )
        return max(0, experiment.nano - largest)

    def carried(self) -> int:
        """What the live experiments need of a new period."""
        groups: dict[str, int] = {}
        alone = 0
        for experiment in self.experiments.values():
            if experiment.live and experiment.group is None:
                alone += experiment.nano
            elif experiment.live and experiment.group is not None:
                groups[experiment.group] = max(groups.get(experiment.group, 0), experiment.nano)
        return alone + sum(groups.values())

    def open_period(self, budget: int) -> None:
        self.period += 1
        self.budget, self.committed = budget, self.carried()
        for experiment in self.experiments.values():
            if experiment.live:
                experiment.ran_in_period = self.period
            if experiment.status != "stopped":
                experiment.exhausted = False

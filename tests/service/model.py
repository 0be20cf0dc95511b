"""The service as a page of plain Python: what the state machine compares the real one with."""

from __future__ import annotations

import hmac
from dataclasses import dataclass, field
from hashlib import sha256

from deniable.errors import NANO
from deniable.storage.records import Role


@dataclass
class ModelDecision:
    id: str
    arm: str
    role: Role
    segment: str | None
    rewarded: bool = False
    erased: bool = False


@dataclass
class ModelExperiment:
    key: str
    arms: list[str]
    budget: float
    layer: str | None
    strategy: str
    status: str = "draft"
    segments: list[str] = field(default_factory=lambda: ["a", "b"])
    off: set[str] = field(default_factory=set)
    winner: str | None = None
    started: bool = False
    slots: range = range(0)
    version: int = 1
    by_visitor: dict[str, ModelDecision] = field(default_factory=dict)
    erased: set[str] = field(default_factory=set)
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
    """A run takes seconds and the window is 90 days: whatever was started counts until its end."""

    visitor_key: bytes
    budget: int = 0
    experiments: dict[str, ModelExperiment] = field(default_factory=dict)
    decisions: dict[str, tuple[ModelExperiment, ModelDecision]] = field(default_factory=dict)

    def committed(self, *more: ModelExperiment) -> int:
        """What counts: the budgets of all that were started, and of a layer the largest."""
        largest: dict[str, int] = {}
        for experiment in (*self.experiments.values(), *more):
            if experiment.started or experiment in more:
                place = f"layer {experiment.layer}" if experiment.layer else experiment.key
                largest[place] = max(largest.get(place, 0), experiment.nano)
        return sum(largest.values())

    def used_slots(self, layer: str) -> int:
        """Slots are given out from the first on, and nothing is free again within a run."""
        return sum(len(e.slots) for e in self.experiments.values() if e.layer == layer)

    def slot(self, layer: str, visitor: str) -> int:
        scope = b"layer" + sha256(layer.encode()).digest()
        digest = hmac.new(self.visitor_key, scope + visitor.encode(), "sha256").digest()
        return int.from_bytes(digest[:8], "big") % 1000

    def role(self, experiment: ModelExperiment, visitor: str) -> Role:
        """Which row a new visitor is drawn from; the segment has no part in it."""
        if experiment.status == "paused":
            return Role.CLOSED
        if visitor in experiment.erased:
            return Role.ERASED
        if experiment.layer and self.slot(experiment.layer, visitor) not in experiment.slots:
            return Role.OTHER_SLOT
        return Role.MEMBER

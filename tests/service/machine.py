"""The state machine: every use-case, in any order, compared step by step with the model."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule
from sqlalchemy import select
from tests.service.model import Model, ModelDecision, ModelExperiment

from deniable.errors import (
    InsufficientBudgetError,
    InvalidArgumentError,
    UnknownNameError,
    WrongStateError,
)
from deniable.service.ids import DecisionIds, MaskKey
from deniable.service.service import Deniable
from deniable.storage.chain import GENESIS
from deniable.storage.records import Decision, Role
from deniable.storage.schema import decisions, metadata, writers
from deniable.storage.store import Store

NAMES = st.sampled_from(["one", "two", "one", "two", "three", "four"])
VISITORS = st.sampled_from([f"v{i}" for i in range(16)])
SEGMENTS = st.sampled_from(["a", "b", "c", "d", "unheard of", None])
KEY = bytes.fromhex("5a" * 32)
STRATEGIES = st.sampled_from(["constant", "dynamic"])
BUDGETS = st.sampled_from([0.25, 0.5, 1.0, 4.0])
ARMS = st.sampled_from(["arm0", "arm1", "arm2"])
VALUES = st.integers(0, 1)
# What a use-case is called with, and how often it is chosen. Nothing else is drawn for it.
ACTS: dict[str, tuple[int, tuple[st.SearchStrategy[Any], ...]]] = {
    "decide": (12, (NAMES, VISITORS, SEGMENTS)),
    "decide_batch": (4, (NAMES, st.lists(st.tuples(VISITORS, SEGMENTS), max_size=6))),
    "reward": (8, (st.integers(0, 11), VALUES)),
    "reward_unknown": (1, (VALUES,)),
    "create": (
        2,
        (NAMES, st.integers(2, 4), BUDGETS, st.sampled_from(["g", None]), STRATEGIES),
    ),
    "start": (3, (NAMES, st.sampled_from([0.1, 0.5]))),
    "pause": (2, (NAMES,)),
    "resume": (3, (NAMES,)),
    "stop": (1, (NAMES, st.sampled_from([None, None, None, "arm0", "arm1", None]))),
    "switch_off": (2, (NAMES, ARMS)),
    "add_arm": (2, (NAMES, st.sampled_from([f"arm{i}" for i in range(2, 7)]))),
    "add_segment": (2, (NAMES, st.sampled_from("abcd"))),
    "set_firm": (2, (BUDGETS,)),
    "publish": (2, (NAMES,)),
    "erase": (3, (VISITORS,)),
    "reopen": (1, ()),
}
CHOICES = st.sampled_from([act for act, (weight, _) in ACTS.items() for _ in range(weight)])


@st.composite
def steps(draw: st.DrawFn) -> tuple[str, tuple[Any, ...]]:
    """A use-case and its arguments."""
    act = draw(CHOICES)
    return act, tuple(map(draw, ACTS[act][1]))


STEPS = steps()


class UseCases(RuleBasedStateMachine):
    """Subclasses say on which store."""

    store: Store

    new_decisions = 0

    def __init__(self) -> None:
        super().__init__()
        self.empty()
        self.service: Deniable = self.opened()
        self.model = Model(KEY)

    def empty(self) -> None:
        """Leave the store as it was when its tables had just been made."""
        deletions = [f"DELETE FROM {table.name}" for table in reversed(metadata.sorted_tables)]
        with self.store.begin() as connection:
            if connection.dialect.name != "sqlite":  # takes all of them in one round trip
                deletions = ["; ".join(deletions)]
            for statement in deletions:
                connection.exec_driver_sql(statement)
            connection.execute(writers.insert().values(id=0, lease_until=0, seq=0, head=GENESIS))

    def opened(self) -> Deniable:
        """A new service: nothing of the old one's memory is left."""
        return Deniable(self.store, KEY, MaskKey("memory:"))

    def close(self) -> None:
        """Close the service, keep the store's connections."""
        self.service.writer.close()
        self.service._publisher.close()

    @initialize(budget=st.sampled_from([1, 2, 4]), first=STRATEGIES, second=STRATEGIES)
    def begin(self, budget: int, first: Any, second: Any) -> None:
        """A firm with running experiments, two of one layer: most steps then are decisions."""
        self.service.firm.set(budget=budget)
        self.model.budget = budget * 10**9
        self.create("one", 3, 0.5, None, first)
        self.create("two", 2, 0.5, "g", second)
        self.create("three", 4, 0.25, "g", second)
        for name in ("one", "two", "three"):
            self.start(name, 0.4)

    @rule(step=STEPS)
    def step(self, step: tuple[str, tuple[Any, ...]]) -> None:
        """One use-case. A single weighted rule: Hypothesis would switch whole rules off in a run."""
        act, arguments = step
        getattr(self, act)(*arguments)

    def create(self, name: str, arms: int, budget: float, layer: str | None, strategy: Any) -> None:
        wanted = [f"arm{i}" for i in range(arms)]
        options: dict[str, Any] = {
            "arms": wanted,
            "segments": ["a", "b"],
            "budget": budget,
            "strategy": strategy,
            "layer": layer,
        }
        if name in self.model.experiments:
            with pytest.raises(WrongStateError):
                self.service.experiments.create(name, **options)
            return
        created = self.service.experiments.create(name, **options)
        assert (created.status, created.version) == ("draft", 1)
        self.model.experiments[name] = ModelExperiment(name, wanted, budget, layer, strategy)

    def start(self, name: str, share: float) -> None:
        experiment = self.known(name, self.service.experiments.start, "draft")
        if experiment is None:
            return
        slots = range(0)
        if experiment.layer is not None:
            used = self.model.used_slots(experiment.layer)
            slots = range(used, used + round(share * 1000))
            if slots.stop > 1000:
                with pytest.raises(WrongStateError):
                    self.service.experiments.start(experiment.key, share=share)
                return
        before = self.model.committed()
        cost, remaining = self.model.committed(experiment) - before, self.model.budget - before
        if cost > remaining:
            with pytest.raises(InsufficientBudgetError) as refused:
                self.service.experiments.start(experiment.key, share=share)
            assert (refused.value.remaining, refused.value.requested) == (remaining, cost)
            return
        started = self.service.experiments.start(experiment.key, share=share)
        assert (started.status, started.table_number) == ("running", 1)
        experiment.status, experiment.started, experiment.slots = "running", True, slots

    def pause(self, name: str) -> None:
        if experiment := self.known(name, self.service.experiments.pause, "running"):
            self.service.experiments.pause(experiment.key)
            experiment.status = "paused"

    def resume(self, name: str) -> None:
        if experiment := self.known(name, self.service.experiments.resume, "paused"):
            self.service.experiments.resume(experiment.key)
            experiment.status = "running"

    def stop(self, name: str, promote: str | None) -> None:
        if experiment := self.known(name, self.service.experiments.stop, "running", "paused"):
            self.service.experiments.stop(experiment.key, promote=promote)
            experiment.status, experiment.winner = "stopped", promote

    def switch_off(self, name: str, arm: str) -> None:
        experiment = self.known(
            name, lambda k: self.service.experiments.switch_off(k, arm), "running", "paused"
        )
        if experiment is None:
            return
        if arm not in experiment.arms:
            with pytest.raises(UnknownNameError):
                self.service.experiments.switch_off(experiment.key, arm)
        elif arm in experiment.off or len(experiment.active) < 3:
            with pytest.raises(WrongStateError):
                self.service.experiments.switch_off(experiment.key, arm)
        else:
            experiment.off.add(arm)
            experiment.version += 1
            assert (
                self.service.experiments.switch_off(experiment.key, arm).version
                == experiment.version
            )

    def add_arm(self, name: str, arm: str) -> None:
        experiment = self.known(
            name, lambda k: self.service.experiments.add_arm(k, arm), "running", "paused"
        )
        if experiment is None:
            return
        if arm in experiment.arms:
            with pytest.raises(InvalidArgumentError):
                self.service.experiments.add_arm(experiment.key, arm)
            return
        experiment.arms.append(arm)
        experiment.version += 1
        added = self.service.experiments.add_arm(experiment.key, arm)
        assert added.version == experiment.version

    def add_segment(self, name: str, segment: str) -> None:
        experiment = self.known(
            name, lambda k: self.service.experiments.add_segment(k, segment), "running", "paused"
        )
        if experiment is None:
            return
        if segment in experiment.segments:
            with pytest.raises(InvalidArgumentError):
                self.service.experiments.add_segment(experiment.key, segment)
            return
        experiment.segments.append(segment)
        before = self.service.experiments.get(experiment.key)
        added = self.service.experiments.add_segment(experiment.key, segment)
        assert (added.version, added.table_number) == (before.version, before.table_number)

    def set_firm(self, budget: float) -> None:
        nano = int(budget * 10**9)
        if nano > self.model.budget:  # a larger budget needs a reason
            with pytest.raises(InvalidArgumentError):
                self.service.firm.set(budget=budget)
        if self.model.committed() > nano:
            with pytest.raises(InsufficientBudgetError):
                self.service.firm.set(budget=budget, reason="because")
        else:
            self.service.firm.set(budget=budget, reason="because")
            self.model.budget = nano

    def publish(self, name: str) -> None:
        experiment = self.model.experiments.get(name)
        if experiment is None:
            with pytest.raises(UnknownNameError):
                self.service.experiments.publish(name)
        else:
            before = self.service.experiments.get(name).table_number
            published = self.service.experiments.publish(name)
            after = self.service.experiments.get(name).table_number
            assert after == before + (published is not None)
            assert published is None or experiment.live

    def decide(self, name: str, visitor: str, segment: str | None) -> None:
        experiment = self.model.experiments.get(name)
        if experiment is None:
            with pytest.raises(UnknownNameError):
                self.service.decide(name, visitor, segment)
        else:
            answer = self.service.decide(experiment.key, visitor, segment)
            self.decided(experiment, visitor, segment, answer)

    def decide_batch(self, name: str, pairs: list[tuple[str, str | None]]) -> None:
        if experiment := self.model.experiments.get(name):
            answers = self.service.decide_batch(experiment.key, pairs)
            for (visitor, segment), answer in zip(pairs, answers, strict=True):
                self.decided(experiment, visitor, segment, answer)

    def reward(self, number: int, value: int) -> None:
        if not self.model.decisions:
            return
        identity = list(self.model.decisions)[-1 - number % len(self.model.decisions)]
        self.service.reward(identity, value)
        experiment, decision = self.model.decisions[identity]
        if not decision.rewarded and not decision.erased:
            decision.rewarded = True
            experiment.clicks += value * (decision.role == Role.MEMBER)

    def reward_unknown(self, value: int) -> None:
        self.service.reward("f" * 32, value)

    def erase(self, visitor: str) -> None:
        erased = 0
        for experiment in self.model.experiments.values():
            decision = experiment.by_visitor.pop(visitor, None)
            if decision is not None:
                decision.erased = True
                experiment.erased.add(visitor)
                erased += 1
        assert self.service.visitors.erase([visitor]).decisions == erased

    def reopen(self) -> None:
        self.close()
        self.service = self.opened()

    # -- comparisons -------------------------------------------------------------------------

    def known(self, name: str, act: Any, *states: str) -> ModelExperiment | None:
        """The experiment, if it is in one of these states; else the act must be refused."""
        experiment = self.model.experiments.get(name)
        if experiment is None:
            with pytest.raises(UnknownNameError):
                act(name)
            return None
        if experiment.status not in states:
            with pytest.raises(WrongStateError):
                act(experiment.key)
            return None
        return experiment

    def decided(
        self, experiment: ModelExperiment, visitor: str, segment: str | None, answer: Decision
    ) -> None:
        if not experiment.live:
            assert answer.arm == experiment.fixed
            return
        before = experiment.by_visitor.get(visitor)
        if before is not None:
            assert answer == (before.id, before.arm)
            return
        type(self).new_decisions += 1
        assert answer.id not in self.model.decisions
        assert answer.arm in experiment.active
        role = self.model.role(experiment, visitor)
        listed = segment if segment in experiment.segments else None  # at the time of the draw
        decision = ModelDecision(answer.id, answer.arm, role, listed)
        experiment.by_visitor[visitor] = decision
        experiment.shows += role == Role.MEMBER
        self.model.decisions[answer.id] = (experiment, decision)

    def teardown(self) -> None:
        firm = self.service.firm.current()
        assert (firm.budget_nano, firm.committed_nano) == (
            self.model.budget,
            self.model.committed(),
        )
        for experiment in self.model.experiments.values():
            stored = self.service.experiments.get(experiment.key)
            assert stored.status == experiment.status
            cells = self.service.experiments.counts(experiment.key)
            assert sum(cell.shows for cell in cells) == experiment.shows
            assert sum(cell.clicks for cell in cells) == experiment.clicks
        self.check_decisions()
        assert self.service.ledger.verify().problem is None
        self.close()

    def check_decisions(self) -> None:
        """Every stored decision names its table, and its role is what the model says."""
        with self.service._store.read() as connection:
            stored = connection.execute(select(decisions)).all()
        assert len(stored) == len(self.model.decisions)
        for row in stored:
            experiment, decision = self.model.decisions[
                DecisionIds(self.service._key, row.experiment_id).shown(row.id)
            ]
            assert row.role == decision.role
            assert row.table_number >= 1
            if decision.erased:
                assert (row.visitor, row.segment, row.shown, row.salt) == (None,) * 4
            else:
                assert experiment.arms[row.shown] == decision.arm
                known = {name: place for place, name in enumerate(experiment.segments)}
                assert row.segment == known.get(decision.segment or "", -1)

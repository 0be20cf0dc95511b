"""The state machine: every use-case, in any order, compared step by step with the model."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule
from sqlalchemy import select
from tests.service.model import Model, ModelDecision, ModelExperiment

from deniable.errors import InsufficientBudgetError, UnknownNameError, WrongStateError
from deniable.service.service import Deniable
from deniable.service.visitors import visitor_hash
from deniable.storage.chain import GENESIS
from deniable.storage.records import Decision
from deniable.storage.schema import decisions, metadata, writers
from deniable.storage.store import Store

NAMES = st.sampled_from(["one", "two", "one", "two", "three", "four"])
VISITORS = st.sampled_from([f"v{i}" for i in range(16)])
SEGMENTS = st.sampled_from(["a", "b", "unheard of", None])
KEY = bytes.fromhex("5a" * 32)
WEIGHTS = {
    "decide": 12,
    "decide_batch": 4,
    "reward": 8,
    "reward_unknown": 1,
    "create": 2,
    "start": 3,
    "pause": 2,
    "resume": 3,
    "stop": 1,
    "switch_off": 2,
    "new_period": 2,
    "erase": 3,
    "reopen": 1,
}
ACTS = st.sampled_from([act for act, weight in WEIGHTS.items() for _ in range(weight)])
STRATEGIES = st.sampled_from(["constant", "dynamic"])


class UseCases(RuleBasedStateMachine):
    """Subclasses say on which store."""

    store: Store

    new_decisions = 0

    def __init__(self) -> None:
        super().__init__()
        self.empty()
        self.service: Deniable = self.opened()
        self.model = Model()

    def empty(self) -> None:
        """Leave the store as it was when its tables had just been made."""
        with self.store.begin() as connection:
            for table in reversed(metadata.sorted_tables):
                connection.execute(table.delete())
            connection.execute(writers.insert().values(id=0, lease_until=0, seq=0, head=GENESIS))

    def opened(self) -> Deniable:
        """A new service: nothing of the old one's memory is left."""
        return Deniable(self.store, KEY)

    def close(self) -> None:
        """Close the service, keep the store's connections."""
        self.service._writer.close()

    @initialize(budget=st.sampled_from([1, 2, 4]), first=STRATEGIES, second=STRATEGIES)
    def begin(self, budget: int, first: Any, second: Any) -> None:
        """A firm with running experiments, two of one group: most steps then are decisions."""
        self.service.firm.set(budget=budget)
        self.model.open_period(budget * 10**9)
        self.create("one", 3, 0.5, None, first)
        self.create("two", 2, 0.5, "g", second)
        self.create("three", 4, 0.25, "g", second)
        for name in ("one", "two", "three"):
            self.start(name)

    @rule(
        act=ACTS,
        name=NAMES,
        visitor=VISITORS,
        segment=SEGMENTS,
        arm=st.sampled_from(["arm0", "arm1", "arm2"]),
        number=st.integers(0, 11),
        strategy=STRATEGIES,
        pairs=st.lists(st.tuples(VISITORS, SEGMENTS), max_size=6),
    )
    def step(
        self,
        act: str,
        name: str,
        visitor: str,
        segment: str | None,
        arm: str,
        number: int,
        strategy: Any,
        pairs: list[tuple[str, str | None]],
    ) -> None:
        """One use-case. A single weighted rule: Hypothesis would switch whole rules off in a run."""
        budget = (0.25, 0.5, 1.0, 4.0)[number % 4]
        acts: dict[str, Callable[[], None]] = {
            "create": lambda: self.create(
                name, 2 + number % 3, budget, "g" if number % 2 else None, strategy
            ),
            "start": lambda: self.start(name),
            "pause": lambda: self.pause(name),
            "resume": lambda: self.resume(name),
            "stop": lambda: self.stop(name, arm if number % 2 and arm != "arm2" else None),
            "switch_off": lambda: self.switch_off(name, arm),
            "new_period": lambda: self.new_period(budget),
            "decide": lambda: self.decide(name, visitor, segment),
            "decide_batch": lambda: self.decide_batch(name, pairs),
            "reward": lambda: self.reward(number, number % 2),
            "reward_unknown": lambda: self.reward_unknown(number % 2),
            "erase": lambda: self.erase(visitor),
            "reopen": self.reopen,
        }
        acts[act]()

    def create(self, name: str, arms: int, budget: float, group: str | None, strategy: Any) -> None:
        wanted = [f"arm{i}" for i in range(arms)]
        options: dict[str, Any] = {
            "arms": wanted,
            "segments": ["a", "b"],
            "budget": budget,
            "strategy": strategy,
            "group": group,
        }
        if name in self.model.experiments:
            with pytest.raises(WrongStateError):
                self.service.experiments.create(name, **options)
            return
        created = self.service.experiments.create(name, **options)
        assert (created.status, created.version) == ("draft", 1)
        self.model.experiments[name] = ModelExperiment(name, wanted, budget, group, strategy)

    def start(self, name: str) -> None:
        experiment = self.known(name, self.service.start, "draft")
        if experiment is None:
            return
        cost, remaining = self.model.cost(experiment), self.model.budget - self.model.committed
        if cost > remaining:
            with pytest.raises(InsufficientBudgetError) as refused:
                self.service.experiments.start(experiment.key)
            assert (refused.value.remaining, refused.value.requested) == (remaining, cost)
            return
        assert self.service.experiments.start(experiment.key).status == "running"
        experiment.status = "running"
        experiment.ran_in_period = self.model.period
        self.model.committed += cost

    def pause(self, name: str) -> None:
        if experiment := self.known(name, self.service.pause, "running"):
            self.service.experiments.pause(experiment.key)
            experiment.status = "paused"

    def resume(self, name: str) -> None:
        if experiment := self.known(name, self.service.resume, "paused"):
            self.service.experiments.resume(experiment.key)
            experiment.status = "running"

    def stop(self, name: str, promote: str | None) -> None:
        if experiment := self.known(name, self.service.stop, "running", "paused"):
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

    def new_period(self, budget: float) -> None:
        nano = int(budget * 10**9)
        if self.model.carried() > nano:
            with pytest.raises(InsufficientBudgetError):
                self.service.firm.set(budget=budget)
        else:
            self.service.firm.set(budget=budget)
            self.model.open_period(nano)

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
            experiment.clicks += value

    def reward_unknown(self, value: int) -> None:
        self.service.reward("f" * 32, value)

    def erase(self, visitor: str) -> None:
        expected, exhausted = {}, []
        for experiment in self.model.experiments.values():
            decision = experiment.by_visitor.pop(visitor, None)
            if (
                experiment.group
                and self.model.members.get((experiment.group, visitor)) == experiment.key
            ):
                del self.model.members[experiment.group, visitor]
            if decision is None:
                continue
            decision.erased = True
            risk = self.risk(experiment, visitor)
            assert risk == 0 if decision.uniform else risk <= experiment.nano
            if experiment.strategy == "constant" and not decision.uniform:
                assert risk == experiment.nano
            again = experiment.live or (
                experiment.group is not None and experiment.ran_in_period == self.model.period
            )
            if risk and again and not experiment.exhausted:
                if risk <= self.model.budget - self.model.committed:
                    self.model.committed += risk
                    expected[experiment.key] = risk
                else:
                    exhausted.append(experiment.key)
                    for other in self.model.experiments.values():
                        same = experiment.group and other.group == experiment.group
                        other.exhausted |= bool(other is experiment or same)
        outcome = self.service.visitors.erase([visitor])
        assert (outcome.debits_nano, outcome.exhausted) == (expected, exhausted)

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
        barred = False
        if experiment.group is not None:
            owner = self.model.members.setdefault((experiment.group, visitor), experiment.key)
            barred = owner != experiment.key
        uniform = (
            barred
            or experiment.status == "paused"
            or experiment.exhausted
            or segment not in ("a", "b")
        )
        decision = ModelDecision(answer.id, answer.arm, segment, barred, uniform)
        experiment.by_visitor[visitor] = decision
        experiment.shows += 1
        self.model.decisions[answer.id] = (experiment, decision)

    def risk(self, experiment: ModelExperiment, visitor: str) -> int:
        with self.service._store.read() as connection:
            identity = bytes.fromhex(self.service.experiments.get(experiment.key).id)
            hashed = visitor_hash(self.service._key, identity, visitor)
            risk: int = connection.execute(
                select(decisions.c.risk_nano).where(
                    decisions.c.experiment_id == identity, decisions.c.visitor == hashed
                )
            ).scalar_one()
            return risk

    def teardown(self) -> None:
        firm = self.service.firm.current()
        assert (firm.budget_nano, firm.committed_nano) == (self.model.budget, self.model.committed)
        for experiment in self.model.experiments.values():
            stored = self.service.experiments.get(experiment.key)
            assert stored.status == experiment.status
            assert stored.exhausted == experiment.exhausted
            cells = self.service.experiments.counts(experiment.key)
            assert sum(cell.shows for cell in cells) == experiment.shows
            assert sum(cell.clicks for cell in cells) == experiment.clicks
        self.check_risks()
        assert self.service.ledger.verify().problem is None
        self.close()

    def check_risks(self) -> None:
        """Every stored risk is what the model allows: none where the answer had to be uniform."""
        with self.service._store.read() as connection:
            stored = connection.execute(select(decisions.c.id, decisions.c.risk_nano)).all()
        assert len(stored) == len(self.model.decisions)
        for identity, risk in stored:
            experiment, decision = self.model.decisions[identity.hex()]
            if decision.erased:
                assert risk is None
            elif decision.uniform:
                assert risk == 0
            elif experiment.strategy == "constant":
                assert risk == experiment.nano
            else:
                assert 0 <= risk <= experiment.nano

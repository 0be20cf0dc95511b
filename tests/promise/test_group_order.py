"""Experiments of one layer: what is shown of both together keeps the layer's price, in any order."""

from __future__ import annotations

from fractions import Fraction
from itertools import product

from tests.promise.support import MOST, entries_of, rows_of, taught
from tests.service.support import serving

from deniable.privacy.exact import exp_floor
from deniable.service.experiment_state import ExperimentState
from deniable.service.service import Deniable
from deniable.storage import experiments
from deniable.storage.records import Role

BUDGET = exp_floor(10**9)


def layered(service: Deniable) -> None:
    """Ten arms and two arms in one layer, half of the slots each; both know their best arm."""
    for key, count in (("ten", 10), ("two", 2)):
        arms = [f"{key}{arm}" for arm in range(count)]
        service.experiments.create(
            key, arms=arms, segments=["s", "t"], budget=1, strategy="constant", layer="page"
        )
        service.experiments.start(key, share=0.5)
        taught(service, key, {"s": f"{key}0", "t": f"{key}0"}, visitors=200)


def test_the_joint_ratio_is_within_the_price_of_the_layer_in_exact_fractions() -> None:
    """Every pair of arms, every pair of segments, every pair of tables, every slot."""
    with serving("memory:", budget=1) as service:
        layered(service)
        assert service.firm.current().committed_nano == 10**9
        rows = {key: rows_of(service, key) for key in ("ten", "two")}
    for member, other in (("ten", "two"), ("two", "ten")):
        # Of the other experiment this visitor sees the neutral row, whatever the segment.
        neutral = rows[other][0]
        worst = Fraction(0)
        for mine, theirs in product(rows[member], repeat=2):
            for arm, shown in product(range(len(mine)), range(len(neutral))):
                joint = Fraction(mine[arm] * neutral[shown], theirs[arm] * neutral[shown])
                worst = max(worst, joint)
        assert Fraction(3, 2) < worst <= BUDGET  # it did learn


def test_first_come_would_exceed_it() -> None:
    """The same tables, if the order of pages decided membership: e^1.46."""
    with serving("memory:", budget=1) as service:
        layered(service)
        rows = {key: rows_of(service, key) for key in ("ten", "two")}
    learned = {key: max(found, key=lambda row: row[0]) for key, found in rows.items()}
    first_ten = Fraction(learned["ten"][0] * rows["two"][0][1], MOST**2)
    first_two = Fraction(rows["ten"][0][0] * learned["two"][1], MOST**2)
    assert first_ten / first_two > exp_floor(1_459_000_000)


def test_a_visitor_is_a_member_of_one_experiment_whoever_asks_first_and_as_what() -> None:
    with serving("memory:", budget=1) as service:
        layered(service)
        visitors = [f"v{i}" for i in range(300)]
        service.decide_batch("ten", [(v, "s") for v in visitors[:150]])
        service.decide_batch("two", [(v, "t") for v in visitors])
        service.decide_batch("ten", [(v, "t") for v in visitors[150:]])
        roles = {}
        for key in ("ten", "two"):
            with service._store.read() as connection:
                found = experiments.by_key(connection, key)
            state = ExperimentState(found, None, None, service._key, differences=[])
            roles[key] = [state.role(visitor) for visitor in visitors]
            stored = [role for _, role, s, _ in entries_of(service, key) if s >= 0][200 * 2 :]
            assert stored.count(Role.MEMBER) == roles[key].count(Role.MEMBER)
    for one, other in zip(roles["ten"], roles["two"], strict=True):
        assert {one, other} == {Role.MEMBER, Role.OTHER_SLOT}

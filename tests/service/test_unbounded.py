"""The bandit without a bound between rows, served to everybody alike: risk 0, replayed by the audit."""

from __future__ import annotations

import pytest

import deniable
from deniable.errors import InvalidArgumentError
from deniable.privacy.tables import decoded_table

pytestmark = pytest.mark.usefixtures("strict_audits", "fixed_entropy")


def test_one_bandit_for_everybody_learns_commits_nothing_and_is_replayed() -> None:
    with deniable.open("memory:") as service:
        service.firm.set(budget=1)
        service.experiments.create("e", arms=["x", "y", "z"], strategy="unbounded")
        service.experiments.start("e")
        for number in range(600):
            decision = service.decide("e", f"v{number}")
            if decision.arm == "y" or number % 3 == 0:
                service.reward(decision.id, 1)
        last = decoded_table(service.experiments.tables("e")[-1].rows, 3)
        assert last.rows[0][1] > 0.9 * 2**64
        assert last.rows == (last.unlisted,)
        assert service.audits.run("e").sound
        assert service.audits.firm().sound
        assert service.experiments.get("e").budget_nano == 0


def test_segments_are_refused_because_nothing_would_protect_them() -> None:
    with deniable.open("memory:") as service:
        rows = {"arms": ["x", "y"], "segments": ["a", "b"], "budget": 0}
        with pytest.raises(InvalidArgumentError, match="no bound between rows"):
            service.experiments.create("e", strategy="unbounded", **rows)  # type: ignore[arg-type]
        service.experiments.create("e", strategy="joint", **rows)  # type: ignore[arg-type]
        with pytest.raises(InvalidArgumentError, match="no bound between rows"):
            service.experiments.replan({"e": (0, "unbounded")})
        with pytest.raises(InvalidArgumentError, match="no bound between rows"):
            service.experiments.redraft("e", strategy="unbounded")

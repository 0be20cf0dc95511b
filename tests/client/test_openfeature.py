"""Our OpenFeature provider against a client that only notes what it is asked."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, cast

import pytest
from openfeature.evaluation_context import EvaluationContext
from openfeature.track import TrackingEventDetails

from deniable.client import Client, Decision, ServiceError, openfeature
from deniable.client.openfeature import DeniableProvider


class Noting:
    """Decides by name, and notes rewards and questions."""

    def __init__(self) -> None:
        self.rewards: list[object] = []
        self.asked: list[str] = []

    def decide(self, experiment: str, visitor: str, segment: str | None) -> Decision:
        return Decision(f"{experiment} {visitor}", f"arm of {segment}")

    def reward_batch(self, rewards: Iterable[object]) -> None:
        self.rewards += rewards

    def stored(self, visitor: str) -> dict[str, Decision]:
        self.asked.append(visitor)
        return {"banner": Decision(f"stored {visitor}", "x")}


@pytest.fixture
def noting() -> Noting:
    return Noting()


def provider(noting: Noting, **more: Any) -> DeniableProvider:
    return DeniableProvider(cast(Client, noting), **more)


def test_the_arm_is_value_and_variant(noting: Noting) -> None:
    context = EvaluationContext("v", {"kind": "new"})
    found = provider(noting, segment_attribute="kind").resolve_string_details("shop", "-", context)
    assert (found.value, found.variant) == ("arm of new", "arm of new")
    assert found.flag_metadata == {"decision": "shop v"}


def test_events_are_rewards(noting: Noting) -> None:
    """By the list of events, else by the experiment's own name; 1, or the value that came."""
    made = provider(noting, events={"purchase": ["shop", "cart"]})
    context = EvaluationContext("v")
    for flag in ("shop", "cart"):
        made.resolve_string_details(flag, "-", context)
    made.track(
        "purchase", context, TrackingEventDetails(value=12.5, attributes={"metric": "spent"})
    )
    made.track("shop", context)
    made.track("cart", context, TrackingEventDetails(value=0.0))
    made.track("nothing", context)
    assert noting.rewards == [
        ("shop v", 12.5, "spent"),
        ("cart v", 12.5, "spent"),
        ("shop v", 1.0, None),
        ("cart v", 0.0, None),
    ]


def test_old_decisions_are_asked_for(noting: Noting, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only so many are remembered, the oldest go first; the service has them all."""
    monkeypatch.setattr(openfeature, "REMEMBERED", 2)
    made = provider(noting)
    for visitor in ("v-0", "v-1", "v-0", "v-2"):
        made.resolve_string_details("banner", "-", EvaluationContext(visitor))
    for visitor in ("v-0", "v-1", "v-2"):
        made.track("banner", EvaluationContext(visitor))
    assert noting.asked == ["v-1"]
    assert [cast(Any, reward)[0] for reward in noting.rewards] == [
        "banner v-0",
        "stored v-1",
        "banner v-2",
    ]


def test_a_reward_that_fails_is_logged(
    noting: Noting, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_rewards: object) -> None:
        raise ServiceError(503, "busy", "no")

    monkeypatch.setattr(noting, "reward_batch", refuse)
    provider(noting).track("banner", EvaluationContext("secret-visitor"))
    assert "a reward was not sent: ServiceError" in caplog.text
    assert "secret" not in caplog.text

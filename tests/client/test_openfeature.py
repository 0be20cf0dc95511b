"""Our OpenFeature provider against a client that only notes what it is asked."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, cast

import pytest
from openfeature.evaluation_context import EvaluationContext
from openfeature.exception import InvalidContextError
from openfeature.track import TrackingEventDetails

from deniable.client import Client, Decision, ServiceError, openfeature
from deniable.client.openfeature import DeniableProvider


class Noting:
    """Decides by name, and notes rewards and questions."""

    def __init__(self) -> None:
        self.rewards: list[object] = []
        self.asked: list[str] = []

    def decide(
        self, experiment: str, visitor: str, segment: str | None, *, context: str | None
    ) -> Decision:
        place = "" if context is None else f" on {context}"
        return Decision(f"{experiment} {visitor}{place}", f"arm of {segment}{place}")

    def reward_batch(self, rewards: Iterable[object]) -> None:
        self.rewards += rewards

    def stored(self, visitor: str, _context: str | None) -> dict[str, Decision]:
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


def test_an_event_rewards_the_decision_of_its_context(noting: Noting) -> None:
    made = provider(noting)
    for device in ("phone", "tv"):
        visitor = EvaluationContext("v", {"context": device})
        assert made.resolve_string_details("hero", "x", visitor).value == f"arm of None on {device}"
    made.track("hero", EvaluationContext("v", {"context": "phone"}))
    assert noting.rewards == [("hero v on phone", 1.0, None)]
    with pytest.raises(InvalidContextError, match="context: expected text"):
        made.resolve_string_details("hero", "x", EvaluationContext("v", {"context": 3}))

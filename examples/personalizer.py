"""A rank/reward API in the shape of the retired Azure Personalizer, with Deniable behind it.

Two calls, as clients of that service know them:

- `POST /personalizer/v1.0/rank` with `contextFeatures`, `actions` and perhaps an `eventId` answers 201
  with `rewardActionId`, the action to show;
- `POST /personalizer/v1.0/events/{eventId}/reward` with `value` answers 204.

The context says who the visitor is (`visitor`) and the segment (`segment`). The model behind it is as
small as a model can be: the mean reward of each action in each segment. Its scores go to an experiment
of the strategy "gate". Answers have no probabilities: those of a segment would name it.

`python examples/personalizer.py` ranks for some visitors. `personalizer(service)` is an application for
any ASGI server.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Sequence
from math import e
from random import Random
from typing import Annotated, Any

import httpx2 as httpx
from fastapi import FastAPI, HTTPException
from pydantic import BaseModel, Field

import deniable
from deniable.audit.exact import exact_proof

EXPERIMENT = "personalizer"
EVERY = 100
"""Rewards after which the model's scores go to the gate."""

EVENTS = 100_000
"""Events that wait for their reward; older ones have expired."""


class Action(BaseModel):
    """Something that can be shown."""

    id: str


class Rank(BaseModel):
    """A rank request."""

    actions: Annotated[list[Action], Field(min_length=1)]
    contextFeatures: list[dict[str, Any]] = []  # noqa: N815 - as the API calls it
    excludedActions: list[str] = []  # noqa: N815
    eventId: str | None = None  # noqa: N815


class Reward(BaseModel):
    """What came of it, 0 to 1."""

    value: Annotated[float, Field(ge=0, le=1)]


class Means:
    """The mean reward of each action in each segment, both starting from one reward of two."""

    def __init__(self, segments: Sequence[str], actions: Sequence[str]) -> None:
        self._sums = {segment: {action: [1.0, 2.0] for action in actions} for segment in segments}

    def learn(self, segment: str | None, action: str, value: float) -> None:
        """Take in one reward; of a segment that is not listed, nothing."""
        if segment in self._sums:
            cell = self._sums[segment][action]
            cell[0] += value
            cell[1] += 1

    def scores(self) -> dict[str, dict[str, float]]:
        """Segment -> action -> its mean."""
        return {
            segment: {action: total / count for action, (total, count) in row.items()}
            for segment, row in self._sums.items()
        }


def personalizer(service: deniable.Deniable) -> FastAPI:
    """The two routes on an experiment of the strategy "gate", whose arms are the actions."""
    experiment = service.experiments.get(EXPERIMENT)
    actions = {arm.key for arm in experiment.arms}
    model = Means(experiment.segments, sorted(actions))
    events: OrderedDict[str, tuple[str, str | None, str]] = OrderedDict()
    rewards = 0
    app = FastAPI()

    @app.post("/personalizer/v1.0/rank", status_code=201)
    def rank(wanted: Rank) -> dict[str, Any]:
        if {action.id for action in wanted.actions} != actions or wanted.excludedActions:
            raise HTTPException(400, "the actions are those of the experiment, all of them")
        context = {name: value for part in wanted.contextFeatures for name, value in part.items()}
        if not isinstance(context.get("visitor"), str):
            raise HTTPException(400, "contextFeatures must say who the visitor is")
        shown = service.decide(EXPERIMENT, context["visitor"], context.get("segment"))
        event = wanted.eventId or shown.id
        events[event] = (shown.id, context.get("segment"), shown.arm)
        if len(events) > EVENTS:
            events.popitem(last=False)
        return {
            "ranking": [{"id": shown.arm}, *({"id": one} for one in sorted(actions - {shown.arm}))],
            "eventId": event,
            "rewardActionId": shown.arm,
        }

    @app.post("/personalizer/v1.0/events/{event}/reward", status_code=204)
    def reward(event: str, given: Reward) -> None:
        nonlocal rewards
        decision, segment, action = events.pop(event, ("", None, ""))
        if not decision:  # unknown, or rewarded already: answered the same way
            return
        service.reward(decision, given.value)
        model.learn(segment, action, given.value)
        rewards += 1
        if rewards % EVERY == 0:
            service.scores.put(EXPERIMENT, model.scores())

    return app


def prepared(service: deniable.Deniable) -> FastAPI:
    """A new experiment with three articles and two segments, started."""
    service.firm.set(budget=1)
    service.experiments.create(
        EXPERIMENT,
        arms=["news", "sports", "music"],
        segments=["morning", "evening"],
        budget=1,
        strategy="gate",
    )
    service.experiments.start(EXPERIMENT)
    return personalizer(service)


LIKED = {"morning": "news", "evening": "music"}


async def visit(app: FastAPI, visitors: int, rng: Random) -> list[int]:
    """Visitors one by one; returns 1 where the liked article was shown."""
    hits = []
    transport = httpx.ASGITransport(app)
    async with httpx.AsyncClient(transport=transport, base_url="http://ranker") as client:
        for number in range(visitors):
            segment = rng.choice(list(LIKED))
            asked = {
                "contextFeatures": [{"visitor": f"v-{number}"}, {"segment": segment}],
                "actions": [{"id": "news"}, {"id": "sports"}, {"id": "music"}],
            }
            answer = (await client.post("/personalizer/v1.0/rank", json=asked)).json()
            hit = int(answer["rewardActionId"] == LIKED[segment])
            value = float(rng.random() < (0.5 if hit else 0.1))
            path = f"/personalizer/v1.0/events/{answer['eventId']}/reward"
            (await client.post(path, json={"value": value})).raise_for_status()
            hits.append(hit)
    return hits


def main() -> None:
    """Rank for 1,500 visitors, and say how often the liked article was shown."""
    with deniable.open("memory:") as service:
        hits = asyncio.run(visit(prepared(service), 1500, Random(1)))
        first, last = hits[:300], hits[-300:]
        kept = all(proof.holds for proof in exact_proof(service.audits.promise(EXPERIMENT)))
    print(
        f"liked article shown: first {sum(first) / 300:.0%}, last {sum(last) / 300:.0%} of visitors"
    )
    print(f"expected with the best table at a budget of 1: {e / (1 + e):.0%}")
    print(f"The promise is {'kept by every table' if kept else 'BROKEN'}.")


if __name__ == "__main__":
    main()

"""A shop of three pages, each of which shows one of three arms. Look at it on http://127.0.0.1:8001 with
`granian --interface asgi --factory --port 8001 examples/shop.py:private_shop`.

The shop knows who expects a child, from what was bought before. It shows that segment other things,
because it sells more. Whoever reads the page sees the arm; a third-party script does that for a living.
"""

import html
from collections import Counter
from collections.abc import Callable
from random import Random
from typing import TypeAlias

import fastapi
from fastapi.responses import HTMLResponse

import deniable
from deniable.service.service import Deniable

SEGMENTS = ("expecting", "everybody else")
PAGES = {
    "": ("banner", ("nursery", "garden", "cameras")),
    "product": ("advice", ("pram", "barbecue", "tripod")),
    "checkout": ("coupon", ("nappies", "charcoal", "batteries")),
}
"""Path -> (experiment, arms)."""

Choose: TypeAlias = Callable[[str, str, str], tuple[str, str]]
"""(experiment, visitor, segment) -> (decision, arm)."""
Reward: TypeAlias = Callable[[str, int], None]
"""Counts a click, or none, for a decision."""


def shop(choose: Choose, segment_of: Callable[[str], str]) -> fastapi.FastAPI:
    """The shop. The visitor comes with the cookie; the segment never leaves this function."""
    app = fastapi.FastAPI(openapi_url=None)

    def page(path: str, visitor: str) -> HTMLResponse:
        experiment, _ = PAGES[path]
        decision, arm = choose(experiment, visitor, segment_of(visitor))
        links = " ".join(f'<a href="/{other}">{other or "home"}</a>' for other in PAGES)
        shown = f'<p class="{experiment}" data-decision="{decision}">{html.escape(arm)}</p>'
        return HTMLResponse(f"<!doctype html><title>Shop</title><nav>{links}</nav>{shown}")

    for path in PAGES:

        def answer(request: fastapi.Request, path: str = path) -> HTMLResponse:
            return page(path, request.cookies.get("visitor", "somebody"))

        app.add_api_route(f"/{path}", answer)
    return app


def own_bandit(rng: Random) -> tuple[Choose, Reward]:
    """What shops do today: the arm that sold best to the segment, one visit in ten at random."""
    clicks: Counter[tuple[str, str, str]] = Counter()
    shows: Counter[tuple[str, str, str]] = Counter()
    pending: dict[str, tuple[str, str, str]] = {}

    def choose(experiment: str, _visitor: str, segment: str) -> tuple[str, str]:
        arms = next(arms for name, arms in PAGES.values() if name == experiment)

        def rate(arm: str) -> float:
            cell = experiment, segment, arm
            return (clicks[cell] + 1) / (shows[cell] + 2)

        arm = rng.choice(arms) if rng.random() < 0.1 else max(arms, key=rate)
        decision = str(len(pending))
        pending[decision] = experiment, segment, arm
        return decision, arm

    def reward(decision: str, value: int) -> None:
        shows[pending[decision]] += 1
        clicks[pending[decision]] += value

    return choose, reward


def with_deniable(service: Deniable, budget: float) -> tuple[Choose, Reward]:
    """The same shop with a budget for all its pages together."""
    service.firm.set(budget=budget)
    for experiment, arms in PAGES.values():
        service.experiments.create(
            experiment, arms=arms, segments=SEGMENTS, budget=budget / len(PAGES)
        )
        service.experiments.start(experiment)

    def choose(experiment: str, visitor: str, segment: str) -> tuple[str, str]:
        decision = service.decide(experiment, visitor, segment)
        return decision.id, decision.arm

    return choose, service.reward


def private_shop() -> fastapi.FastAPI:
    """The shop with a budget, on a store in memory."""
    choose, _ = with_deniable(deniable.open("memory:"), budget=1)
    return shop(choose, lambda visitor: SEGMENTS[len(visitor) % 2])

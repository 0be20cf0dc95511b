"""A tracker on the pages of a shop guesses who expects a child: today, and with Deniable.

The tracker sees what a third-party tracker sees: the arm, nothing else. One visitor in three has told it
the truth elsewhere (a panel, a leak, a login with an advertiser). From those it learns how often each
arm meets each segment, and guesses the segment of all others by Bayes' rule.
"""

import asyncio
import math
import re
from collections import Counter
from random import Random
from typing import TypeAlias

import httpx2 as httpx

import deniable
from shop import PAGES, SEGMENTS, Choose, Reward, own_bandit, shop, with_deniable

VISITORS = 1500
BUDGET = 1.0
LIKED = {"expecting": 0, "everybody else": 1}
"""Segment -> the position of the arm that it clicks on with 30%; on the others with 5%."""


Seen: TypeAlias = list[tuple[str, tuple[str, ...]]]
"""(segment, arms seen) of each visitor."""


async def browse(choose: Choose, reward: Reward, rng: Random) -> tuple[Seen, int]:
    """Everybody opens three pages. Returns what was seen, and the number of clicks."""
    truth = {f"visitor-{n}": rng.choice(SEGMENTS) for n in range(VISITORS)}
    transport = httpx.ASGITransport(shop(choose, truth.__getitem__))
    seen: Seen = []
    clicks = 0
    async with httpx.AsyncClient(transport=transport, base_url="http://shop") as browser:
        for visitor, segment in truth.items():
            arms = []
            for path, (_, choices) in PAGES.items():
                page = await browser.get(f"/{path}", headers={"Cookie": f"visitor={visitor}"})
                found = re.search(r'data-decision="(\w+)">(\w+)<', page.text)
                assert found is not None
                decision, arm = found.groups()
                liked = choices.index(arm) == LIKED[segment]
                clicked = int(rng.random() < (0.3 if liked else 0.05))
                reward(decision, clicked)
                clicks += clicked
                arms.append(arm)
            seen.append((segment, tuple(arms)))
    return seen, clicks


def guessed(seen: Seen) -> float:
    """The share of visitors outside of the panel whose segment the tracker guesses, both kinds alike."""
    panel, others = seen[::3], [item for at, item in enumerate(seen) if at % 3]
    met = Counter((segment, page, arm) for segment, arms in panel for page, arm in enumerate(arms))
    told = Counter(segment for segment, _ in panel)

    def likelihood(segment: str, arms: tuple[str, ...]) -> float:
        pages = enumerate(arms)
        return math.prod((met[segment, page, arm] + 1) / (told[segment] + 3) for page, arm in pages)

    right = Counter(
        segment
        for segment, arms in others
        if segment == max(SEGMENTS, key=lambda guess: likelihood(guess, arms))
    )
    size = Counter(segment for segment, _ in others)
    return sum(right[segment] / size[segment] for segment in SEGMENTS) / len(SEGMENTS)


def told(shop_name: str, seen: Seen, clicks: int) -> None:
    """Print a line about one shop."""
    rate = clicks / (len(seen) * len(PAGES))
    print(f"{shop_name:<15} right for {guessed(seen):.0%} of the visitors   {rate:.0%} clicks")


def main() -> None:
    """Let the tracker play against both shops."""
    print("Two kinds of visitors, as many of each: guessing blindly is right for 50%.")
    told("today", *asyncio.run(browse(*own_bandit(Random(1)), Random(2))))
    with deniable.open("memory:") as service:
        told("with Deniable", *asyncio.run(browse(*with_deniable(service, BUDGET), Random(2))))
    limit = 1 / (1 + math.exp(-BUDGET))
    print(
        f"A budget of {BUDGET:g} promises at most {limit:.0%}, "
        "beyond what the tracker learns from clicks and visits."
    )


if __name__ == "__main__":
    main()

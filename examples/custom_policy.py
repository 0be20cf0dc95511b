"""A policy of your own against Thompson sampling and UCB, free and private."""

import numpy as np

import deniable
from deniable.strategies.custom import UpperConfidence
from deniable.strategies.kernel_rules import Simulated


class ExploreFirst:
    """Show every arm equally often for a while, then the best one for ever."""

    name = "explore-first"

    def __init__(
        self, n_arms: int, n_segments: int, horizon: int, rng: np.random.Generator
    ) -> None:
        self.sums = np.zeros((n_segments, n_arms))
        self.shows = np.zeros((n_segments, n_arms))
        self.enough = horizon / (20 * n_arms * n_segments)

    def choose(self, segment: int) -> int:
        """The arm to show to a visitor of this segment."""
        shows = self.shows[segment]
        if shows.min() < self.enough:
            return int(shows.argmin())
        return int((self.sums[segment] / shows).argmax())

    def update(self, segment: int, arm: int, reward: float) -> None:
        """What came of an arm that was shown."""
        self.shows[segment, arm] += 1
        self.sums[segment, arm] += reward


def main() -> None:
    """Two segments, three arms; the rates change once, and clicks are known 50 visitors later."""
    page = deniable.Environment(
        rates=[[0.30, 0.20, 0.25], [0.20, 0.30, 0.25]],
        horizon=4_000,
        changes=[(3_001, [[0.20, 0.30, 0.25], [0.30, 0.20, 0.25]])],
        delay=50,
    )
    policies: list[Simulated] = [deniable.Perfect(), deniable.Random()]
    for learner in (ExploreFirst, deniable.ThompsonSampling, UpperConfidence):
        policies += [
            deniable.Custom(learner),
            deniable.Custom(learner, budget=1),
        ]
    result = deniable.simulate(page, policies, repetitions=3, seed=1, workers=1)
    for row in result.summary("regret").sort("mean").to_dicts():
        print(f"{row['policy']:<26} {row['mean']:6,.0f} clicks lost, risk {row['risk_cap']:g}")


if __name__ == "__main__":
    main()

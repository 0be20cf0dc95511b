"""Run policies against each other on known click rates; the same seed gives the same results."""

import deniable
from deniable.strategies.kernel_rules import Simulated


def main() -> None:
    """Simulate 100,000 visitors of a two-arm page, 20 times for each policy."""
    page = deniable.Environment([0.324, 0.295], horizon=100_000)
    policies: list[Simulated] = [
        deniable.Constant(1),
        deniable.Dynamic(1),
        deniable.Random(),
        deniable.Perfect(),
    ]
    result = deniable.simulate(page, policies, repetitions=20, seed=1, workers=1)
    for row in result.summary("clicks").to_dicts():
        print(
            f"{row['policy']:<14} {row['mean']:9,.0f} clicks ({row['low']:,.0f} to {row['high']:,.0f})"
        )


if __name__ == "__main__":
    main()

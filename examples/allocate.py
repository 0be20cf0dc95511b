"""Divide one firm budget over experiments of different size, with a proof of how good it is."""

import deniable


def main() -> None:
    """Divide 4 nats over three experiments, and say how far from optimal that could be."""
    portfolio = deniable.Portfolio.from_sizes(
        arms=[2, 2, 5], visitors=[100_000, 400_000, 1_000_000], segments=[2, 2, 3]
    )
    found = deniable.allocate(portfolio, firm_budget=4)
    for name, strategy, budget in zip(portfolio.ids, found.strategies, found.budgets, strict=True):
        print(f"experiment {name}: {budget:.4f} nats, {strategy}")
    print(found.certificate)
    print(f"within tolerance: {found.certified}")


if __name__ == "__main__":
    main()

"""Plan one experiment: what a privacy budget means to a tracker, and what it costs."""

import deniable


def main() -> None:
    """Compare three budgets for a two-arm page with 100,000 visitors."""
    print("budget  a tracker's belief, from 20%  regret bound by strategy")
    for budget in (0.5, 1.0, 2.0):
        plan = deniable.plan(n_arms=2, horizon=100_000, n_segments=1, budget=budget)
        bounds = ", ".join(f"{name} {one.regret:,.0f}" for name, one in plan.strategies.items())
        print(f"{budget:6}  at most {plan.highest_belief:.1%}                {bounds}")
    advice = deniable.plan(n_arms=2, horizon=100_000, n_segments=1).recommendation
    print(f"recommended: budget {advice.budget:.3g}, {advice.strategy} strategy")


if __name__ == "__main__":
    main()

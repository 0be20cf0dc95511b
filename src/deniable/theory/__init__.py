"""The theory layer: regret bounds, elasticities and best budgets, as pure functions."""

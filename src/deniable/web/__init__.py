"""Pages for people: what budgets buy and cost, what runs, and what the firm has promised."""

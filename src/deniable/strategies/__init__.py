"""One file for each strategy: its tables, its rule, its bound."""

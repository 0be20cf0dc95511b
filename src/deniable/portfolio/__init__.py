"""The portfolio layer: one budget of the firm, divided over its experiments to a certified optimum."""

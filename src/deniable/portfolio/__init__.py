"""The portfolio layer: divides the firm's budget over its experiments, with a certified optimum."""

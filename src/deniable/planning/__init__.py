"""The planner: what a privacy budget buys and costs for one experiment, as numbers and text."""

"""The planner: what a privacy budget buys and costs for one experiment, in numbers and in words."""

"""Planted faults, one by one: each must be noticed by the tests of its layer (`make mutants`)."""

"""The simulator's inner loops, compiled by Numba. Start with `run.py`, which has the entry points."""

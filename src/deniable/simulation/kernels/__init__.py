"""The simulator's inner loops, compiled by Numba. Read `run.py` first: it has the entry points."""

"""The simulator's inner loops, compiled by Numba. Start with `run.py`, which has the entry points."""

from deniable._extras import require

require("numba", extra="simulate")  # plain Python would take hours

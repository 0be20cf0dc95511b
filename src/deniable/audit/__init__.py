"""The audit layer: the tracker as an adversary, and exact and statistical checks of the promise."""

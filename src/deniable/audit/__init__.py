"""The audit layer: the tracker as an adversary, exact and statistical checks of the promise."""

"""The audit layer: the watcher as an adversary, and exact and statistical checks of the promise."""

"""The audit layer: the watcher as an adversary, exact and statistical checks of the promise."""

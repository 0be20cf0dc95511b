"""Policies: how an experiment chooses what to show. `base.py` says what every policy is."""

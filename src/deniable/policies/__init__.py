"""Policies: how an experiment chooses what to show. `base.py` defines the interface."""

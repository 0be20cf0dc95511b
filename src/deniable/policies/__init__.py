"""Policies: how an experiment chooses what to show. One file each, one contract (`contract.py`)."""

"""Limits on what callers may send, and the default store: one place for HTTP, pages and commands."""

from __future__ import annotations

from typing import Final

DEFAULT_STORE: Final = "sqlite:///deniable.db"
"""Where decisions are stored if nothing else is said."""

# -- experiments -----------------------------------------------------------------------------------

MAX_ARMS: Final = 256
MAX_SEGMENTS: Final = 1_000
MAX_CONTEXTS: Final = 50
"""Besides `other`."""
MAX_BUDGET: Final = 40.0
"""Maximum budget in nats. e^40 exceeds what tables in units of 2^-64 can express, so it promises
nothing.
"""
MAX_WEIGHT: Final = 1_000_000
"""Maximum weight of an arm in the neutral row."""
MAX_METRICS: Final = 20
MAX_HOLDOUT: Final = 0.5
MAX_SECONDS: Final = 10 * 366 * 86_400
"""Maximum attribution window."""
MAX_PLANNED_VISITORS: Final = 10**15
MAX_PLAN_HORIZON: Final = 10**12
"""Maximum visitors of a plan: what the simulator can do."""

LONGEST_EXPERIMENT_KEY: Final = 128
"""Also of arms, layers, metrics and listed segments."""
LONGEST_ARM_LABEL: Final = 500
MAX_NOTE: Final = 2_000
MAX_LABEL: Final = 64
"""Of an owner or a tag."""
MAX_TAGS: Final = 20

# -- decisions and rewards --------------------------------------------------------------------------

LONGEST_NAME: Final = 512
"""Maximum characters of a visitor id; longer ones are rejected."""
LARGEST_REWARD: Final = 1_000_000
"""Maximum reward and cap."""

# -- the firm --------------------------------------------------------------------------------------

MAX_NANO: Final = 10**15
"""Maximum of the firm's budget, in nano-nats."""
MAX_DAYS: Final = 3_660
"""Maximum window of the firm's budget."""
LONGEST_REASON: Final = 500
LONGEST_FIRM_NAME: Final = 120
LONGEST_KEY_LABEL: Final = 200
"""Of an API key."""
MOST_ERASED: Final = 1_000
"""Maximum visitors that one request erases."""

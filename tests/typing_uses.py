"""What users of the package write, as their type checker sees it: `make types` checks this file.

Each `type: ignore` is a mistake that must be found. mypy is strict here, so one that it does not find is
an error: an `ignore` that is not used.
"""

from __future__ import annotations

import deniable


def uses() -> None:
    good: float = deniable.Dynamic(budget=1.0).binds_at(n_arms=2)
    bad: str = deniable.Dynamic(budget=1.0).binds_at(n_arms=2)  # type: ignore[assignment]
    deniable.privacy.RandomizedResponse(n_arms="two", risk=1.0)  # type: ignore[arg-type]
    deniable.nothing  # type: ignore[attr-defined]  # noqa: B018
    del good, bad

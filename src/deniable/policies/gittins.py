"""The Gittins index policy: optimal learning for a discounted future. Nothing is promised."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

from deniable._validation import FloatArray
from deniable.errors import InvalidArgumentError
from deniable.policies.contract import IndexRule

LARGEST_DISCOUNT = 0.9999


@dataclass(frozen=True)
class GittinsPolicy:
    """Show the arm with the highest index for a Beta(1, 1) prior; ties are broken at random.

    Attributes:
        discount: weight of the next click, in (0, .9999]; None for 1 - 1/T, at most .9999.

    >>> import numpy as np
    >>> GittinsPolicy().rule(np.full((2, 1), 0.1), 1000).discount
    0.999
    """

    discount: float | None = None

    name: ClassVar[str] = "gittins"
    risk_cap: ClassVar[float] = math.inf

    def __post_init__(self) -> None:
        given = self.discount
        if given is None:
            return
        if isinstance(given, bool) or not 0 < given <= LARGEST_DISCOUNT:
            raise InvalidArgumentError("discount", given, "a number above 0, up to .9999")

    @property
    def label(self) -> str:
        """gittins, with the discount where it was given."""
        return "gittins" if self.discount is None else f"gittins({self.discount:g})"

    def rule(self, rates: FloatArray, horizon: int) -> IndexRule:
        """The index with the discount given, or with the horizon's."""
        if self.discount is not None:
            return IndexRule(self.discount)
        return IndexRule(min(LARGEST_DISCOUNT, max(0.5, 1 - 1 / horizon)))

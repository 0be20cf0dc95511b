"""The two mechanisms that hide a segment's greedy arm, as immutable value objects.

Rows of a matrix are shown arms, columns are greedy arms; each column sums to one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

import numpy as np

from deniable import _validation as check
from deniable._validation import FloatArray
from deniable.privacy.exploration import exploitation_from_risk, exploration_from_risk


class Mechanism(Protocol):
    """The interface of a mechanism."""

    @property
    def n_arms(self) -> int:
        """K, the number of arms."""

    @property
    def exploration(self) -> float:
        """Probability that the shown arm is drawn at random."""

    @property
    def weights(self) -> FloatArray:
        """Distribution of a randomly drawn arm, shape (K,)."""

    @property
    def risks(self) -> FloatArray:
        """Privacy risk of each shown arm, shape (K,)."""

    @property
    def global_risk(self) -> float:
        """The largest of the arms' risks: the mechanism's differential-privacy parameter."""

    @property
    def matrix(self) -> FloatArray:
        """Shown-arm probabilities, shape (K, K): shown arm by greedy arm."""

    def shown_distribution(self, greedy: int) -> FloatArray:
        """Distribution of the shown arm when `greedy` is the greedy arm, shape (K,)."""


@dataclass(frozen=True)
class RandomizedResponse:
    """Symmetric K-ary randomized response: the same risk for every shown arm.

    >>> RandomizedResponse(n_arms=2, risk=1.0).matrix.round(3)
    array([[0.731, 0.269],
           [0.269, 0.731]])
    """

    n_arms: int
    risk: float

    def __post_init__(self) -> None:
        object.__setattr__(self, "n_arms", check.whole("n_arms", self.n_arms, 2))
        object.__setattr__(self, "risk", check.single("risk", check.risk("risk", self.risk)))

    @property
    def exploration(self) -> float:
        """K / (K - 1 + e^risk)."""
        return float(exploration_from_risk(self.n_arms, self.risk))

    @property
    def weights(self) -> FloatArray:
        """1/K for each arm."""
        return np.full(self.n_arms, 1 / self.n_arms)

    @property
    def risks(self) -> FloatArray:
        """The same risk for each arm."""
        return np.full(self.n_arms, self.risk)

    @property
    def global_risk(self) -> float:
        """The risk."""
        return self.risk

    @property
    def matrix(self) -> FloatArray:
        """e^risk / (K - 1 + e^risk) on the diagonal, 1 / (K - 1 + e^risk) off it."""
        floor = np.full((self.n_arms, self.n_arms), self.exploration / self.n_arms)
        floor[np.diag_indices(self.n_arms)] += float(exploitation_from_risk(self.n_arms, self.risk))
        return floor

    def shown_distribution(self, greedy: int) -> FloatArray:
        """Column `greedy` of the matrix, without building it."""
        arm = check.whole("greedy", greedy, 0, self.n_arms - 1)
        shown = np.full(self.n_arms, self.exploration / self.n_arms)
        shown[arm] += float(exploitation_from_risk(self.n_arms, self.risk))
        return shown


@dataclass(frozen=True, eq=False)
class ArmSpecificResponse:
    """Weighted exploration: the shown arm j moves a tracker's odds by at most e^risks[j].

    With c_j = 1 / (e^risk_j - 1) and C their sum, exploration is C / (1 + C) and the weights are
    c_j / C. A risk of 0 is allowed only for all arms at once, which is uniform.

    >>> response = ArmSpecificResponse([0.5, 1, 2])
    >>> round(response.exploration, 3), response.weights.round(3).tolist()
    (0.695, [0.676, 0.255, 0.069])
    """

    risks: FloatArray

    def __init__(self, risks: Sequence[float] | FloatArray) -> None:
        checked = check.arm_budgets("risks", risks).copy()
        checked.flags.writeable = False
        object.__setattr__(self, "risks", checked)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ArmSpecificResponse) and np.array_equal(self.risks, other.risks)

    def __hash__(self) -> int:
        return hash(self.risks.tobytes())

    @property
    def n_arms(self) -> int:
        """K, the number of arms."""
        return int(self.risks.size)

    @cached_property
    def _scaled(self) -> FloatArray:
        """c_j (e^s - 1), where s is the smallest risk; in (0, 1] for all risks."""
        if self.risks[0] == 0:
            return np.ones(self.n_arms)
        smallest = self.risks.min()
        ratio = np.expm1(-smallest) / np.expm1(-self.risks)
        return np.asarray(np.exp(smallest - self.risks) * ratio)

    @cached_property
    def _shares(self) -> tuple[FloatArray, float]:
        """c_j and 1, both divided by 1 + C: drawn at random as arm j, and shown because greedy.

        Both are multiplied by 1 - e^-s, so that neither a tiny risk (huge c) nor a large one (tiny
        c) leaves the range of floats.
        """
        smallest = self.risks.min()
        drawn, one = np.exp(-smallest) * self._scaled, -np.expm1(-smallest)
        total = one + drawn.sum()
        return drawn / total, float(one / total)

    @property
    def exploration(self) -> float:
        """C / (1 + C)."""
        return float(self._shares[0].sum())

    @property
    def weights(self) -> FloatArray:
        """c_j / C."""
        return np.asarray(self._scaled / self._scaled.sum())

    @property
    def global_risk(self) -> float:
        """The largest risk."""
        return float(self.risks.max())

    @property
    def matrix(self) -> FloatArray:
        """c_j / (1 + C) in row j, plus 1 / (1 + C) on the diagonal."""
        drawn, greedy_bonus = self._shares
        result = np.repeat(drawn[:, None], self.n_arms, axis=1)
        result[np.diag_indices(self.n_arms)] += greedy_bonus
        return result

    def shown_distribution(self, greedy: int) -> FloatArray:
        """Column `greedy` of the matrix, without building it."""
        drawn, greedy_bonus = self._shares
        shown = drawn.copy()
        shown[check.whole("greedy", greedy, 0, self.n_arms - 1)] += greedy_bonus
        return shown

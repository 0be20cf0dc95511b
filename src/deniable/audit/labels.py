"""Checks of labels: the service's draws against the chained channel, computed here byte by byte.

This is separate from `deniable.masks`, so that a mistake there does not confirm itself.
"""

from __future__ import annotations

import hashlib
import hmac
import math
from collections.abc import Mapping, Sequence
from fractions import Fraction

from deniable._types import JsonObject
from deniable.audit.checks import Check
from deniable.privacy.exact import exp_floor

SPACE = 2**64
SUSPICIOUS = 1e-9
"""Chance at which labels that keep the channel fail."""


def expected_label(mask: JsonObject, key: bytes, visitor: str, group: int | None) -> int:
    """Return the number of the label that a visitor must get, by the chained definition alone.

    Args:
        mask: the detail of its entry.
        key: of the mask.
        visitor: the id.
        group: number of the first known group; None if no segment is known.
    """
    labels = len(mask["groups"])
    own, other = int(mask["own"], 16), int(mask["other"], 16)
    groups = ["\x1e".join(members) for members in _members(mask)]
    channel = hashlib.sha256(
        "\x1d".join([*groups, mask["own"], mask["other"]]).encode()
    ).hexdigest()
    place = "-" if group is None else str(group)
    fields = ("deniable-mask-1", mask["mask"], str(mask["version"]), channel[:16], mask["period"])
    message = "\x1f".join([*fields, visitor, place]).encode()
    u = int.from_bytes(hmac.digest(key, message, "sha256")[:8], "big")
    chances = [own if label == group else other for label in range(labels)]
    if group is None:
        chances = [SPACE // labels + (label < SPACE % labels) for label in range(labels)]
    for label, chance in enumerate(chances):
        if u < chance:
            return label
        u -= chance
    return labels - 1


def _members(mask: JsonObject) -> list[list[str]]:
    groups = mask["groups"]
    return list(groups.values()) if isinstance(groups, Mapping) else [pair[1] for pair in groups]


def channel_check(mask: JsonObject, budget_nano: int) -> Check:
    """Check in fractions that the chained channel keeps the budget that the mask committed."""
    labels = len(mask["groups"])
    own, other = int(mask["own"], 16), int(mask["other"], 16)
    low, high = SPACE // labels, -(-SPACE // labels)
    ratios = [Fraction(own, other), Fraction(own, low), Fraction(high, other)]
    sound = own + (labels - 1) * other == SPACE and max(ratios) <= exp_floor(budget_nano)
    return Check(
        "channel",
        "kept" if sound else "broken",
        f"Its worst ratio is {float(max(ratios)):.6f}, and e^{budget_nano / 1e9:g} is "
        f"{math.exp(budget_nano / 1e9):.6f}; rows sum to 2^64.",
    )


def shares_check(mask: JsonObject, counts: Sequence[int]) -> Check:
    """Check that the share of each label is one that the channel can give to some mix of segments.

    Args:
        mask: the detail of its entry.
        counts: visitors by label.
    """
    n = sum(counts)
    if not n:
        return Check("shares of labels", "not tested", "Nobody has a label yet.")
    lowest, highest = int(mask["other"], 16) / SPACE, int(mask["own"], 16) / SPACE
    # Hoeffding: labels of different visitors are independent, whatever their segments.
    margin = math.sqrt(math.log(2 * len(counts) / SUSPICIOUS) / (2 * n))
    beyond = [
        label
        for label, count in enumerate(counts)
        if not lowest - margin <= count / n <= highest + margin
    ]
    found = math.sqrt(math.log(100) / (2 * n)) + margin
    return Check(
        "shares of labels",
        "broken" if beyond else "kept",
        f"Every share must be from {lowest:.1%} to {highest:.1%}, give or take {margin:.1%} among "
        f"{n:,} visitors; "
        + (f"that of {len(beyond)} labels is not. " if beyond else "they are. ")
        + f"A share {found:.1%} outside would be found in 99 of 100 audits.",
    )

"""Canaries: what the running service actually answers, tested on a scratch copy of an experiment.

The canaries are visitors of several listed segments and of an unlisted one. Some of them return,
some with a different segment. The answers are compared with the copy's table, with the stored rows
and with the budget. The counts of answers alone also prove a minimum risk. This needs neither table
nor rows, so it detects even a service that misreports both.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from deniable._types import JsonObject
from deniable._validation import FloatArray
from deniable.audit.checks import Check, Checked, broken
from deniable.audit.live_power import cell_limits, noticed_excess, power
from deniable.errors import NANO, BrokenPromiseError, InvalidArgumentError, WrongStateError
from deniable.privacy.exact import SPACE
from deniable.privacy.tables import Table
from deniable.storage.records import SCRATCH_PREFIX

ALPHA = 1e-3
EXCESS = 0.1
"""The report states the power to detect an excess of this many nats."""

BATCH = 1_000
_AGAIN = 10  # one in this many batches is repeated
_MEMBERS = frozenset({"decision", "arm"})
_ID_LEVEL = 1e-9


@dataclass(frozen=True)
class ScratchCopy:
    """The service's description of the copy that it made."""

    key: str
    arms: tuple[str, ...]
    segments: tuple[str, ...]
    budgets_nano: tuple[int, ...]
    active: tuple[int, ...]
    table: Table


class StoredDraw(NamedTuple):
    """A stored decision of the copy, with indices of segment and arm."""

    id: str
    segment: int
    shown: int
    table: int
    role: int


class Service(Protocol):
    """The running service, as seen by canaries."""

    def decide(self, visitors: Sequence[tuple[str, str | None]]) -> list[JsonObject] | None:
        """Return the responses for visitors and their segments; None if they are refused."""

    def stored(self) -> Iterator[StoredDraw]:
        """Yield all stored decisions of the copy, in the order of their ids."""


@dataclass(frozen=True)
class LiveAudit(Checked):
    """The result of `audit_live`.

    Attributes:
        copy: the tested copy.
        visitors: number of canaries per segment.
        counts: answers by row (chosen segments, then unlisted) and arm.
        checks: all checks.
        power: probability that the counts alone would have proven an excess of 0.1 nats.
        noticed: the smallest excess in nats that would have been proven with a probability of 99%.
    """

    copy: ScratchCopy
    visitors: int
    counts: NDArray[np.int64]
    checks: tuple[Check, ...]
    power: float
    noticed: float | None

    @property
    def verdict(self) -> str:
        """The verdict in one sentence."""
        if found := broken(self.checks):
            return f"The promise is NOT kept: {', '.join(found)}."
        return f"The promise is kept in {int(self.counts.sum()):,} answers of the running service."

    @property
    def power_in_words(self) -> str:
        """What would have been detected, in words."""
        budget = max(self.copy.budgets_nano) / NANO
        smallest = "no excess" if self.noticed is None else f"an excess of {self.noticed:g} nats"
        return (
            f"With {self.visitors:,} canaries in each segment, arms shown at {EXCESS:g} nats above the "
            f"budget of {budget:g} would have been noticed with {self.power:.1%}; {smallest} with 99%."
        )

    def to_dict(self) -> JsonObject:
        """Return plain numbers, strings and lists for JSON."""
        return {
            "sound": self.sound,
            "verdict": self.verdict,
            "visitors": self.visitors,
            "counts": self.counts.tolist(),
            "power": self.power,
            "noticed_excess": self.noticed,
            "checks": [asdict(check) for check in self.checks],
        }


def audit_live(
    copy: ScratchCopy,
    service: Service,
    *,
    visitors: int = 100_000,
    most_segments: int = 5,
    alpha: float = ALPHA,
    progress: Callable[[int, int], None] = lambda done, of: None,
) -> LiveAudit:
    """Send canaries to a scratch copy and check the responses.

    Args:
        copy: a copy made for this audit.
        service: the service to test.
        visitors: number of canaries per segment.
        most_segments: maximum number of listed segments; those with the largest and smallest
            probabilities first.
        alpha: probability of accusing a sound service.
        progress: callback that receives the number of responses and the total.

    Raises:
        WrongStateError: the target is not a scratch copy. Nothing is drawn on it.
    """
    if not copy.key.startswith(SCRATCH_PREFIX):
        raise WrongStateError(f"{copy.key!r} is not a scratch copy: canaries use nothing else")
    if visitors < BATCH:
        raise InvalidArgumentError("visitors", visitors, f"{BATCH:,} or more in each segment")
    chosen = [*chosen_segments(copy.table, most_segments), -1]
    sent = _Canaries(copy, service, chosen, visitors)
    sent.send(progress)
    low, high = cell_limits(sent.counts, alpha)
    budget, arms = max(copy.budgets_nano) / NANO, len(copy.active)
    checks = [
        _exact(copy),
        sent.answered_check(),
        sent.again_check(),
        sent.members_check(),
        sent.stored_check(),
        _cells_check(copy, chosen, low, high),
        _counts_check(copy, low, high),
    ]
    return LiveAudit(
        copy=copy,
        visitors=visitors,
        counts=sent.counts,
        checks=tuple(checks),
        power=power(visitors, arms, len(chosen), budget, EXCESS, alpha),
        noticed=noticed_excess(visitors, arms, len(chosen), budget, alpha),
    )


def chosen_segments(table: Table, most: int) -> list[int]:
    """Return the most informative segments: for each arm, those that see it most and least often."""
    if most < 1:
        raise InvalidArgumentError("segments", most, "1 or more")
    found: dict[int, None] = {}
    places = range(len(table.rows))
    for arm in range(table.n_arms):
        found.setdefault(max(places, key=lambda place: table.rows[place][arm]))
        found.setdefault(min(places, key=lambda place: table.rows[place][arm]))
    found.update(dict.fromkeys(places))
    return sorted(list(found)[:most])


class _Canaries:
    """The visitors of one audit, and their responses."""

    def __init__(
        self, copy: ScratchCopy, service: Service, chosen: Sequence[int], visitors: int
    ) -> None:
        self._copy, self._service = copy, service
        self._chosen = chosen
        self._names = [copy.segments[place] if place >= 0 else None for place in chosen]
        self._n = visitors * len(chosen)
        self._mark = os.urandom(8).hex()
        self._arms = {arm: place for place, arm in enumerate(copy.arms)}
        self._ids = np.zeros((self._n, 16), dtype=np.uint8)
        self._shown = np.full(self._n, -1, dtype=np.int64)
        self._refused = [0] * len(chosen)
        self._changed = self._repeated = 0
        self._odd: set[str] = set()
        self.counts = np.zeros((len(chosen), len(copy.arms)), dtype=np.int64)

    def send(self, progress: Callable[[int, int], None]) -> None:
        """Request decisions for all of them, and for some a second time."""
        # One by one, so that a refusal concerns a single segment.
        for place, segment in enumerate(self._names):
            if self._service.decide([(f"first-{self._mark}-{place}", segment)]) is None:
                self._refused[place] += 1
        if all(self._refused):
            raise WrongStateError("the service refuses all canaries of its scratch copy")
        if any(self._refused):
            return
        for start in range(0, self._n, BATCH):
            here = range(start, min(start + BATCH, self._n))
            answers = self._service.decide([(self._name(i), self._segment(i)) for i in here])
            self._take(here, answers)
            if start // BATCH % _AGAIN == 0:  # with the next visitor's segment
                self._again(here, 1)
            progress(here[-1] + 1, self._n)
        self._again(range(min(BATCH, self._n)), 0)
        for place in range(len(self._chosen)):
            shown = self._shown[place :: len(self._chosen)]
            known = shown[shown >= 0]
            self.counts[place] = np.bincount(known, minlength=len(self._arms))

    def _name(self, number: int) -> str:
        return f"canary-{self._mark}-{number}"

    def _segment(self, number: int) -> str | None:
        return self._names[number % len(self._names)]

    def _take(self, here: range, answers: list[JsonObject] | None) -> None:
        if answers is None:
            self._refused[here[0] % len(self._chosen)] += len(here)
            return
        for number, answer in zip(here, answers, strict=True):
            self._odd |= answer.keys() ^ _MEMBERS
            self._shown[number] = self._arms.get(answer.get("arm", ""), -1)
            self._ids[number] = np.frombuffer(_id(answer), dtype=np.uint8)

    def _again(self, here: range, other: int) -> None:
        wanted = [(self._name(i), self._segment(i + other)) for i in here]
        for number, answer in zip(here, self._service.decide(wanted) or [], strict=False):
            self._repeated += 1
            same_arm = self._shown[number] == self._arms.get(answer.get("arm", ""), -1)
            self._changed += not (same_arm and self._ids[number].tobytes() == _id(answer))

    # -- checks ------------------------------------------------------------------------------

    def answered_check(self) -> Check:
        """Check that no visitor is refused because of a segment."""
        unknown = int((self._shown < 0).sum()) if not any(self._refused) else 0
        if any(self._refused) or unknown:
            why = "were refused" if any(self._refused) else "were answered with an unknown arm"
            return Check("answers", "broken", f"Canaries of some segments {why}.")
        return Check("answers", "kept", "Canaries of all segments were answered.")

    def again_check(self) -> Check:
        """Check that a visitor keeps the arm, whatever segment comes with the next visit."""
        if self._changed:
            sentence = (
                f"{self._changed:,} of {self._repeated:,} repeated visits had another answer."
            )
            return Check("one arm per visitor", "broken", sentence)
        sentence = (
            f"{self._repeated:,} repeated visits had the same answer, whatever their segment."
        )
        return Check("one arm per visitor", "kept", sentence)

    def members_check(self) -> Check:
        """Check that responses contain only the arm and an uninformative id."""
        name = "nothing but the arm"
        if self._odd:
            return Check(name, "broken", f"Answers hold or lack: {', '.join(sorted(self._odd))}.")
        known = np.flatnonzero(self._shown >= 0)
        rows = np.arange(self._n)[known] % len(self._chosen)
        cells = rows * len(self._arms) + self._shown[known]
        p_value = _id_p_value(self._ids[known], cells, self.counts.size)
        told = (
            f"The ids of decisions depend on the segment or arm (p = {p_value:.2g})."
            if p_value < _ID_LEVEL
            else "Answers hold the arm and an id, whose bits depend on neither segment nor arm."
        )
        return Check(name, "broken" if p_value < _ID_LEVEL else "kept", told, p_value)

    def stored_check(self) -> Check:
        """Compare the responses with the stored rows."""
        order = np.lexsort(self._ids.T[::-1])
        answered = {self._ids[i].tobytes(): int(i) for i in order.tolist() if self._shown[i] >= 0}
        found = extra = wrong = 0
        for row in self._service.stored():
            number = answered.pop(bytes.fromhex(row.id), None)
            if number is None:
                extra += 1
                continue
            found += 1
            segment = self._chosen[number % len(self._chosen)]
            as_asked = (segment, int(self._shown[number]), 1, 0)
            wrong += (row.segment, row.shown, row.table, row.role) != as_asked
        extra = max(0, extra - len(self._chosen))  # the initial single requests
        if answered or wrong or extra:
            sentence = (
                f"{len(answered):,} answers are not stored, {wrong:,} are stored otherwise, and "
                f"{extra:,} decisions are stored that nobody asked for."
            )
            return Check("stored as answered", "broken", sentence)
        return Check("stored as answered", "kept", f"{found:,} answers are stored as they are.")


def _id(answer: JsonObject) -> bytes:
    try:
        raw = bytes.fromhex(answer["decision"])
    except (KeyError, TypeError, ValueError):
        raw = b""
    return raw if len(raw) == 16 else bytes(16)


def _id_p_value(ids: NDArray[np.uint8], cells: NDArray[np.int64], n_cells: int) -> float:
    """Test each bit of the ids against the cells by chi-square, times the number of bits."""
    from scipy.special import gammaincc

    total = np.bincount(cells, minlength=n_cells).astype(np.float64)
    best, tested = 1.0, 0
    for byte in range(ids.shape[1]):
        for bit in range(8):
            ones = ids[:, byte] >> bit & 1
            share = float(ones.mean()) if ones.size else 0.0
            if not 0 < share < 1:
                continue  # constant in all ids: the tag of the experiment
            set_in = np.bincount(cells, weights=ones, minlength=n_cells)
            used = total > 0
            away = (set_in - total * share)[used] ** 2 / (total * share * (1 - share))[used]
            degrees = int(used.sum()) - 1
            if degrees:
                best = min(best, float(gammaincc(degrees / 2, away.sum() / 2)))
                tested += 1
    return min(1.0, best * max(tested, 1))


def _exact(copy: ScratchCopy) -> Check:
    try:
        copy.table.check(copy.budgets_nano)
    except BrokenPromiseError as error:
        return Check("exact table", "broken", f"The copied table in exact arithmetic: {error}.")
    return Check("exact table", "kept", "The copied table keeps every budget in exact arithmetic.")


def _cells_check(
    copy: ScratchCopy, chosen: Sequence[int], low: FloatArray, high: FloatArray
) -> Check:
    """Check that every cell's limits contain the table's probability."""
    wanted = np.array([[entry / SPACE for entry in copy.table.row(place)] for place in chosen])
    outside = int(((wanted < low) | (wanted > high)).sum())
    cells = f"{wanted.size} cells of {len(chosen)} segments and {wanted.shape[1]} arms"
    if outside:
        sentence = f"In {outside} of {cells}, arms are not shown as often as the table says."
        return Check("arms as in the table", "broken", sentence)
    return Check("arms as in the table", "kept", f"All {cells} agree with the table, together.")


def _counts_check(copy: ScratchCopy, low: FloatArray, high: FloatArray) -> Check:
    """Check whether the counts alone prove a risk above an arm's budget."""
    with np.errstate(divide="ignore"):
        proven = np.log(low.max(axis=0)) - np.log(high.min(axis=0))
    budgets = np.array(copy.budgets_nano) / NANO
    arm = int((proven - budgets).argmax())
    sentence = (
        f"From the answers alone, a risk of at least {max(float(proven[arm]), 0.0):.3g} nats is "
        f"proven; the promise for {copy.arms[arm]!r} is {budgets[arm]:g}."
    )
    return Check("counts alone", "broken" if proven[arm] > budgets[arm] else "kept", sentence)

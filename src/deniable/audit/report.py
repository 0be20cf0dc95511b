"""The audit of one experiment: all checks with their outcomes, and a verdict for the record."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from deniable._types import JsonObject
from deniable.audit.checks import (
    Check,
    Checked,
    belief_checks,
    broken,
    counted_check,
    draw_checks,
    evidence_checks,
    exact_checks,
    lottery_checks,
    proven_check,
    rule_checks,
)
from deniable.audit.decisions import MEMBER, DecisionLog
from deniable.audit.draws import DrawTest, compare_draws, compare_rows
from deniable.audit.evidence import (
    COUNTS_ALPHA,
    DRAWS_ALPHA,
    LOTTERY_ALPHA,
    POWER,
    Cells,
    Evidence,
    arrays,
    cells_of,
    evidence,
)
from deniable.audit.exact import VersionProof, exact_proof
from deniable.audit.promise import Lottery, Promise
from deniable.audit.trackers import Beliefs, ProvenRisk, proven_risk, realized_beliefs
from deniable.errors import NANO

if TYPE_CHECKING:
    from altair.typing import ChartType


@dataclass(frozen=True)
class Audit(Checked):
    """The result of `audit`.

    Attributes:
        promise: the audited promise.
        made_at: time of the audit.
        decisions: number of decisions considered.
        members: how many of them are of visitors who take part, as the experiment's page counts them.
        checks: all checks.
        proofs: the exact check, by version.
        draws: observed and expected counts, with chi-squares.
        evidence: e-values of draws and lottery, and their power; None without decisions.
        proven: what counts alone prove.
        beliefs: what the strongest tracker came to believe.
        heads: chain -> its length and newest hash, to be noted outside the store.
    """

    promise: Promise
    made_at: datetime
    decisions: int
    members: int
    checks: tuple[Check, ...]
    proofs: tuple[VersionProof, ...]
    draws: tuple[DrawTest, ...] = ()
    evidence: Evidence | None = None
    proven: ProvenRisk | None = None
    beliefs: Beliefs | None = None
    heads: Mapping[str, str] = field(default_factory=dict)

    @property
    def verdict(self) -> str:
        """The verdict in one sentence."""
        if found := broken(self.checks):
            return f"The promise is NOT kept: {', '.join(found)}."
        if not self.decisions:
            return "The promise is kept by design; no visitor has been decided for yet."
        others = self.decisions - self.members
        told = (
            f", {others:,} of them for visitors who do not take part (another slot of the layer, "
            "holdout, paused or erased)"
            if others
            else ""
        )
        return f"The promise is kept, by design and over {self.decisions:,} decisions{told}."

    @property
    def power(self) -> str:
        """What would have been detected, in words."""
        if self.evidence is None:
            return "There are no draws yet that could be off."
        return self.evidence.power.words

    def to_dict(self) -> JsonObject:
        """Return plain numbers, strings and lists for JSON. Segments are numbers, never names."""
        return {
            "experiment": self.promise.name,
            "made_at": self.made_at.isoformat(),
            "budget": self.promise.budget_nano / NANO,
            "strategy": self.promise.strategy,
            "grade": self.promise.grade,
            "sound": self.sound,
            "verdict": self.verdict,
            "decisions": self.decisions,
            "members": self.members,
            "checks": [asdict(check) for check in self.checks],
            "exact": [
                {
                    "version": proof.version,
                    "tables": proof.n_tables,
                    "holds": proof.holds,
                    "arms": [
                        {**arm.to_dict(), "arm": self.promise.arms[arm.arm]} for arm in proof.arms
                    ],
                }
                for proof in self.proofs
            ],
            "draws": [asdict(test) for test in self.draws],
            "evidence": None if self.evidence is None else evidence_figures(self.evidence),
            "power": self.power,
            "proven_risk": None if self.proven is None else asdict(self.proven),
            "beliefs": None if self.beliefs is None else asdict(self.beliefs),
            "heads": dict(self.heads),
        }

    def chart(self) -> ChartType:
        """Chart observed against designed shares, and beliefs against the bound, with Altair."""
        from deniable.charts.audit import audit_chart
        from deniable.charts.theme import themed

        names = self.promise.arms
        arms = self.draws[0] if self.draws else None
        return themed(
            audit_chart(
                arms=[]
                if arms is None
                else list(zip(names, arms.observed, arms.expected, strict=True)),
                ratios=[
                    (names[proof.arm], proof.to_dict()["worst_nats"], proof.budget_nano / NANO)
                    for proof in self.proofs[-1].arms
                    if proof.promised_ratio is not None
                ],
            )
        )


def audit(
    promise: Promise,
    log: DecisionLog | None = None,
    *,
    lottery: Lottery | None = None,
    counted: Cells | None = None,
    erased: int = 0,
    chain: Sequence[Check] = (),
) -> Audit:
    """Check a promise exactly and, if there are decisions, statistically.

    A sound experiment is accused with a probability of at most `evidence.ALPHA`, over all audits of
    its life.

    Args:
        promise: the experiment's promise.
        log: its decisions, oldest first; None checks only the design.
        lottery: how members are chosen; None if there is no lottery.
        counted: shows of all decisions, including erased ones; by default those of the log.
        erased: number of erased decisions, which are missing in the log.
        chain: findings about the ledger.

    >>> promise = Promise("checkout", ("old", "new"), ("a", "b"), (10**9, 10**9), "dynamic")
    >>> audit(promise).verdict
    'The promise is kept by design; no visitor has been decided for yet.'
    """
    proofs = exact_proof(promise)
    checks = [*chain, *exact_checks(promise, proofs)]
    if log is None or (log.size == 0 and not counted):
        return Audit(promise, datetime.now(UTC), 0, 0, tuple(checks), proofs)
    checks += rule_checks(promise, log)
    cells = cells_of(log)
    if counted is not None:
        agreement = counted_check(cells, counted, erased)
        checks.append(agreement)
        if agreement.outcome == "kept":  # include the draws of erased visitors
            cells = counted
    found = evidence(promise, cells, lottery)
    checks += evidence_checks(found)
    draws: list[DrawTest] = []
    proven = beliefs = None
    if log.size:
        draws = compare_draws(promise, log)
        proven = proven_risk(promise, log, COUNTS_ALPHA, every_look=True)
        beliefs = realized_beliefs(promise, log)
        checks.append(proven_check(promise, proven))
        checks += belief_checks(promise, beliefs)
        numbers = [published.number for published in promise.tables]
        checks += draw_checks(draws, compare_rows(numbers, *arrays(promise, cells)))
    if lottery is not None:
        checks += lottery_checks(cells, lottery)
    return Audit(
        promise,
        datetime.now(UTC),
        log.size + erased,
        sum(count for (_, role, _, _), count in cells.items() if role == MEMBER),
        tuple(checks),
        proofs,
        tuple(draws),
        found,
        proven,
        beliefs,
    )


def evidence_figures(found: Evidence) -> JsonObject:
    """Return plain numbers for JSON and the ledger. Logarithms are capped at 700."""
    overall, weakest = found.power.overall, found.power.weakest
    return {
        "log_e_value_draws": min(found.draws, 700.0),
        "log_e_value_lottery": None if found.lottery is None else min(found.lottery, 700.0),
        "alpha_draws": DRAWS_ALPHA,
        "alpha_lottery": LOTTERY_ALPHA,
        "power": POWER,
        "smallest_excess_nats": None if overall is None else overall.tilt,
        "smallest_excess_share": None if overall is None else overall.share,
        "smallest_excess_nats_in_any_segment": None if weakest is None else weakest.tilt,
    }

"""The audit of one experiment: every check, its outcome in words, one verdict that can be filed."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import Any

from deniable.audit.adversary import ProvenRisk, proven_risk
from deniable.audit.beliefs import Beliefs, realized_beliefs
from deniable.audit.checks import (
    Check,
    belief_checks,
    draw_checks,
    exact_checks,
    proven_check,
    rule_checks,
)
from deniable.audit.decisions import DecisionLog
from deniable.audit.draws import DrawTest, compare_draws
from deniable.audit.exact import VersionProof, exact_proof
from deniable.audit.promise import Promise
from deniable.errors import NANO

ALPHA = 1e-3
"""How often a sound experiment may be accused by chance, over all statistical checks together."""


@dataclass(frozen=True)
class Audit:
    """What `audit` returns.

    Attributes:
        promise: what was held against.
        made_at: when.
        decisions: how many were looked at.
        checks: one by one.
        proofs: the exact check, by version.
        draws: observed against designed counts.
        proven: what counts alone prove.
        beliefs: what the best tracker came to believe.
    """

    promise: Promise
    made_at: datetime
    decisions: int
    checks: tuple[Check, ...]
    proofs: tuple[VersionProof, ...]
    draws: tuple[DrawTest, ...]
    proven: ProvenRisk | None
    beliefs: Beliefs | None

    @property
    def sound(self) -> bool:
        """Whether no check found the promise broken."""
        return all(check.outcome != "broken" for check in self.checks)

    @property
    def verdict(self) -> str:
        """One sentence."""
        broken = [check.name for check in self.checks if check.outcome == "broken"]
        if broken:
            return f"The promise is NOT kept: {', '.join(broken)}."
        if not self.decisions:
            return "The promise is kept by design; no visitor has been decided for yet."
        return f"The promise is kept, by design and over {self.decisions:,} decisions."

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers, words and lists: ready for JSON. Segments are numbers, never names."""
        return {
            "experiment": self.promise.name,
            "made_at": self.made_at.isoformat(),
            "budget": self.promise.budget_nano / NANO,
            "strategy": self.promise.strategy,
            "grade": self.promise.stated_grade,
            "sound": self.sound,
            "verdict": self.verdict,
            "decisions": self.decisions,
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
            "proven_risk": None if self.proven is None else asdict(self.proven),
            "beliefs": None if self.beliefs is None else asdict(self.beliefs),
        }

    def chart(self) -> Any:
        """Observed against designed shares, and beliefs against the bound, as an Altair chart."""
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


def audit(promise: Promise, log: DecisionLog | None = None, *, alpha: float = ALPHA) -> Audit:
    """Check a promise exactly and, where there are decisions, against what was done.

    Args:
        promise: what the experiment promised.
        log: its decisions, oldest first; None checks the design alone.
        alpha: the family-wise rate at which sound experiments are accused by chance.

    >>> promise = Promise("checkout", ("old", "new"), ("a", "b"), (10**9, 10**9), "dynamic")
    >>> audit(promise).verdict
    'The promise is kept by design; no visitor has been decided for yet.'
    """
    proofs = exact_proof(promise)
    checks = list(exact_checks(promise, proofs))
    if log is None or log.size == 0:
        return Audit(
            promise, datetime.now(UTC), 0, tuple(checks), proofs, (), None, None
        )  # fmt: skip
    draws = compare_draws(promise, log)
    proven, beliefs = proven_risk(promise, log, alpha), realized_beliefs(promise, log)
    checks += rule_checks(promise, log)
    checks += draw_checks(draws, alpha)
    checks.append(proven_check(promise, proven))
    checks += belief_checks(promise, beliefs)
    return Audit(
        promise,
        datetime.now(UTC),
        log.size,
        tuple(checks),
        proofs,
        tuple(draws),
        proven,
        beliefs,
    )

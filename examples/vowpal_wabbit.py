"""Keep Vowpal Wabbit as the model, and let Deniable draw: what the model wants passes a gate.

Vowpal Wabbit learns click rates by segment and arm from what was shown and clicked. Every few hundred
visitors its scores go to an experiment of the strategy "gate", which publishes the best table that keeps
the budget. `pip install 'deniable[server]' vowpalwabbit`.
"""

from random import Random

import vowpalwabbit

import deniable
from deniable.audit.exact import exact_proof
from deniable.privacy.tables import decoded_table

SEGMENTS = ("first visit", "returning")
ARMS = ("grey", "green", "blue")
CLICK_RATES = {
    "first visit": {"grey": 0.10, "green": 0.30, "blue": 0.15},
    "returning": {"grey": 0.25, "green": 0.05, "blue": 0.20},
}
ROUNDS, VISITORS, BUDGET = 8, 250, 1.0


class Model:
    """A contextual bandit: it predicts the cost of each arm, which is -1 for a click."""

    def __init__(self) -> None:
        self._learner = vowpalwabbit.Workspace("--cb_adf -q SA --quiet --random_seed 1")

    def learn(self, segment: str, arm: str, clicked: int, chance: float) -> None:
        """One visitor: what was shown, with what chance, and what came of it."""
        lines = self._lines(segment)
        place = 1 + ARMS.index(arm)
        lines[place] = f"0:{-clicked}:{chance} {lines[place]}"
        self._learner.learn(lines)

    def scores(self) -> dict[str, dict[str, float]]:
        """Segment -> arm -> score, the higher the better."""
        return {
            segment: {
                arm: -cost
                for arm, cost in zip(ARMS, self._learner.predict(self._lines(segment)), strict=True)
            }
            for segment in SEGMENTS
        }

    def close(self) -> None:
        """Free what the model holds."""
        self._learner.finish()

    def _lines(self, segment: str) -> list[str]:
        shared = f"shared |S s{SEGMENTS.index(segment)}"
        return [shared, *(f"|A a{place}" for place in range(len(ARMS)))]


def main() -> None:
    """Serve visitors, let the model learn from them, and give its scores to the gate."""
    rng, model = Random(1), Model()
    with deniable.open("memory:") as service:
        service.firm.set(budget=BUDGET)
        service.experiments.create(
            "checkout", arms=ARMS, segments=SEGMENTS, budget=BUDGET, strategy="gate"
        )
        service.experiments.start("checkout")
        for turn in range(ROUNDS):
            clicks = 0
            for number in range(VISITORS):
                segment = rng.choice(SEGMENTS)
                chances = in_force(service)
                shown = service.decide("checkout", f"visitor-{turn}-{number}", segment)
                clicked = int(rng.random() < CLICK_RATES[segment][shown.arm])
                service.reward(shown.id, clicked)
                model.learn(segment, shown.arm, clicked, chances[segment][shown.arm])
                clicks += clicked
            report = service.scores.put("checkout", model.scores())
            print(f"round {turn + 1}: {clicks / VISITORS:.0%} clicks. {report.words}")
        kept = all(proof.holds for proof in exact_proof(service.audits.promise("checkout")))
        print(f"The promise is {'kept by every table' if kept else 'BROKEN'}.")
    model.close()


def in_force(service: deniable.Deniable) -> dict[str, dict[str, float]]:
    """Segment -> arm -> its chance in the table in force: what an unbiased model learns with."""
    experiment = service.experiments.get("checkout")
    published = service.experiments.tables_in_force([experiment])["checkout"]
    table = decoded_table(published.rows, len(ARMS))
    return {
        segment: {arm: part / 2**64 for arm, part in zip(ARMS, row, strict=True)}
        for segment, row in zip(SEGMENTS, table.rows, strict=True)
    }


if __name__ == "__main__":
    main()

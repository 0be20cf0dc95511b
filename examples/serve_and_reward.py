"""Decide and reward in process. Over HTTP, `deniable.client.Client` has the same two calls."""

import deniable


def main() -> None:
    """Serve 200 visitors of two segments, and report a click for some of them."""
    with deniable.open("memory:") as service:
        service.firm.set(budget=3)
        service.experiments.create(
            "checkout", arms=["old", "new"], segments=["first visit", "returning"], budget=1
        )
        service.experiments.start("checkout")
        shown = {"old": 0, "new": 0}
        for number in range(200):
            segment = "returning" if number % 3 else "first visit"
            decision = service.decide("checkout", visitor=f"visitor-{number}", segment=segment)
            shown[decision.arm] += 1
            if decision.arm == "new" and number % 4 == 0:
                service.reward(decision.id, 1)
        again = service.decide("checkout", visitor="visitor-0", segment="returning")
        print(f"shown: {shown}")
        print(f"visitor-0 keeps the arm {again.arm!r}, whatever segment is given")


if __name__ == "__main__":
    main()

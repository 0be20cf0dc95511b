"""Audit an experiment: its tables in exact arithmetic, its decisions against the tables."""

import deniable


def main() -> None:
    """Run a small experiment, then check its promise and the ledger."""
    with deniable.open("memory:") as service:
        service.firm.set(budget=3)
        service.experiments.create("banner", arms=["a", "b"], segments=["x", "y"], budget=1)
        service.experiments.start("banner")
        for number in range(100):
            service.decide("banner", visitor=f"visitor-{number}", segment="xy"[number % 2])
        found = service.audits.run("banner")
        print(found.verdict)
        for check in found.checks:
            print(f"  {check.name}: {check.outcome}")


if __name__ == "__main__":
    main()

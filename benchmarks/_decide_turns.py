"""Decides in turns, for `benchmarks.against`: run by its path, with the package of any checkout.

`python _decide_turns.py STORE` prints an API key; then reads from standard input one line
`JOBS SIZE BATCHES` for each turn: so many batches, one after the other, of JOBS requests for SIZE new
visitors each. Answers each line with the CPU seconds of this process.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from itertools import count
from typing import Any

from deniable import open as open_service

EXPERIMENT = "checkout"


def main() -> None:
    """Prepare the store, then answer every line."""
    os.environ["DENIABLE_VISITOR_KEY"] = "00" * 32
    names = map(str, count())
    with open_service(sys.argv[1]) as service:
        _start_experiment(service)
        print(_secret(service), flush=True)
        for line in sys.stdin:
            jobs, size, batches = map(int, line.split())
            start = time.process_time()
            for _ in range(batches):
                _decide(service, [[next(names) for _ in range(size)] for _ in range(jobs)])
            print(time.process_time() - start, flush=True)


def _start_experiment(service: Any) -> None:
    arms, segments = ["old", "new"], ["a", "b"]
    if hasattr(service, "set_firm"):  # until version 0.1 all of it was in one class
        service.set_firm(budget=3.0)
        service.create_experiment(EXPERIMENT, arms=arms, segments=segments, budget=1.0)
        service.start(EXPERIMENT)
    else:
        service.firm.set(budget=3.0)
        service.experiments.create(EXPERIMENT, arms=arms, segments=segments, budget=1.0)
        service.experiments.start(EXPERIMENT)


def _secret(service: Any) -> str:
    """A new API key, for turns over HTTP."""
    create = service.keys.create if hasattr(service, "keys") else service.create_api_key
    secret, _ = create("benchmark", ["decide"])
    return str(secret)


def _decide(service: Any, requests: list[list[str]]) -> None:
    """These requests at once, as one batch of the writer; returns when all are durable."""
    if hasattr(service, "submit"):  # until version 0.1 the service itself made jobs
        decide_job, submit = service.decide_job, service.submit
    else:
        from deniable.service.jobs import decide_job

        submit = service.writer.submit_all
    finished = threading.Semaphore(0)
    jobs = [
        decide_job(
            EXPERIMENT,
            visitors,
            ["ab"[number % 2] for number in range(len(visitors))],
            lambda _job: finished.release(),
        )
        for visitors in requests
    ]
    submit(jobs)
    for _ in jobs:
        finished.acquire()
    assert all(job.error is None and len(job.answers) == job.size for job in jobs)


if __name__ == "__main__":
    main()

"""A process that is killed again and again while it decides and rewards.

Run as `python -m tests.service.victim URL ACKNOWLEDGEMENTS`. It reads lines `ROUNDS SEED`, and answers
each with a line when these rounds are over. For each round it forks a child that opens the store and
loads it from several threads. The child gets SIGKILL a random time after a random number of
acknowledgements; every fifth one while it is still opening the store. Whatever a call returned to its
caller is written, line by line, to the file of acknowledgements.
"""

from __future__ import annotations

import os
import random
import signal
import sys
import threading
import time

from tests import thrift

from deniable.service.service import Deniable
from deniable.service.service import open as open_service

THREADS = 4
MOST = 16
"""Acknowledgements to wait for, at most: however slow the machine is, the load is real."""
LONGEST = 0.02
"""Seconds from then to the kill, at most."""
OPENING = 0.005
"""The same for those that are killed while they open the store, which takes longer."""


def load(service: Deniable, acknowledgements: int, name: str) -> None:
    number = 0
    while True:
        number += 1
        visitors = [(f"{name}-{number}-{i}", "ab"[i % 2]) for i in range(1 + number % 3)]
        for (visitor, _), answer in zip(
            visitors, service.decide_batch("load", visitors), strict=True
        ):
            acknowledge(acknowledgements, f"D {visitor} {answer.id} {answer.arm}")
            service.reward(answer.id, number % 2)
            acknowledge(acknowledgements, f"R {answer.id} {number % 2}")
        shared = f"shared-{number}"
        answer = service.decide("load", shared, "a")
        acknowledge(acknowledgements, f"D {shared} {answer.id} {answer.arm}")


def acknowledge(file: int, line: str) -> None:
    os.write(file, line.encode() + b"\n")


def child(url: str, acknowledgements: int, name: str) -> None:
    service = open_service(url)
    for thread in range(1, THREADS):
        threading.Thread(
            target=load, args=(service, acknowledgements, f"{name}-{thread}"), daemon=True
        ).start()
    load(service, acknowledgements, f"{name}-0")


def wait_for_lines(path: str, lines: int, process: int) -> None:
    """Until the child has acknowledged as much."""
    with open(path, "rb") as file:
        file.seek(0, os.SEEK_END)
        while (lines := lines - file.read().count(b"\n")) > 0:
            if os.waitpid(process, os.WNOHANG) != (0, 0):
                sys.exit("a child ended by itself")
            time.sleep(0.0005)


def prepare() -> None:
    """Import and compile, before the forks, what every child would import and compile again."""
    from deniable.storage import postgres, sqlite  # noqa: F401 - imported when a store is opened

    thrift.statements_compiled_once()
    with open_service("memory:") as service:
        service.firm.set(budget=1)
        service.experiments.create("load", arms=["old", "new"], segments=["a"], budget=1)
        service.experiments.start("load")
        service.reward(service.decide("load", "v", "a").id, 1)


def kill_again_and_again(
    url: str, acknowledgements: int, path: str, rounds: int, seed: int
) -> None:
    moments = random.Random(seed)
    for number in range(rounds):
        process = os.fork()
        if process == 0:
            try:
                child(url, acknowledgements, f"round{seed}.{number}")
            finally:
                os._exit(1)
        if number % 5:
            wait_for_lines(path, moments.randint(1, MOST), process)
        longest = LONGEST if number % 5 else OPENING
        time.sleep(moments.uniform(0, longest))  # the random moment itself
        os.kill(process, signal.SIGKILL)
        _, status = os.waitpid(process, 0)
        if not os.WIFSIGNALED(status):
            sys.exit("a child ended by itself")


def main(url: str, path: str) -> None:
    prepare()
    acknowledgements = os.open(path, os.O_CREAT | os.O_APPEND | os.O_WRONLY)
    for line in sys.stdin:
        rounds, seed = map(int, line.split())
        kill_again_and_again(url, acknowledgements, path, rounds, seed)
        sys.stdout.write("over\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main(*sys.argv[1:])

"""Everything that can catch a fault: the four audits, and tests of single properties.

Each takes a running service (`World`) and says whether it found something wrong. On a sound service
all of them say no, at levels at which chance plays no part.
"""

from __future__ import annotations

import csv
import logging
import os
import re
import sqlite3
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from scipy.stats import chi2_contingency, wilcoxon
from tests.patience import PATIENCE
from tests.promise.support import taught
from tests.service.http.site import Site, running_site
from tests.service.support import running, serving

from deniable.audit.log import audit_log
from deniable.errors import BrokenPromiseError, InsufficientBudgetError, WrongStateError
from deniable.service.batch import ENTROPY, MARK_BYTES
from deniable.service.drafts import NewArm
from deniable.service.jobs import decide_job
from deniable.service.service import Deniable
from deniable.storage.sqlite import SqliteStore

SEGMENTS = ("vip-returning", "vip-new")
"""Names that would be recognised wherever they turn up."""

RANK_LEVEL = 1e-9


@dataclass
class World:
    """A running service with an experiment, `checkout`, whose table tells its segments apart."""

    site: Site
    folder: Path
    decisions: int
    arms: tuple[str | NewArm, ...]

    @property
    def service(self) -> Deniable:
        return self.site.service

    def visited(self) -> None:
        """So many further visitors of each segment; of an experiment that is not served, nobody."""
        with suppress(WrongStateError):
            self._visited()

    def _visited(self) -> None:
        for start in range(0, self.decisions, 5_000):
            count = min(5_000, self.decisions - start)
            for segment in SEGMENTS:
                names = [(f"{segment}{start + i}", segment) for i in range(count)]
                self.service.decide_batch("checkout", names)


@contextmanager
def world(
    folder: Path, *, decisions: int = 3_000, arms: tuple[str | NewArm, ...] = ("x", "y", "z")
) -> Iterator[World]:
    """A service on a memory store; everything stays inside of the process."""
    with serving("memory:", budget=3) as service:
        running(service, arms=arms, segments=SEGMENTS, strategy="constant")
        taught(service, "checkout", dict(zip(SEGMENTS, "xy", strict=True)), visitors=150)
        with running_site(service) as site:
            yield World(site, folder, decisions, arms)


# -- audits ----------------------------------------------------------------------------------


def audit_experiment(world: World) -> bool:
    world.visited()
    try:
        return not world.service.audits.run("checkout").sound
    except BrokenPromiseError:
        return True


def audit_firm(world: World) -> bool:
    running(world.service, "second", segments=SEGMENTS, budget=2)  # all of the firm's budget
    with suppress(InsufficientBudgetError):
        running(world.service, "third", segments=SEGMENTS, budget=2)
    try:
        return not world.service.audits.firm().sound
    except BrokenPromiseError:
        return True


def audit_of_log(world: World) -> bool:
    world.visited()
    path = world.folder / "log.parquet"
    world.service.ledger.export_log(path)
    return not audit_log(path).sound


# -- single properties -----------------------------------------------------------------------


def shape_of_answers(world: World) -> bool:
    """Every dialect answers every segment alike, with nothing but the arm and an id."""
    seen: Counter[object] = Counter()
    for number in range(20):
        for segment in (*SEGMENTS, "other", None):
            name = f"shape-{number}-{segment}"
            asked = {"visitor": name, "segment": segment}
            path = "/v1/experiments/checkout/decisions"
            flags = "/ofrep/v1/evaluate/flags"
            context = {"context": {"targetingKey": name, "segment": segment}}
            for place, body in (
                (path, asked),
                (f"{path}/batch", {"visitors": [asked]}),
                (f"{flags}/checkout", context),
                (flags, context),
            ):
                answer = world.site.client.post(
                    place, json=body, headers=world.site.headers("decide")
                )
                skeleton = re.sub(r'"[0-9a-f]{32}"', '"id"', answer.text.strip())
                skeleton = re.sub(r'"[xyz]"', '"arm"', skeleton)
                headers = tuple(sorted(set(answer.headers) - {"date"}))
                seen[place, answer.status_code, len(answer.content), skeleton, headers] += 1
    expected = {
        '{"decision":"id","arm":"arm"}',
        '{"decisions":[{"decision":"id","arm":"arm"}]}',
        '{"key":"checkout","reason":"SPLIT","variant":"arm","value":"arm","metadata":{"decision":"id"}}',
    }
    alike = len({key[0] for key in seen}) == len(seen)  # type: ignore[index]
    bodies = {key[3] for key in seen if "flags" not in key[0] or "checkout" in key[0]}  # type: ignore[index]
    bulk = {key[3] for key in seen} - bodies  # type: ignore[index]
    return not (alike and bodies == expected and all("explored" not in one for one in bulk))


def one_arm_per_visitor(world: World) -> bool:
    """Who comes again, with the same segment or another, gets the same answer."""
    names = [f"again-{number}" for number in range(200)]
    answers = [
        world.service.decide_batch("checkout", [(name, segment) for name in names])
        for segment in (SEGMENTS[0], SEGMENTS[0], SEGMENTS[1], "other")
    ]
    return any(other != answers[0] for other in answers)


def stored_as_answered(world: World) -> bool:
    """The private log has the arm and the segment of every answer."""
    asked = [(f"stored-{number}", SEGMENTS[number % 2]) for number in range(400)]
    answers = world.service.decide_batch("checkout", asked)
    path = world.folder / "stored.csv"
    world.service.ledger.export(path, experiment="checkout")
    with path.open(newline="") as file:
        stored = {row["decision"]: (row["shown"], row["segment"]) for row in csv.DictReader(file)}
    return any(
        stored.get(one.id) != (one.arm, segment)
        for one, (_, segment) in zip(answers, asked, strict=True)
    )


def ids_tell_nothing(world: World) -> bool:
    """No bit of the ids depends on the segment or the arm: chi-square tests of all bits together."""
    asked = [(f"id-{number}", SEGMENTS[number % 2]) for number in range(4_000)]
    answers = world.service.decide_batch("checkout", asked)
    cells = [(one.arm, segment) for one, (_, segment) in zip(answers, asked, strict=True)]
    total = Counter(cells)
    smallest, tested = 1.0, 0
    for bit in range(128):
        ones = Counter(
            cell for cell, one in zip(cells, answers, strict=True) if int(one.id, 16) >> bit & 1
        )
        if not 0 < ones.total() < len(cells):
            continue  # the same in all ids: the experiment's tag, and the batch's mark
        table = [[ones[cell], total[cell] - ones[cell]] for cell in total]
        smallest = min(smallest, float(chi2_contingency(table, correction=False).pvalue))
        tested += 1
    return smallest * tested < RANK_LEVEL


def logs_and_metrics(world: World) -> bool:
    """No segment's name in any log line of any level, nor in the metrics."""
    lines: list[str] = []

    class Keeping(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            lines.append(record.getMessage() + repr(record.__dict__))

    handler, logger = Keeping(level=0), logging.getLogger()
    before = logger.level, logging.getLogger("deniable").level
    logger.addHandler(handler)
    logger.setLevel(1)
    logging.getLogger("deniable").setLevel(1)
    try:
        for segment in SEGMENTS:
            world.site.decide(f"logged-{segment}", segment)
        metrics = world.site.client.get("/metrics", headers=world.site.headers("read")).text
    finally:
        logger.removeHandler(handler)
        logger.setLevel(before[0])
        logging.getLogger("deniable").setLevel(before[1])
    text = "\n".join([*lines, metrics])
    return any(segment in text for segment in SEGMENTS)


def system_entropy(world: World) -> bool:
    """Where the system's random numbers are all 0, everybody is shown the first arm."""
    real = os.urandom

    def zeros_for_draws(size: int) -> bytes:
        if size % ENTROPY.size != MARK_BYTES:
            return real(size)
        draws = [bytes(8) + real(ENTROPY.size - 8) for _ in range(size // ENTROPY.size)]
        return real(MARK_BYTES) + b"".join(draws)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "urandom", zeros_for_draws)
        names = [(f"entropy-{i}", SEGMENTS[i % 2]) for i in range(200)]
        arms = {one.arm for one in world.service.decide_batch("checkout", names)}
    return arms != {"x"}


def commit_before_answer(world: World) -> bool:
    """When an answer is given, another connection finds its row."""
    path = world.folder / "answers.db"
    early, done = [], threading.Event()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DENIABLE_VISITOR_KEY", "5a" * 32)
        with serving(f"sqlite:///{path}") as service:
            running(service)

            def answered(job: Any) -> None:
                look = sqlite3.connect(path)
                count = look.execute("SELECT count(*) FROM decisions").fetchone()[0]
                look.close()
                early.append(count < 3)
                done.set()

            job = decide_job("checkout", ["u", "v", "w"], ["a", "b", None], answered)
            service.writer.submit(job)
            assert done.wait(PATIENCE)
    return any(early)


def shipped_durability(world: World) -> bool:
    """As shipped, every connection that writes waits until the disk has what is committed."""
    path = world.folder / "durable.db"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DENIABLE_VISITOR_KEY", "5a" * 32)
        with serving(f"sqlite:///{path}") as service:
            running(service)
            service.decide("checkout", "v", "a")
            store = service._store
            assert isinstance(store, SqliteStore)
            assert store._hot is not None
            hot = store._hot.execute("PRAGMA synchronous").fetchone()[0]
            with store.begin() as connection:
                cold = connection.exec_driver_sql("PRAGMA synchronous").scalar()
    return not hot == cold == 2


def exact_publication(world: World) -> bool:
    """A table that is above its budget is not put into force."""
    try:
        running(world.service, "exact", arms=("x", "y", "z"), segments=SEGMENTS, budget=0.1)
        taught(world.service, "exact", dict(zip(SEGMENTS, "xy", strict=True)), visitors=150)
    except BrokenPromiseError:
        return True
    return False


def order_of_visits(world: World) -> bool:
    """Which experiment of a layer has a visitor does not depend on who comes first."""
    found = []
    for names in ([f"v{i}" for i in range(60)], [f"v{i}" for i in range(59, -1, -1)]):
        with pytest.MonkeyPatch.context() as patch, serving("memory:") as service:
            patch.setattr(service.writer.engine, "_key", bytes(32))
            patch.setattr(service.writer.engine._states, "_key", bytes(32))
            service.experiments.create("e", arms=["x", "y"], segments=["a"], budget=1, layer="page")
            service.experiments.start("e", share=0.5)
            state_of = service.writer.engine
            for name in names:
                service.decide("e", name, "a")
            state = state_of.state("e")
            assert state is not None
            found.append(_members(service, names, state))
    return found[0] != found[1]


def clicks_and_tables(world: World) -> bool:
    """Tables are made at the same numbers of decisions, whoever clicks."""
    found = []
    for clicked in (0, 50, 250):
        with serving("memory:") as service:
            running(service)
            for number in range(350):
                shown = service.decide("checkout", f"v{number}", "a")
                if number == clicked > 0:
                    service.reward(shown.id, 1)
            found.append([table.decisions for table in service.experiments.tables("checkout")])
    return found != [[0, 100, 200, 300]] * 3


def _members(service: Deniable, names: list[str], state: Any) -> set[str]:
    from sqlalchemy import select

    from deniable.storage.schema import decisions

    with service._store.read() as connection:
        roles = dict(connection.execute(select(decisions.c.visitor, decisions.c.role)).all())
    return {name for name in names if roles[state.visitor_hashes[0](name)] == 0}


def firm_budget(world: World) -> bool:
    """What is started beyond the firm's budget is refused."""
    try:
        running(world.service, "beyond", segments=SEGMENTS, budget=2.5)
    except InsufficientBudgetError:
        return False
    return True


def ledger_verification(world: World) -> bool:
    return not world.service.ledger.verify().sound


def time_by_segment(world: World) -> bool:
    """Interleaved pairs of decisions, one of each segment: a rank test of the time they take.

    The time is the processor's, plus what is slept, which is added up and not waited for: it does
    not depend on what else the machine does.
    """
    slept = 0.0

    def sleep(seconds: float) -> None:
        nonlocal slept
        slept += seconds

    differences = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(time, "sleep", sleep)
        for number in range(200):
            spent = []
            for place in (number % 2, 1 - number % 2):  # each is first in turn
                began, before = time.thread_time(), slept
                world.service.decide("checkout", f"timed-{number}-{place}", SEGMENTS[place])
                spent.append((place, time.thread_time() - began + slept - before))
            pair = dict(spent)
            differences.append(pair[0] - pair[1])
    return bool(wilcoxon(differences).pvalue < RANK_LEVEL)


CATCHERS: dict[str, Callable[[World], bool]] = {
    "audit experiment": audit_experiment,
    "audit firm": audit_firm,
    "audit log": audit_of_log,
    "ledger verify": ledger_verification,
    "exact check at publication": exact_publication,
    "shape of answers": shape_of_answers,
    "one arm per visitor": one_arm_per_visitor,
    "stored as answered": stored_as_answered,
    "ids tell nothing": ids_tell_nothing,
    "logs and metrics": logs_and_metrics,
    "system entropy": system_entropy,
    "commit before answer": commit_before_answer,
    "shipped durability": shipped_durability,
    "order of visits": order_of_visits,
    "tables and clicks": clicks_and_tables,
    "firm's budget": firm_budget,
    "time by segment": time_by_segment,
}

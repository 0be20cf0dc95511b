"""How far a reader has to hop: files, functions and changes of file of one call of each kind.

    python -m benchmarks.call_trace

Counts the calls into the package with `sys.setprofile`, in all threads, after one call to warm up. The
requests go to the application that Granian serves, on a SQLite file. Calls of the same file in a row
are one visit; every further visit is a change of file. `--files` lists the files in the order in which
they are met.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count, islice, pairwise
from pathlib import Path
from tempfile import TemporaryDirectory
from types import CodeType, FrameType
from typing import Any, NamedTuple
from unittest import mock

import deniable

PACKAGE = str(Path(deniable.__file__).parent)
KEY = "checkout"


class Trace(NamedTuple):
    """What one call met.

    Attributes:
        files: in the order in which they are met first.
        functions: how many different ones.
        changes: how often the next call is in another file than the last.
    """

    files: tuple[str, ...]
    functions: int
    changes: int


class Tracer:
    """Notes calls into the package while it is on; made before the threads that it follows."""

    def __init__(self) -> None:
        self._met: list[CodeType] | None = None
        threading.setprofile(self._note)

    def _note(self, frame: FrameType, event: str, _argument: object) -> None:
        code = frame.f_code
        if self._met is not None and event == "call" and code.co_filename.startswith(PACKAGE):
            self._met.append(code)

    def of(self, work: Callable[[], object], before: Callable[[], object] = int) -> Trace:
        """The calls that this work makes, the second time; `before` prepares it, and is not traced."""
        before()
        work()
        before()
        met = self._met = []
        sys.setprofile(self._note)
        try:
            work()
        finally:
            sys.setprofile(None)
            self._met = None
        files = [code.co_filename.removeprefix(PACKAGE + os.sep) for code in met]
        changes = sum(file != following for file, following in pairwise(files))
        return Trace(tuple(dict.fromkeys(files)), len(set(met)), changes)


@contextmanager
def service_calls() -> Iterator[dict[str, Callable[[], object]]]:
    """One decision and one reward, as HTTP requests of the application, without a socket."""
    os.environ["DENIABLE_VISITOR_KEY"] = "00" * 32
    from deniable.service.http.app import Application, create_app

    beside: dict[str, Any] = dict.fromkeys(
        ("_observe", "_beat", "_check_schema", "_measure"), _idle
    )
    with (
        mock.patch.multiple(Application, **beside),
        TemporaryDirectory() as folder,
        deniable.open(f"sqlite:///{folder}/store.db") as service,
    ):
        service.firm.set(budget=3.0)
        service.experiments.create(KEY, arms=["old", "new"], segments=["a", "b"], budget=1.0)
        service.experiments.start(KEY)
        secret, _ = service.keys.create("trace", ["decide", "reward"])
        app = create_app(service)
        visitors = map(str, range(1_000))
        decisions: list[str] = []
        with asyncio.Runner() as runner:
            lifespan = runner.get_loop().create_task(_started(app))
            runner.run(asyncio.sleep(0))  # the application is ready after its first steps

            def post(path: str, body: dict[str, object]) -> Any:
                return runner.run(_posted(app, path, body, secret))

            def decide() -> object:
                body: dict[str, object] = {"visitor": next(visitors), "segment": "a"}
                decisions.append(post(f"/v1/experiments/{KEY}/decisions", body)["decision"])
                return decisions[-1]

            def reward() -> object:
                return post("/v1/rewards", {"decision": decisions.pop(), "value": 1})

            yield {"decide (HTTP)": decide, "reward (HTTP)": reward}
            lifespan.cancel()


async def _idle(_app: object) -> None:
    """Stand for what an application does in the background, which may fall into a traced call."""
    await asyncio.Event().wait()


async def _started(app: Any) -> None:
    """Start the application and keep it running."""
    messages = iter([{"type": "lifespan.startup"}])

    async def receive() -> dict[str, str]:
        for message in messages:
            return message
        await asyncio.Event().wait()
        raise AssertionError

    async def send(message: dict[str, str]) -> None:
        assert message["type"] == "lifespan.startup.complete", message

    await app({"type": "lifespan", "asgi": {"version": "3.0"}, "state": {}}, receive, send)


async def _posted(app: Any, path: str, body: dict[str, object], secret: str) -> Any:
    """Send one request to the application and return what it answers."""
    sent = json.dumps(body).encode()
    headers = [
        (b"host", b"localhost"),
        (b"content-type", b"application/json"),
        (b"content-length", str(len(sent)).encode()),
        (b"authorization", f"Bearer {secret}".encode()),
    ]
    scope = {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": "POST",
        "scheme": "http",
        "path": path,
        "raw_path": path.encode(),
        "query_string": b"",
        "headers": headers,
        "client": ("127.0.0.1", 1),
        "server": ("127.0.0.1", 80),
    }
    parts: list[bytes] = []
    status = 0

    async def receive() -> dict[str, object]:
        return {"type": "http.request", "body": sent, "more_body": False}

    async def send(message: dict[str, Any]) -> None:
        nonlocal status
        status = message.get("status", status)
        parts.append(message.get("body", b""))

    await app(scope, receive, send)
    answer = b"".join(parts)
    assert 200 <= status < 300, (status, answer)
    return json.loads(answer) if answer else None


@contextmanager
def publishing() -> Iterator[tuple[Callable[[], object], Callable[[], object]]]:
    """Yield a call that stores enough decisions for a table to be due, and one that publishes it."""
    from deniable.service.publisher import Publisher

    with (
        mock.patch.object(Publisher, "grown"),  # tables are published on request only
        TemporaryDirectory() as folder,
        deniable.open(f"sqlite:///{folder}/store.db") as service,
    ):
        service.firm.set(budget=3.0)
        service.experiments.create(KEY, arms=["old", "new"], segments=["a", "b"], budget=1.0)
        service.experiments.start(KEY)
        visitors = map(str, count())

        def store() -> object:
            return service.decide_batch(KEY, [(name, "a") for name in islice(visitors, 1_000)])

        def publish() -> object:
            published = service.experiments.publish(KEY)
            assert published is not None
            return published

        yield store, publish


def library_calls() -> dict[str, Callable[[], object]]:
    """The three calls of the library."""
    portfolio = deniable.Portfolio.of(
        [
            {"id": str(i), "arms": 2 + i % 3, "visitors": 1_000 * (i + 1), "segments": 2}
            for i in range(5)
        ]
    )
    truth = deniable.Environment([0.3, 0.2], horizon=1_000, name="page")
    sizes = iter(range(100_000, 200_000))  # plans are cached: each one is of another size
    return {
        "plan": lambda: deniable.plan(n_arms=5, horizon=next(sizes), n_segments=2),
        "allocate": lambda: deniable.allocate(portfolio, 3.0),
        "simulate": lambda: deniable.simulate(
            truth, [deniable.Dynamic(1.0)], repetitions=2, workers=1
        ),
    }


def _print(name: str, trace: Trace) -> None:
    print(f"{name:<16}{len(trace.files):>6}{trace.functions:>11}{trace.changes:>17}")
    if "--files" in sys.argv:
        print("    " + "\n    ".join(trace.files))


def main() -> bool:
    """Print a row for each kind of call."""
    print(f"{'':<16}{'files':>6}{'functions':>11}{'changes of file':>17}")
    tracer = Tracer()
    with service_calls() as requests:
        for name, work in requests.items():
            _print(name, tracer.of(work))
    for name, work in library_calls().items():
        _print(name, tracer.of(work))
    with publishing() as (store, publish):
        _print("publish", tracer.of(publish, before=store))
    return True


if __name__ == "__main__":
    main()

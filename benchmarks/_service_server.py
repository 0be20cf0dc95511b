"""A server for the benchmark: `python -m benchmarks._service_server MODE STORE WORKERS`.

MODE is `decide`, the service as `deniable serve` runs it, or `nothing`: the same server, application,
authentication, parsing and answers, on a handler that decides nothing and stores nothing.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Sequence

from deniable.cli.serve import worker
from deniable.service.asynchronous import AsyncDecisions
from deniable.service.http import server
from deniable.service.http.hot import HotRoutes
from deniable.service.settings import Settings, load
from deniable.storage.records import Decision


class Nothing:
    """In place of `AsyncDecisions`: the same decision for everybody, at once."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()

    def decide(
        self, _experiment: str, visitors: Sequence[str], _segments: Sequence[str | None]
    ) -> asyncio.Future[list[Decision]]:
        future: asyncio.Future[list[Decision]] = self._loop.create_future()
        future.set_result([Decision("0" * 32, "new")] * len(visitors))
        return future


def _connect_nothing(routes: HotRoutes, decisions: AsyncDecisions) -> None:
    routes._decisions = Nothing()  # type: ignore[assignment]


def main() -> None:
    mode, store, workers = sys.argv[1:]
    settings = Settings(store=store, port=0, workers=int(workers), log_level="warning")
    if mode == "nothing":
        setattr(HotRoutes, "connect", _connect_nothing)  # noqa: B010 - mypy minds the other way
    sock = server.listening_socket(settings)
    print(server.address(sock), flush=True)
    if settings.workers > 1:
        server.serve_workers("deniable.cli.serve:worker", settings, sock)
    else:
        os.environ.update(settings.environment())
        assert load() == settings
        server.serve(worker(), settings, sock)


if __name__ == "__main__":
    main()

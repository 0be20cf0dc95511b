"""A server for the benchmark: `python -m benchmarks._service_server MODE STORE WORKERS [SECONDS]`.

MODE is `decide`, the service as `deniable serve` runs it, or `nothing`: the same server, application,
authentication, parsing and answers, on a handler that decides nothing and stores nothing.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Sequence

from deniable.cli.serve import application
from deniable.service.http import server
from deniable.service.http.decide_routes import DecideRoutes
from deniable.service.settings import Settings
from deniable.service.writer import AsyncDecisions
from deniable.storage.records import Decision


class Nothing:
    """In place of `AsyncDecisions`: the same decision for everybody, at once."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self.writer = self

    def decide(
        self,
        _experiment: str,
        visitors: Sequence[str],
        _segments: Sequence[str | None],
    ) -> asyncio.Future[list[Decision]]:
        future: asyncio.Future[list[Decision]] = self._loop.create_future()
        future.set_result([Decision("0" * 32, "new")] * len(visitors))
        return future

    def crowded(self) -> bool:
        return False

    def longest_arm(self, _experiment: str) -> int:
        return 3


def _connect_nothing(routes: DecideRoutes, decisions: AsyncDecisions) -> None:
    routes._decisions = Nothing()  # type: ignore[assignment]


def main() -> None:
    mode, store, processes, *patience = sys.argv[1:]
    settings = Settings(store=store, port=0, workers=int(processes), log_level="warning")
    if patience:
        settings = settings.model_copy(update={"queue_seconds": float(patience[0])})
    if mode == "nothing":
        setattr(DecideRoutes, "connect", _connect_nothing)  # noqa: B010 - mypy minds the other way
    settings = server.with_free_port(settings)
    print(server.address(settings), flush=True)
    server.serve(settings, application)


if __name__ == "__main__":
    main()

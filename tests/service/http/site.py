"""An application in process, with its own event loop in a thread, for tests that are not async."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

import httpx2 as httpx
from tests.patience import PATIENCE

from deniable.service.http.app import Application, Options, create_app
from deniable.service.service import Deniable
from deniable.storage.records import SCOPES, Scope

T = TypeVar("T")

EXPERIMENT = "checkout"
DECISIONS = f"/v1/experiments/{EXPERIMENT}/decisions"


class AppClient:
    """Blocking requests to an ASGI application whose lifespan runs meanwhile."""

    def __init__(self, app: Any) -> None:
        self._app = app
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self._inbox: asyncio.Queue[dict[str, str]] = asyncio.Queue()
        self._outbox: asyncio.Queue[Any] = asyncio.Queue()
        self.wait(self._start())
        transport = httpx.ASGITransport(app, raise_app_exceptions=True)
        self._http = httpx.AsyncClient(transport=transport, base_url="http://site")

    def wait(self, work: Coroutine[Any, Any, T]) -> T:
        """The result of a coroutine that is run in the application's loop."""
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(PATIENCE)

    def request(self, method: str, path: str, **more: Any) -> httpx.Response:
        return self.wait(self._http.request(method, path, **more))

    def get(self, path: str, **more: Any) -> httpx.Response:
        return self.request("GET", path, **more)

    def post(self, path: str, **more: Any) -> httpx.Response:
        return self.request("POST", path, **more)

    def close(self) -> None:
        self.wait(self._http.aclose())
        self.wait(self._stop())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(PATIENCE)
        self._loop.close()

    async def _start(self) -> None:
        scope = {"type": "lifespan"}
        self._life = asyncio.create_task(self._app(scope, self._inbox.get, self._outbox.put))
        await self._inbox.put({"type": "lifespan.startup"})
        assert (await self._outbox.get())["type"] == "lifespan.startup.complete"

    async def _stop(self) -> None:
        await self._inbox.put({"type": "lifespan.shutdown"})
        assert (await self._outbox.get())["type"] == "lifespan.shutdown.complete"
        await self._life


@dataclass
class Site:
    """A running application, how to talk to it, and one API key for each scope."""

    service: Deniable
    app: Application
    client: AppClient
    secrets: dict[Scope, str]

    def headers(self, scope: Scope = "admin") -> dict[str, str]:
        return {"Authorization": f"Bearer {self.secrets[scope]}"}

    def decide(self, visitor: str, segment: str | None = "a") -> dict[str, Any]:
        body = {"visitor": visitor, "segment": segment}
        answer = self.client.post(DECISIONS, json=body, headers=self.headers("decide"))
        assert answer.status_code == 200
        found: dict[str, Any] = answer.json()
        return found


@contextmanager
def running_site(service: Deniable, options: Options | None = None) -> Iterator[Site]:
    """An application on the service, until the block ends."""
    app = create_app(service, options)
    secrets = {scope: service.keys.create(scope, [scope])[0] for scope in SCOPES}
    client = AppClient(app)
    try:
        yield Site(service, app, client, secrets)
    finally:
        client.close()

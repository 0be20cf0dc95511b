"""A served application with pages, and a client that signs in as people do."""

from __future__ import annotations

import re
import socket
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import httpx2 as httpx
import uvicorn
from tests.patience import PATIENCE
from tests.web import shop

from deniable.service.http.app import Application, create_app
from deniable.service.service import Deniable
from deniable.storage.records import Scope
from deniable.web.pages import mount

EXPERIMENT = shop.CHECKOUT_KEY
BUDGETS = (2.0, 1.0)
"""Larger than the demo's, so that little traffic is enough to learn."""
HTML = {"accept": "text/html"}
TOKEN = re.compile(r'name="form_token" value="([0-9a-f]{64})"')

HOSTILE = (
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "x" * 10_000,
    "\u202egnp.exe",
    "אבג {{ 7 * 7 }} {% raw %}",
    "'; DROP TABLE experiments; --",
    "\x00\x1b[31m",
)
"""Names that a careless page would trip over."""


@dataclass
class Site:
    """One served application."""

    service: Deniable
    app: Application
    url: str

    def secret(self, *scopes: Scope) -> str:
        return self.service.keys.create("test " + " ".join(scopes), scopes)[0]

    def client(self) -> httpx.Client:
        return httpx.Client(base_url=self.url, headers=HTML, timeout=PATIENCE)

    @contextmanager
    def signed_in(self, *scopes: Scope) -> Iterator[httpx.Client]:
        with self.client() as client:
            answer = sign_in(client, self.secret(*scopes))
            assert answer.status_code == 303, answer.text
            yield client

    def send_visitors(self, number: int, seed: int = 1) -> None:
        """Simulated visitors through the demo's experiments, which must exist."""
        shop.send(self.service, number, seed)
        self.app.api.state.monitor.look()


def form_token(text: str) -> str:
    found = TOKEN.search(text)
    assert found, text
    return found[1]


def token_of(page: httpx.Response) -> str:
    return form_token(page.text)


def sign_in(client: httpx.Client, secret: str, **more: str) -> httpx.Response:
    token = token_of(client.get("/login"))
    return client.post("/login", data={"form_token": token, "key": secret, **more})


def send(client: httpx.Client, page: str, to: str, **fields: str) -> httpx.Response:
    """Open a page and send a form of it."""
    token = token_of(client.get(page))
    return client.post(to, data={"form_token": token, **fields})


@contextmanager
def running_site(service: Deniable, *, demo: bool = False) -> Iterator[Site]:
    app = mount(create_app(service), demo=demo)
    sock = socket.socket()
    sock.bind(("127.0.0.1", 0))
    sock.listen()  # a client that is faster than the server then waits for it
    server = uvicorn.Server(uvicorn.Config(app, log_config=None, lifespan="on", ws="none"))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [sock]}, daemon=True)
    thread.start()
    try:
        yield Site(service, app, f"http://127.0.0.1:{sock.getsockname()[1]}")
    finally:
        server.should_exit = True
        thread.join(PATIENCE)
        sock.close()


def create_demo(service: Deniable, keys: Sequence[str] = ()) -> None:
    """The demo's firm and experiments, all running."""
    service.firm.set(budget=6.0)
    for experiment, budget in zip(shop.EXPERIMENTS, BUDGETS, strict=True):
        shop.create(service, experiment, budget)

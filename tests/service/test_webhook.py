"""The webhook: signed, in order, tried again, by one process; nothing about visitors."""

from __future__ import annotations

import hashlib
import hmac
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from types import SimpleNamespace

import pytest
from tests.service.support import running, serving

from deniable.errors import InvalidArgumentError
from deniable.service import webhook
from deniable.service.service import Deniable
from deniable.service.webhook import MOST_TRIES, Webhook, checked_url, secret_of
from deniable.storage import times
from deniable.storage.commitments import acting

DAY = 86_400_000_000
SEGMENTS = ("secret-segment-one", "secret-segment-two")


class Inbox:
    """What an HTTP server got, and what it answers: the next of `statuses`, then 204."""

    def __init__(self) -> None:
        self.statuses: list[int] = []
        self.got: list[tuple[str, bytes]] = []
        self.url = ""

    @property
    def kinds(self) -> list[str]:
        return [json.loads(body)["kind"] for _, body in self.got]


@contextmanager
def listening() -> Iterator[Inbox]:
    inbox = Inbox()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            inbox.got.append((self.headers["deniable-signature"], body))
            self.send_response(inbox.statuses.pop(0) if inbox.statuses else 204)
            self.send_header("location", inbox.url + "/elsewhere")
            self.send_header("content-length", "0")
            self.end_headers()

        def log_message(self, *_arguments: object) -> None:
            """Say nothing."""

    server = HTTPServer(("127.0.0.1", 0), Handler)
    inbox.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield inbox
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def inbox() -> Iterator[Inbox]:
    with listening() as opened:
        yield opened


def test_news_are_told_in_order_signed_and_without_secrets(service: Deniable, inbox: Inbox) -> None:
    hook = Webhook(service, inbox.url)
    assert hook.tell() == 0  # what was before is no news
    with acting("user", "ada"):
        running(service, segments=SEGMENTS)
    service.decide("checkout", "customer-4711", SEGMENTS[0])
    service.visitors.erase(["customer-4711"])
    service.experiments.stop("checkout", promote="new")
    assert hook.tell() == 4
    assert hook.tell() == 0
    assert inbox.kinds == ["create", "start", "erase", "stop"]
    for header, body in inbox.got:
        fields = dict(part.split("=") for part in header.split(","))
        signed = f"{fields['t']}.".encode() + body
        expected = hmac.new(secret_of(service), signed, hashlib.sha256).hexdigest()
        assert fields["v1"] == expected
        told = json.loads(body)
        assert set(told) == {"id", "kind", "experiment", "by", "recorded_at"}
    told = b"".join(body for _, body in inbox.got).decode()
    for secret in (*SEGMENTS, "4711", "bold", "budget"):
        assert secret not in told
    assert json.loads(inbox.got[1][1])["by"] == "user:ada"
    hook.end()


@pytest.mark.parametrize("status", [301, 307, 404, 500])
def test_what_was_not_taken_is_tried_again_later(
    service: Deniable, inbox: Inbox, status: int
) -> None:
    clock = Clock()
    hook = Webhook(service, inbox.url, clock)
    hook.tell()
    service.firm.set(budget=99)
    running(service)
    inbox.statuses = [status, status]
    waits = []
    for _ in range(2):
        assert hook.tell() == 0
        assert hook.tell() == 0  # not before its time
        waits.append(hook._not_before - clock.now)
        clock.now = hook._not_before
    assert waits == [5.0, 10.0]
    assert hook.tell() == 3
    assert inbox.kinds == ["firm", "firm", "firm", "create", "start"]
    hook.end()


def test_it_gives_up_after_some_hours_and_goes_on(service: Deniable, inbox: Inbox) -> None:
    clock = Clock()
    hook = Webhook(service, inbox.url, clock)
    hook.tell()
    service.firm.set(budget=99)
    service.firm.set(budget=98)
    inbox.statuses = [500] * MOST_TRIES
    for _ in range(MOST_TRIES):
        hook.tell()
        clock.now = hook._not_before
    assert len(inbox.got) == MOST_TRIES + 1  # the first one so often, then the second
    service.firm.set(budget=97)
    assert hook.tell() == 1  # what comes later does not wait for anything
    del inbox.got[-1:]
    assert [json.loads(body)["id"] for _, body in inbox.got[-2:]] == [
        *(entry.seq for entry in service.ledger.entries()[-3:-1])
    ]
    assert 4 * 3600 < clock.now < 24 * 3600
    hook.end()


def test_nobody_there_is_tried_again_too(service: Deniable) -> None:
    clock = Clock()
    with listening() as gone:
        hook = Webhook(service, gone.url, clock)
    hook.tell()
    service.firm.set(budget=99)
    assert hook.tell() == 0
    assert hook._not_before == 5.0
    hook.end()


def test_one_process_tells_and_another_goes_on_where_it_ended(
    store_url: str, inbox: Inbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    with serving(store_url) as service:
        first, second = Webhook(service, inbox.url), Webhook(service, inbox.url)
        first.tell()
        service.firm.set(budget=99)
        assert (second.tell(), first.tell()) == (0, 1)
        service.firm.set(budget=98)
        later = SimpleNamespace(now=lambda: times.now() + DAY)  # the lease ran out
        monkeypatch.setattr(webhook, "times", later)  # here alone: other threads need their clock
        assert (second.tell(), first.tell()) == (1, 0)
        first.end()
        second.end()
    assert len(inbox.got) == 2


@pytest.mark.parametrize("url", ["", "ftp://x/y", "https://", "x", "http://a\nb/"])
def test_addresses_are_checked(url: str) -> None:
    with pytest.raises(InvalidArgumentError):
        checked_url(url)

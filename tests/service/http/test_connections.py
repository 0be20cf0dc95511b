"""Raw connections to a real server: large headers, slow and half-sent requests, silence."""

from __future__ import annotations

import re
import shutil
import socket
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from http.client import HTTPResponse
from pathlib import Path

import httpx2 as httpx
import orjson
import psutil
import pytest
from tests.java import NO_JAVA
from tests.patience import PATIENCE, eventually
from tests.service.http.process import Server, serving
from tests.service.http.site import DECISIONS, EXPERIMENT

from deniable.service.service import open as open_service

SLOW = ("--request-seconds", "1", "--idle-seconds", "2")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("server")


@pytest.fixture(scope="module")
def secret(folder: Path) -> str:
    with open_service(f"sqlite:///{folder / 'store.db'}") as service:
        service.firm.set(budget=3.0)
        service.experiments.create(EXPERIMENT, arms=["old", "new"], segments=["a", "b"], budget=1.0)
        service.experiments.start(EXPERIMENT)
        return service.keys.create("test", ["admin"])[0]


@pytest.fixture(scope="module")
def server(folder: Path, secret: str) -> Iterator[Server]:
    with serving(folder) as running:
        yield running


def _connected(server: Server) -> socket.socket:
    host, port = server.url.removeprefix("http://").split(":")
    return socket.create_connection((host, int(port)), timeout=PATIENCE)


def _until_closed(sock: socket.socket) -> bytes:
    """All that the server sends until it closes; a timeout fails the test."""
    received = b""
    try:
        while data := sock.recv(65_536):
            received += data
    except ConnectionResetError:
        pass
    return received


def _status(sock: socket.socket) -> int:
    """The status of one answer, which is read to its end."""
    answer = HTTPResponse(sock)
    answer.begin()
    answer.read()
    return answer.status


def _decides(server: Server, secret: str) -> bool:
    headers = {"Authorization": f"Bearer {secret}"}
    body = {"visitor": "v", "segment": "a"}
    answer = httpx.post(server.url + DECISIONS, json=body, headers=headers, timeout=PATIENCE)
    return answer.status_code == 200


def test_headers_have_a_limit(server: Server, secret: str) -> None:
    endless = b"GET /healthz HTTP/1.1\r\nHost: x\r\nX-Long: "
    many = b"GET /healthz HTTP/1.1\r\nHost: x\r\n" + b"X-Many: 0123456789\r\n" * 2_000 + b"\r\n"
    long_path = b"GET /" + b"x" * 40_000 + b" HTTP/1.1\r\nHost: x\r\n\r\n"
    for start, more in ((endless, b"x" * 50_000), (many, b""), (long_path, b"")):
        with _connected(server) as sock:
            with suppress(ConnectionError):  # closed, perhaps before the answer could be read
                sock.sendall(start)
                sock.sendall(more)
            received = _until_closed(sock)
            assert not received or received.startswith(b"HTTP/1.1 431 "), start[:40]
    within = b"GET /healthz HTTP/1.1\r\nHost: x\r\nX: " + b"x" * 16_000 + b"\r\n\r\n"
    with _connected(server) as sock:
        sock.sendall(within)
        assert sock.recv(65_536).startswith(b"HTTP/1.1 200 ")
    assert _decides(server, secret)


def test_a_body_larger_than_the_header_limit_is_no_header(server: Server, secret: str) -> None:
    with _connected(server) as sock:
        body = b'{"visitor":"v"' + b" " * 100_000 + b"}"
        head = f"POST {DECISIONS} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {secret}\r\n"
        length = f"Content-Length: {len(body)}\r\n\r\n"
        for _ in range(2):  # on the same connection
            sock.sendall((head + length).encode() + body)
            assert _status(sock) == 200


def test_trailers_have_a_limit(server: Server, secret: str) -> None:
    with _connected(server) as sock:
        head = f"POST {DECISIONS} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {secret}\r\n"
        sock.sendall(head.encode() + b"Transfer-Encoding: chunked\r\n\r\n0\r\nX-Trailer: ")
        try:
            for _ in range(10_000):
                sock.sendall(b"x" * 65_536)
        except (BrokenPipeError, ConnectionResetError):
            return
    raise AssertionError("650 MB of trailers were taken")


def test_nobody_is_waited_for_longer_than_allowed(folder: Path, secret: str) -> None:
    cases = [
        (b"", b""),
        (b"\r\n\r\n", b""),
        (b"GET /healthz HTTP/1.1\r\nHost: x\r\n", b""),
        (b"POST /login HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\nx", b"HTTP/1.1 408 "),
        (b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n", b"HTTP/1.1 200 "),
    ]
    with serving(folder, *SLOW) as server, ExitStack() as stack:

        def begun(sent: bytes) -> socket.socket:
            sock = stack.enter_context(_connected(server))
            with suppress(ConnectionError):  # where the machine stood still for as long as that
                sock.sendall(sent)
            return sock

        for sock, (sent, told) in [(begun(case[0]), case) for case in cases]:
            first = _until_closed(sock)
            eventually(
                lambda f=first, s=sent, t=told: (  # type: ignore[misc]
                    f.startswith(t) or _until_closed(begun(s)).startswith(t)
                ),
                f"{sent!r} is answered by {told!r}",
            )
        assert _decides(server, secret)


def test_half_sent_requests_keep_nobody_out(server: Server, secret: str) -> None:
    """250 requests that never arrive whole, more than may be answered at once."""
    half = b"POST /v1/keys HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n{"
    page = b"POST /login HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\nkey="
    headers = {"Authorization": f"Bearer {secret}"}
    with ExitStack() as stack:
        for number in range(250):
            stack.enter_context(_connected(server)).sendall(page if number % 2 else half)
        with httpx.Client(base_url=server.url, timeout=PATIENCE) as client:
            for path in ("/healthz", "/readyz", "/storez", "/metrics", "/login", "/v1/firm"):
                assert client.get(path, headers=headers).status_code == 200, path
        assert _decides(server, secret)


def test_a_key_is_checked_before_the_body_is_read(server: Server) -> None:
    for path in (DECISIONS, "/v1/keys", "/v1/rewards/batch", "/ofrep/v1/evaluate/flags"):
        with _connected(server) as sock:
            head = f"POST {path} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer dnb_guess\r\n"
            sock.sendall(f"{head}Content-Length: 100000\r\n\r\n".encode())
            assert sock.recv(65_536).startswith(b"HTTP/1.1 401 "), path


def test_two_authorizations_are_a_mistake(server: Server, secret: str) -> None:
    twice = [("Authorization", f"Bearer {secret}"), ("Authorization", "Bearer dnb_other")]
    with httpx.Client(base_url=server.url, timeout=PATIENCE) as client:
        for headers in (twice, twice[::-1], twice[:1] * 2):
            body = {"visitor": "v"}
            assert client.post(DECISIONS, json=body, headers=headers).status_code == 400
            assert client.get("/v1/firm", headers=headers).status_code == 400
            assert client.post("/v1/keys", json={}, headers=headers).status_code == 400


def test_idle_connections_give_way_to_new_ones(folder: Path, secret: str) -> None:
    """Above the limit, a new connection is answered when an idle one has been closed."""
    flags = ("--connection-limit", "10", "--idle-seconds", "1")
    with serving(folder, *flags) as server, ExitStack() as stack:
        for _ in range(30):
            stack.enter_context(_connected(server))
        assert _decides(server, secret)


def _post(path: str, body: bytes, *headers: str) -> bytes:
    length = f"Content-Length: {len(body)}"
    head = (f"POST {path} HTTP/1.1", "Host: x", "Content-Type: application/json", length, *headers)
    return "\r\n".join(head).encode() + b"\r\n\r\n" + body


def test_answers_come_in_the_order_of_the_requests(server: Server, secret: str) -> None:
    """Requests that are sent before an answer has come; one of them is refused."""
    authorization = f"Authorization: Bearer {secret}"
    visitors = [orjson.dumps({"visitor": f"pipe-{n}", "segment": "a"}) for n in range(5)]
    visitors[3] = b"{"
    requests = [_post(DECISIONS, body, authorization) for body in visitors]
    with _connected(server) as sock:
        sock.sendall(
            b"".join(requests[:-1])
            + requests[-1].replace(b"Host: x", b"Host: x\r\nConnection: close")
        )
        together = _until_closed(sock)
    statuses = re.findall(rb"HTTP/1.1 (\d+) ", together)
    assert statuses == [b"200", b"200", b"200", b"400", b"200"]
    decisions = re.findall(rb'"decision":"(\w+)"', together)
    headers = {"Authorization": f"Bearer {secret}"}
    for body, decision in zip([*visitors[:3], visitors[4]], decisions, strict=True):
        again = httpx.post(server.url + DECISIONS, content=body, headers=headers, timeout=PATIENCE)
        assert again.json()["decision"] == decision.decode()


def test_trailers_are_no_headers(server: Server, secret: str) -> None:
    body = b'{"visitor":"v","segment":"a"}'
    with _connected(server) as sock:
        sock.sendall(
            f"POST {DECISIONS} HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n".encode()
            + b"%x\r\n%b\r\n0\r\nAuthorization: Bearer %b\r\n\r\n"
            % (len(body), body, secret.encode())
        )
        assert _status(sock) == 401


def test_endless_pipelining_takes_no_memory(server: Server, secret: str) -> None:
    """One connection that sends requests and reads no answer; others are served meanwhile."""
    workers = psutil.Process(server.process.pid).children(recursive=True)

    def megabytes() -> float:
        return float(sum(process.memory_info().rss for process in workers)) / 1e6

    request = b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n" * 1_000
    before = megabytes()
    with _connected(server) as sock:
        sock.settimeout(1.0)
        sent = 0
        with suppress(TimeoutError):  # the server has stopped reading
            while sent < 200_000_000:
                sent += sock.send(request)
        assert sent < 200_000_000
        assert _decides(server, secret)
        assert megabytes() - before < 50


JAVA = """
import java.net.URI;
import java.net.http.*;

public class Caller {
    static HttpResponse<String> post(String url, String key, String body) throws Exception {
        HttpClient client = HttpClient.newHttpClient();  // asks for HTTP/2 with `Upgrade: h2c`
        HttpRequest request = HttpRequest.newBuilder(URI.create(url))
            .header("Authorization", "Bearer " + key)
            .header("Content-Type", "application/json")
            .POST(HttpRequest.BodyPublishers.ofString(body)).build();
        return client.send(request, HttpResponse.BodyHandlers.ofString());
    }

    public static void main(String[] given) throws Exception {
        String visitor = "{'visitor':'java','segment':'a'}".replace((char) 39, '"');
        var decided = post(given[0] + given[2], given[1], visitor);
        System.out.println(decided.statusCode() + " " + decided.body().trim());
        String decision = decided.body().split("\\"")[3];
        String reward = "{'decision':'" + decision + "','value':1}";
        var rewarded = post(given[0] + "/v1/rewards", given[1], reward.replace((char) 39, '"'));
        System.out.println(rewarded.statusCode());
    }
}
"""


def test_a_request_to_upgrade_to_h2c_is_answered_as_it_is(server: Server, secret: str) -> None:
    """The headers that Java's own client sends; the answer is HTTP/1.1."""
    upgrade = ("Connection: Upgrade, HTTP2-Settings", "Upgrade: h2c", "HTTP2-Settings: AAEAAEAA")
    body = b'{"visitor":"h2c","segment":"a"}'
    with _connected(server) as sock:
        for _ in range(2):  # on the same connection
            sock.sendall(_post(DECISIONS, body, f"Authorization: Bearer {secret}", *upgrade))
            assert _status(sock) == 200


def test_java_s_own_client_is_answered(server: Server, secret: str, tmp_path: Path) -> None:
    """It sends `Upgrade: h2c` with its first request, which has a body."""
    java = shutil.which("java")
    if java is None:
        pytest.skip(NO_JAVA)
    source = tmp_path / "Caller.java"
    source.write_text(JAVA)
    done = subprocess.run(
        [java, str(source), server.url, secret, DECISIONS],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    first, second = done.stdout.splitlines()
    assert first.startswith('200 {"decision":"'), done.stdout
    assert second == "204"

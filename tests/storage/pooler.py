"""A small PostgreSQL pooler like PgBouncer: each transaction, or each client, gets a server."""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Literal

_REFUSED_REQUESTS = (80877103, 80877104)
"""Requests for TLS and for GSS encryption."""


def _message(kind: bytes, content: bytes) -> bytes:
    return kind + struct.pack("!I", len(content) + 4) + content


_GREETING = b"".join(
    (
        _message(b"R", struct.pack("!I", 0)),
        _message(b"S", b"server_version\x0015.0\x00"),
        _message(b"S", b"client_encoding\x00UTF8\x00"),
        _message(b"S", b"standard_conforming_strings\x00on\x00"),
        _message(b"K", struct.pack("!II", 1, 2)),  # of the pooler, not of a server process
        _message(b"Z", b"I"),
    )
)


class _Peer:
    """One end of a connection, read message by message."""

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        self._file = sock.makefile("rb")

    def message(self, kind_bytes: int = 1) -> bytes:
        head = self._file.read(kind_bytes + 4)
        if len(head) < kind_bytes + 4:
            raise ConnectionError
        (length,) = struct.unpack("!I", head[kind_bytes:])
        return head + self._file.read(length - 4)


class _Pooler:
    def __init__(self, server: Callable[[bytes], socket.socket], mode: str) -> None:
        self._server = server
        self._mode = mode
        self._idle: list[_Peer] = []
        self._lock = threading.Lock()

    def serve(self, sock: socket.socket) -> None:
        held: _Peer | None = None
        with sock, suppress(OSError):
            client = _Peer(sock)
            startup = client.message(0)
            while struct.unpack("!I", startup[4:8])[0] in _REFUSED_REQUESTS:
                sock.sendall(b"N")
                startup = client.message(0)
            sock.sendall(_GREETING)
            while (message := client.message())[:1] != b"X":
                held = held or self._taken(startup)
                held.sock.sendall(message)
                if message[:1] in (b"Q", b"S") and self._answered(held, sock):
                    held = None
        if held is not None:
            held.sock.close()

    def _taken(self, startup: bytes) -> _Peer:
        with self._lock:
            if self._idle:
                return self._idle.pop()
        server = _Peer(self._server(startup))
        server.sock.sendall(startup)
        while server.message()[:1] != b"Z":
            pass
        return server

    def _answered(self, server: _Peer, sock: socket.socket) -> bool:
        """Send the whole answer; whether the server is free for others."""
        while True:
            answer = server.message()
            sock.sendall(answer)
            if answer[:1] == b"Z":
                break
        if self._mode == "session" or answer[5:6] != b"I":
            return False
        with self._lock:
            self._idle.append(server)
        return True

    def close(self) -> None:
        for server in self._idle:
            server.sock.close()


@contextmanager
def pooled(url: str, mode: Literal["session", "transaction"]) -> Iterator[str]:
    """The URL of a pooler in front of a test database's."""
    user_and_database, _, home = url.partition("?host=")
    database = user_and_database.rpartition("/")[2]

    def connected(_startup: bytes) -> socket.socket:
        sock = socket.socket(socket.AF_UNIX)
        sock.connect(f"{home}/.s.PGSQL.5432")
        return sock

    pooler = _Pooler(connected, mode)
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def accept() -> None:
            with suppress(OSError):
                while True:
                    sock, _ = listening.accept()
                    threading.Thread(target=pooler.serve, args=(sock,), daemon=True).start()

        threading.Thread(target=accept, daemon=True).start()
        yield f"postgresql://deniable@127.0.0.1:{listening.getsockname()[1]}/{database}"
        listening.shutdown(socket.SHUT_RDWR)
    pooler.close()

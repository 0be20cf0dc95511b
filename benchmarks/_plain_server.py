"""The application that a firm would write itself: FastAPI, select, else insert, commit, answer.

It keeps one row for each visitor, waits for the disk like Deniable, and promises nothing. It has the
same server. Run as `python -m benchmarks._plain_server STORE`.
"""

from __future__ import annotations

import os
import secrets
import sys

from fastapi import FastAPI
from granian import Granian
from granian.constants import HTTPModes, Interfaces, Loops
from pydantic import BaseModel
from sqlalchemy import (
    Column,
    Engine,
    LargeBinary,
    MetaData,
    String,
    Table,
    create_engine,
    event,
    insert,
    select,
)

from deniable.service.http import server
from deniable.service.settings import Settings

STORE = "PLAIN_STORE"
shown = Table(
    "shown",
    MetaData(),
    Column("visitor", String, primary_key=True),
    Column("id", LargeBinary, nullable=False),
    Column("arm", String, nullable=False),
)
app = FastAPI()


class Visit(BaseModel):
    """Who asks."""

    visitor: str
    segment: str | None = None


@app.post("/v1/experiments/{key}/decisions")
def decide(key: str, visit: Visit) -> dict[str, str]:
    """Return the visitor's arm, stored before the answer."""
    with _engine.begin() as connection:
        row = connection.execute(select(shown).where(shown.c.visitor == visit.visitor)).first()
        if row is None:
            identity, arm = secrets.token_bytes(16), secrets.choice(("old", "new"))
            connection.execute(insert(shown).values(visitor=visit.visitor, id=identity, arm=arm))
        else:
            identity, arm = row.id, row.arm
    return {"decision": identity.hex(), "arm": arm}


@app.get("/readyz")
def ready() -> dict[str, str]:
    """Return that it answers."""
    return {}


def _opened(url: str) -> Engine:
    if not url.startswith("sqlite"):
        return create_engine(url.replace("postgresql://", "postgresql+psycopg://"), pool_size=40)
    engine = create_engine(url, connect_args={"timeout": 60})

    @event.listens_for(engine, "connect")
    def prepare(connection, _record):  # type: ignore[no-untyped-def]
        connection.isolation_level = None
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = FULL")

    @event.listens_for(engine, "begin")
    def begin(connection):  # type: ignore[no-untyped-def]
        connection.exec_driver_sql("BEGIN IMMEDIATE")

    return engine


def main() -> None:
    """Serve on a free port, which is printed."""
    settings = server.with_free_port(Settings(store=sys.argv[1], port=0))
    print(server.address(settings), flush=True)
    os.environ[STORE] = settings.store
    Granian(
        "benchmarks._plain_server:app",
        port=settings.port,
        interface=Interfaces.ASGI,
        loop=Loops.uvloop,
        http=HTTPModes.http1,
        log_enabled=False,
        workers_kill_timeout=5,
    ).serve()


if __name__ == "__main__":
    main()
else:
    _engine = _opened(os.environ[STORE])
    shown.metadata.create_all(_engine)

"""Arrays in PostgreSQL's binary format: the server reads what was meant."""

from __future__ import annotations

import random
import struct

import psycopg
import pytest
from tests.postgres import PostgresServer

from deniable.storage.postgres import PostgresTransaction
from deniable.storage.postgres_arrays import bytes_array, integer_array

LIMITS = {"int2": 2**15, "int4": 2**31, "int8": 2**63}


@pytest.fixture
def connection(postgres: PostgresServer) -> psycopg.Connection[tuple[list[object]]]:
    connection = psycopg.connect(postgres.new_database(), autocommit=True)
    PostgresTransaction(connection)  # registers how arrays are sent
    return connection


def sent(connection: psycopg.Connection[tuple[list[object]]], kind: str, array: bytes) -> object:
    """What the server says that it got."""
    found = connection.execute(f"SELECT %b::{kind}[]".encode(), [array]).fetchone()
    assert found is not None
    return found[0]


@pytest.mark.parametrize("kind", LIMITS)
def test_integers(connection: psycopg.Connection[tuple[list[object]]], kind: str) -> None:
    limit, chance = LIMITS[kind], random.Random(1)
    cases = [
        [],
        [0],
        [-1, -limit, limit - 1],
        [chance.randrange(-limit, limit) for _ in range(1_000)],
    ]
    for values in cases:
        assert sent(connection, kind, integer_array(values, kind)) == values
    with pytest.raises(struct.error):
        integer_array([limit], kind)
    connection.close()


def test_bytes(connection: psycopg.Connection[tuple[list[object]]]) -> None:
    chance = random.Random(1)
    cases = [
        [],
        [b""],
        [b"\x00", b"", b"\xff" * 300],
        [chance.randbytes(chance.randrange(40)) for _ in range(1_000)],
    ]
    for values in cases:
        assert sent(connection, "bytea", bytes_array(values)) == values
    connection.close()

"""Visitor ids as keyed HMACs, and loading the key.

Only `HMAC-SHA256(key, experiment or group, visitor)`, truncated to 16 bytes, is stored. Without the
key it is impossible to identify the visitor of a row or to link visitors between experiments.
"""

from __future__ import annotations

import hmac
import os
import stat
from hashlib import sha256
from pathlib import Path

from sqlalchemy import Connection, insert, select

from deniable.errors import InvalidArgumentError, WrongStateError
from deniable.storage.commitments import linked, lock_chain, record
from deniable.storage.schema import commitments, facts

ENVIRONMENT = "DENIABLE_VISITOR_KEY"
KEY_BYTES = 32

_INNER, _OUTER = (bytes(byte ^ pad for byte in range(256)) for pad in (0x36, 0x5C))
"""The two paddings of HMAC (RFC 2104), as byte translation tables."""


class VisitorHash:
    """Computes the stored form of visitor ids within one scope (an experiment's id, or a group).

    HMAC-SHA256 with everything that does not depend on the visitor hashed in advance.

    >>> VisitorHash(b"k" * 32, bytes(16))("v-1").hex()
    '3a1979ef497af7f857ef1dbc9fbc4915'
    """

    __slots__ = ("_inner", "_outer")

    def __init__(self, key: bytes, scope: bytes) -> None:
        block = (key if len(key) <= 64 else sha256(key).digest()).ljust(64, b"\0")
        self._inner = sha256(block.translate(_INNER) + scope)
        self._outer = sha256(block.translate(_OUTER))

    def __call__(self, visitor: str) -> bytes:
        """HMAC-SHA256(key, scope + visitor), the first 16 bytes."""
        inner, outer = self._inner.copy(), self._outer.copy()
        inner.update(visitor.encode())
        outer.update(inner.digest())
        return outer.digest()[:16]


def visitor_hash(key: bytes, scope: bytes, visitor: str) -> bytes:
    """Return the stored form of one visitor id; use `VisitorHash` for many in the same scope."""
    return VisitorHash(key, scope)(visitor)


def group_scope(group: str) -> bytes:
    """Scope of a group's memberships, from before groups became layers."""
    return b"group" + sha256(group.encode()).digest()


def layer_scope(layer: str) -> bytes:
    """Scope of the hash that determines a visitor's slot in a layer."""
    return b"layer" + sha256(layer.encode()).digest()


def holdout_scope(experiment: bytes) -> bytes:
    """Scope of the hash that selects an experiment's holdout."""
    return b"holdout" + experiment


def fingerprint(key: bytes) -> bytes:
    """Identify a key without revealing it. Stored, so that a wrong key is noticed."""
    return hmac.digest(key, b"deniable visitor key", "sha256")


def check_key(connection: Connection, key: bytes) -> None:
    """Store the first key's fingerprint; refuse any other key, because it would redraw all visitors."""
    known = connection.execute(select(facts.c.value).where(facts.c.name == "visitor_key")).scalar()
    if known is None:
        lock_chain(connection)
        if linked(connection, commitments.c.kind == "key"):
            raise WrongStateError(
                "the store's fact `visitor_key` was removed, though the ledger knows a key: "
                "restore the store, or run `deniable ledger verify`"
            )
        connection.execute(insert(facts).values(name="visitor_key", value=fingerprint(key)))
        record(connection, "key", None, fingerprint=fingerprint(key).hex())
    elif known != fingerprint(key):
        raise WrongStateError(
            "this visitor key is not the one that the store was created with; restore the old one "
            f"(key file or {ENVIRONMENT}), because with another one every visitor would be new"
        )


def has_key(connection: Connection) -> bool:
    """Whether the store already has a key."""
    fact = connection.execute(select(facts.c.name).where(facts.c.name == "visitor_key")).first()
    return fact is not None or bool(linked(connection, commitments.c.kind == "key"))


def visitor_key(url: str, key_file: str | Path | None = None, *, new: bool = True) -> bytes:
    """Load the key from the environment or from its file, which is created if missing.

    Args:
        url: the store; a SQLite file's key is next to it, in `<file>.key`.
        key_file: use this file instead.
        new: whether to create a missing file. Must be False if the store already has a key: a new
            key would take the place where the old one has to be restored.

    Raises:
        WrongStateError: the file is missing and may not be created, or other users can read it.
    """
    given = os.environ.get(ENVIRONMENT)
    if given is not None:
        return _parsed(given, ENVIRONMENT)
    if key_file is None and url.startswith("memory:"):
        return os.urandom(KEY_BYTES)
    path = key_file_of(url, key_file)
    if not path.exists():
        if not new:
            raise WrongStateError(
                f"the visitor key {path} is missing, but the store was created with one: restore it, "
                f"or name it by --key-file or {ENVIRONMENT}"
            )
        _create(path)
    if stat.S_IMODE(path.stat().st_mode) & 0o077:
        raise WrongStateError(f"{path} can be read by others: chmod 600 {path}")
    return _parsed(path.read_text("ascii"), str(path))


def key_file_of(url: str, key_file: str | Path | None = None) -> Path:
    """Return the path of a store's key: as given, next to the SQLite file, or in the current folder."""
    if key_file is not None:
        return Path(key_file)
    if url.startswith("sqlite:///"):
        return Path(url.removeprefix("sqlite:///") + ".key")
    return Path("deniable.key")


def _create(path: Path) -> None:
    """Write a new key to a temporary file and link it into place; the first process wins."""
    draft = path.with_name(f"{path.name}.{os.getpid()}.{os.urandom(4).hex()}")
    descriptor = os.open(draft, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
    try:
        os.write(descriptor, os.urandom(KEY_BYTES).hex().encode() + b"\n")
        os.fsync(descriptor)
        os.link(draft, path)
        _sync_directory(path.parent)
    except FileExistsError:
        pass
    finally:
        os.close(descriptor)
        draft.unlink()


def _sync_directory(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _parsed(text: str, source: str) -> bytes:
    try:
        key = bytes.fromhex(text.strip())
    except ValueError:
        key = b""
    if len(key) < KEY_BYTES:
        raise InvalidArgumentError(
            source, "...", f"{KEY_BYTES} or more bytes as hexadecimal digits (openssl rand -hex 32)"
        )
    return key

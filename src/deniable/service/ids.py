"""Ids of visitors and decisions, as callers know them and as they are stored; and the key for both.

A visitor id has one form for all its spellings: an id that looks the same must not get a second draw.
Of this form only `HMAC-SHA256(key, experiment, visitor)`, truncated to 16 bytes, is stored.
Without the key it is impossible to identify the visitor of a row or to link visitors between
experiments.

A stored decision id has 16 bytes: the experiment's tag (4), a mark (4) and an ending (8). The mark is
random and shared by decisions that are inserted together. This makes them neighbours in the index, so
a batch changes few index pages; with random ids it would change one page per decision.

The mark would reveal who came at the same time, so it never leaves the service: ids are shown with
the mark encrypted by a keyed hash of the ending.

    shown mark = stored mark XOR BLAKE2b(ending; key of the experiment)

Without the key, the 12 bytes after the tag are uniform and independent of those of every other id, as
long as no two endings are equal (a chance of n^2 / 2^65 among n decisions).
"""

from __future__ import annotations

import hmac
import os
import stat
import unicodedata
from collections.abc import Sequence
from hashlib import blake2b, sha256
from itertools import chain
from pathlib import Path

from sqlalchemy import Connection, insert, select

from deniable.errors import InvalidArgumentError, UnknownNameError, WrongStateError
from deniable.masks.definition import KEY_VARIABLE, read_key
from deniable.storage.commitments import linked, lock_chain, record
from deniable.storage.schema import commitments, facts

INVISIBLE = (
    (0x00, 0x1F),
    (0x7F, 0x9F),
    (0xAD, 0xAD),
    (0x34F, 0x34F),
    (0x600, 0x605),
    (0x61C, 0x61C),
    (0x6DD, 0x6DD),
    (0x70F, 0x70F),
    (0x890, 0x891),
    (0x8E2, 0x8E2),
    (0x115F, 0x1160),
    (0x17B4, 0x17B5),
    (0x180B, 0x180F),
    (0x200B, 0x200F),
    (0x202A, 0x202E),
    (0x2060, 0x206F),
    (0x2800, 0x2800),
    (0x3164, 0x3164),
    (0xFE00, 0xFE0F),
    (0xFEFF, 0xFEFF),
    (0xFFA0, 0xFFA0),
    (0xFFF0, 0xFFFC),
    (0x110BD, 0x110BD),
    (0x110CD, 0x110CD),
    (0x13430, 0x1343F),
    (0x1BCA0, 0x1BCA3),
    (0x1D159, 0x1D159),
    (0x1D173, 0x1D17A),
    (0xE0000, 0xE0FFF),
)
"""Characters that are not part of an id, by first and last code point.

Unicode's controls (Cc), format characters (Cf) and whatever else it says to ignore by default: fillers
and variation selectors. And three that fonts leave blank: the empty Braille pattern, the object
replacement character and the musical null notehead. Written out, because
each version of Python has its own version of Unicode.
"""

_REMOVED = dict.fromkeys(chain.from_iterable(range(first, last + 1) for first, last in INVISIBLE))


def normalised(visitor: str) -> str:
    r"""Normalise an id: no invisible characters, Unicode's composed form, no surrounding white space.

    Case is kept, because it may distinguish two ids.

    >>> normalised(" v-1\n"), normalised("v\u200b-1"), normalised("Cafe\u0301") == "Caf\u00e9"
    ('v-1', 'v-1', True)
    """
    if visitor.isascii() and visitor.isprintable():
        return visitor.strip()
    return unicodedata.normalize("NFC", visitor.translate(_REMOVED)).strip()


_INNER, _OUTER = (bytes(byte ^ pad for byte in range(256)) for pad in (0x36, 0x5C))
"""The two paddings of HMAC (RFC 2104), as byte translation tables."""


class VisitorHash:
    """Computes the stored form of visitor ids within one scope, such as an experiment's id.

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


def visitor_scopes(experiment: bytes, contexts: Sequence[str]) -> list[bytes]:
    """Return the scopes of an experiment's visitor hashes, one for each context.

    A visitor has an arm in each context, and rows of different contexts cannot be linked. The first
    context, and an experiment without contexts, has the experiment's id.
    """
    own = [b"context" + experiment + sha256(context.encode()).digest() for context in contexts[1:]]
    return [experiment, *own]


def layer_scope(layer: str) -> bytes:
    """Scope of the hash that determines a visitor's slot in a layer."""
    return b"layer" + sha256(layer.encode()).digest()


def holdout_scope(experiment: bytes) -> bytes:
    """Scope of the hash that selects an experiment's holdout."""
    return b"holdout" + experiment


_number = int.from_bytes


class DecisionIds:
    """Converts between the two forms of an experiment's decision ids.

    Args:
        key: key for visitor HMACs; the key for ids is derived from it.
        experiment: the experiment's id.

    >>> ids = DecisionIds(b"k" * 32, bytes(16))
    >>> ids.shown(bytes(16))
    '00000000a6ad86800000000000000000'
    >>> ids.stored(bytes.fromhex(ids.shown(b"tagsmarktheending"[:16]))).decode()
    'tagsmarktheendin'
    """

    __slots__ = ("_keyed",)

    def __init__(self, key: bytes, experiment: bytes) -> None:
        own = hmac.digest(key, b"deniable decision ids" + experiment, "sha256")
        self._keyed = blake2b(key=own, digest_size=4)

    def shown(self, stored: bytes) -> str:
        """The id that leaves, as hexadecimal digits."""
        hashed = self._keyed.copy()
        hashed.update(stored[8:])
        mask = _number(hashed.digest(), "big") << 64
        return (_number(stored, "big") ^ mask).to_bytes(16, "big").hex()

    def stored(self, shown: bytes) -> bytes:
        """Return the stored form of a shown id. The operation is its own inverse."""
        return bytes.fromhex(self.shown(shown))


def id_bytes(kind: str, text: str) -> bytes:
    """Return the bytes of an id in hexadecimal digits; a text that is none names nothing.

    >>> id_bytes("API key", "checkout")
    Traceback (most recent call last):
    ...
    deniable.errors.UnknownNameError: no API key is called 'checkout'
    """
    try:
        return bytes.fromhex(text)
    except ValueError:
        raise UnknownNameError(kind, text) from None


# -- the key -------------------------------------------------------------------------------------

ENVIRONMENT = "DENIABLE_VISITOR_KEY"
KEY_BYTES = 32


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


class MaskKey:
    """The key of the firm's masks: from the environment, or from its file next to the store.

    Args:
        url: the store; a SQLite file's mask key is in `<file>.mask.key`.
        path: use this file instead.
    """

    def __init__(self, url: str, path: str | Path | None = None) -> None:
        self._path = Path(path) if path else key_file_of(url).with_suffix(".mask.key")
        self._known: bytes | None = None
        if KEY_VARIABLE not in os.environ and path is None and url.startswith("memory:"):
            self._known = os.urandom(KEY_BYTES)

    def __call__(self) -> bytes | None:
        """Return the key; None if there is none yet.

        Raises:
            MaskFileError: it is not a key, or other users can read its file.
        """
        if self._known is None and (KEY_VARIABLE in os.environ or self._path.exists()):
            self._known = read_key(None if KEY_VARIABLE in os.environ else self._path)
        return self._known

    def created(self) -> bytes:
        """Return the key, creating its file (mode 0600) if there is none."""
        if self() is None:
            _create(self._path)
        key = self()
        assert key is not None
        return key


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

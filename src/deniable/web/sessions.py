"""Who is signed in: a cookie with the API key's id and an end, signed; nothing secret is in it.

Every process of a service knows every session by its signature; only that one was ended is stored. A
session ends when its time is over, at sign-out and when its API key is revoked.
"""

from __future__ import annotations

import hmac
import re
import secrets
import time
from dataclasses import dataclass
from hashlib import sha256

COOKIE = "deniable_session"
LIFETIME_SECONDS = 8 * 3600
"""A working day."""

_FORM = re.compile(r"([0-9a-f]{32})\.([0-9a-f]{32}|)\.([0-9]{1,12})\.([0-9a-f]{64})")


@dataclass(frozen=True)
class Session:
    """One session.

    Attributes:
        id: random; forms are bound to it.
        key_id: of the API key that signed in; empty before that.
        expires: seconds since 1970.
    """

    id: str
    key_id: str
    expires: int


class Signer:
    """Writes and reads what browsers keep for us, and notices when they change it.

    Args:
        key: 32 secret bytes, the same in all processes.

    >>> signer = Signer(bytes(32))
    >>> signer.read(signer.written(Session("a" * 32, "", 2_000)), now=1_999)
    Session(id='aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa', key_id='', expires=2000)
    >>> signer.read(signer.written(Session("a" * 32, "", 2_000)), now=2_000) is None
    True
    """

    def __init__(self, key: bytes) -> None:
        self._key = key

    def new(self, key_id: str = "") -> Session:
        """A session that begins now."""
        return Session(secrets.token_hex(16), key_id, int(time.time()) + LIFETIME_SECONDS)

    def written(self, session: Session) -> str:
        """The session as a cookie."""
        text = f"{session.id}.{session.key_id}.{session.expires}"
        return f"{text}.{self.sign('session', text)}"

    def read(self, cookie: str | None, now: float | None = None) -> Session | None:
        """The session of a cookie; None where there is none, it is not ours or it is over."""
        found = _FORM.fullmatch(cookie or "")
        if found is None:
            return None
        identity, key_id, expires, signature = found.groups()
        expected = self.sign("session", f"{identity}.{key_id}.{expires}")
        if not hmac.compare_digest(signature, expected):
            return None
        if int(expires) <= (time.time() if now is None else now):
            return None
        return Session(identity, key_id, int(expires))

    def form_token(self, session: Session) -> str:
        """What every form of this session carries, and no other site can know."""
        return self.sign("form", session.id)

    def sign(self, purpose: str, text: str) -> str:
        """The signature of a text for one purpose."""
        return hmac.new(self._key, f"{purpose}:{text}".encode(), sha256).hexdigest()

    def same(self, given: str, expected: str) -> bool:
        """Whether two signatures are equal, in constant time."""
        return hmac.compare_digest(given.encode(), expected.encode())

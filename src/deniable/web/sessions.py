"""What a browser keeps: a random token with an end, signed. Who is signed in by it is in the store.

The sign-in page has a session too, in which nobody is signed in yet: its form is bound to it. Signing in
begins a new one, so that a token that somebody planted before opens nothing.
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

_FORM = re.compile(r"([0-9a-f]{64})\.([0-9]{1,12})\.([0-9a-f]{64})")


@dataclass(frozen=True)
class Session:
    """One session.

    Attributes:
        token: 256 random bits; forms are bound to it, and the store knows its hash.
        expires: seconds since 1970.
    """

    token: str
    expires: int


class Signer:
    """Writes and reads what browsers keep for us, and notices when they change it.

    Args:
        key: 32 secret bytes, the same in all processes.

    >>> signer = Signer(bytes(32))
    >>> signer.read(signer.written(Session("a" * 64, 2_000)), now=1_999).expires
    2000
    >>> signer.read(signer.written(Session("a" * 64, 2_000)), now=2_000) is None
    True
    """

    def __init__(self, key: bytes) -> None:
        self._key = key

    def new(self) -> Session:
        """A session that begins now."""
        return Session(secrets.token_hex(32), int(time.time()) + LIFETIME_SECONDS)

    def written(self, session: Session) -> str:
        """The session as a cookie."""
        text = f"{session.token}.{session.expires}"
        return f"{text}.{self.sign('session', text)}"

    def read(self, cookie: str | None, now: float | None = None) -> Session | None:
        """The session of a cookie; None where there is none, it is not ours or it is over."""
        found = _FORM.fullmatch(cookie or "")
        if found is None:
            return None
        token, expires, signature = found.groups()
        if not hmac.compare_digest(signature, self.sign("session", f"{token}.{expires}")):
            return None
        if int(expires) <= (time.time() if now is None else now):
            return None
        return Session(token, int(expires))

    def form_token(self, owner: str) -> str:
        """What every form of this owner's pages carries, and no other site can know.

        Args:
            owner: a session's token, or who a trusted proxy says it is.
        """
        return self.sign("form", owner)

    def sign(self, purpose: str, text: str) -> str:
        """A signature of a text for one purpose."""
        return hmac.new(self._key, f"{purpose}:{text}".encode(), sha256).hexdigest()

    def same(self, given: str, expected: str) -> bool:
        """Whether two signatures are equal, in constant time."""
        return hmac.compare_digest(given.encode(), expected.encode())

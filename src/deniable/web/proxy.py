"""A proxy in front of the service that signs people in (single sign-on) and says in a header who it is.

Off unless it is configured. The header counts only in requests that come from a listed address, and only
if it is there once: anybody could send it. Names that no user has are nobody.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from ipaddress import IPv4Network, IPv6Network, ip_address, ip_network

from starlette.requests import Request

from deniable.errors import InvalidArgumentError


@dataclass(frozen=True)
class TrustedProxy:
    """Whose word counts.

    Attributes:
        header: in which the proxy names the user; empty: it names none.
        networks: addresses of proxies.
    """

    header: str = ""
    networks: tuple[IPv4Network | IPv6Network, ...] = ()

    @classmethod
    def of(cls, header: str, addresses: str) -> TrustedProxy:
        """From the settings.

        >>> TrustedProxy.of("Remote-User", "10.0.0.7, fd00::/8").networks[0]
        IPv4Network('10.0.0.7/32')
        """
        if header and not re.fullmatch(r"[A-Za-z0-9-]{1,64}", header):
            raise InvalidArgumentError("sign_in_header", header, "a name of a header")
        try:
            parts = [part.strip() for part in addresses.split(",") if part.strip()]
            networks = tuple(ip_network(part) for part in parts)
        except ValueError:
            raise InvalidArgumentError(
                "trusted_proxies", addresses, "addresses or networks, separated by commas"
            ) from None
        if header and not networks:
            raise InvalidArgumentError(
                "trusted_proxies", addresses, "the addresses from which the header counts"
            )
        return cls(header, networks)

    def trusts(self, request: Request) -> bool:
        """Whether a request comes from a listed address."""
        if not self.networks or request.client is None:
            return False
        try:
            address = ip_address(request.client.host)
        except ValueError:
            return False
        return any(address in network for network in self.networks)

    def user(self, request: Request) -> str | None:
        """Who is signed in by the proxy; None: it does not say, or its word does not count."""
        if not self.header or not self.trusts(request):
            return None
        given = request.headers.getlist(self.header)
        return given[0].strip().lower() or None if len(given) == 1 else None

    def address(self, request: Request) -> str:
        """Where a request comes from: what a trusted proxy says, or who is connected."""
        if self.trusts(request):
            told = request.headers.get("x-forwarded-for", "").rpartition(",")[2].strip()
            if told:
                return told[:64]
        return request.client.host if request.client is not None else ""

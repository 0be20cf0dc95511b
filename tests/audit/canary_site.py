"""Canaries against an application in process: the whole HTTP path, without a socket."""

from __future__ import annotations

import httpx2 as httpx
from tests.service.http.site import Site

from deniable.audit.live import LiveAudit, audit_live
from deniable.client.canaries import Canaries


class SiteTransport(httpx.BaseTransport):
    """Hands requests of a blocking client to a site."""

    def __init__(self, site: Site) -> None:
        self._site = site

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        answer = self._site.client.request(
            request.method,
            str(request.url.raw_path, "ascii"),
            content=request.read(),
            headers=dict(request.headers),
        )
        return httpx.Response(answer.status_code, headers=answer.headers, content=answer.content)


def canaries(site: Site, experiment: str = "checkout", *, scope: str = "audit") -> Canaries:
    secret = {str(name): secret for name, secret in site.secrets.items()}[scope]
    return Canaries("http://site", secret, experiment, transport=SiteTransport(site))


def live(site: Site, experiment: str = "checkout", *, visitors: int = 2_000) -> LiveAudit:
    with canaries(site, experiment) as sent:
        return audit_live(sent.copy, sent, visitors=visitors)

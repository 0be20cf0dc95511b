"""`deniable audit live` over HTTP: scratch copies on a running service, and canaries for them."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from typing import Any, Self
from urllib.parse import quote

import httpx2 as httpx

from deniable._types import JsonObject
from deniable.audit.live import ScratchCopy, StoredDraw
from deniable.client import calls
from deniable.client.calls import ServiceError
from deniable.errors import InvalidArgumentError
from deniable.privacy.tables import Table

_RETRIES = 5


class Canaries:
    """A scratch copy of an experiment, created by a `with` statement and removed at its end.

    Args:
        url: URL of the service, without a path.
        api_key: a key with the scope `audit`.
        experiment: the key of the experiment to copy.
        timeout_seconds: timeout of one attempt.
        transport: for tests.
    """

    def __init__(
        self,
        url: str,
        api_key: str,
        experiment: str,
        *,
        timeout_seconds: float = 30.0,
        transport: httpx.BaseTransport | None = None,
    ) -> None:
        if not url.startswith(("http://", "https://")):
            raise InvalidArgumentError("url", url, "http://... or https://...")
        self._http = httpx.Client(
            base_url=url,
            headers={"Authorization": f"Bearer {api_key}"},
            timeout=timeout_seconds,
            transport=transport,
        )
        self._experiment = experiment
        self._copy: ScratchCopy | None = None

    @property
    def copy(self) -> ScratchCopy:
        """The service's description of the copy."""
        assert self._copy is not None
        return self._copy

    def decide(self, visitors: Sequence[tuple[str, str | None]]) -> list[JsonObject] | None:
        """Return the responses as sent; None if they are refused."""
        call = calls.decide_batch(self.copy.key, visitors)
        response = self._sent("POST", call.path, call.body)
        if response.status_code in (401, 403):
            _raise(response)
        if not response.is_success:
            return None
        answers = response.json()["decisions"]
        return list(answers)

    def stored(self) -> Iterator[StoredDraw]:
        """Yield all stored decisions of the copy, in the order of their ids."""
        after = ""
        while True:
            path = f"/v1/scratch/{self.copy.key}/decisions?after={after}"
            page = _read(self._sent("GET", path))
            for row in page:
                yield StoredDraw(**row)
            if not page:
                return
            after = page[-1]["id"]

    def __enter__(self) -> Self:
        try:
            path = f"/v1/experiments/{quote(self._experiment, safe='')}/scratch"
            # Not retried without a response, because that could leave a second copy behind.
            self._copy = _copy(_read(self._sent("POST", path, {}, retries=0)))
        except BaseException:
            self._http.close()
            raise
        return self

    def __exit__(self, *_exception: object) -> None:
        try:
            self._sent("DELETE", f"/v1/scratch/{self.copy.key}")
        finally:
            self._http.close()

    def _sent(
        self, method: str, path: str, body: object = None, *, retries: int = _RETRIES
    ) -> httpx.Response:
        """Send a request, retrying temporary failures, and return the response."""
        for attempt in range(retries + 1):
            last = attempt == retries
            try:
                response = self._http.request(method, path, json=body)
            except httpx.TransportError as error:
                if last:
                    reason = f"no answer from {self._http.base_url}: {type(error).__name__}"
                    raise ServiceError(None, "unreachable", reason) from error
                time.sleep(calls.pause(attempt, None))
                continue
            if last or not calls.worth_repeating(response):
                break
            time.sleep(calls.pause(attempt, response))
        return response


def _copy(found: JsonObject) -> ScratchCopy:
    return ScratchCopy(
        key=found["key"],
        arms=tuple(found["arms"]),
        segments=tuple(found["segments"]),
        budgets_nano=tuple(found["budgets_nano"]),
        active=tuple(found["active"]),
        table=Table(
            rows=tuple(tuple(map(int, row)) for row in found["rows"]),
            zero=tuple(map(int, found["zero"])),
        ),
    )


def _read(response: httpx.Response) -> Any:
    if not response.is_success:
        _raise(response)
    try:
        return response.json()
    except ValueError as error:
        raise ServiceError(
            None, "unknown", "the response is not from a Deniable service"
        ) from error


def _raise(response: httpx.Response) -> None:
    calls.answer(calls.Call("", {}, lambda found: found), response)
    raise ServiceError(
        response.status_code, "unknown", "the response is not from a Deniable service"
    )

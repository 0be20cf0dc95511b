"""`Client` and `AsyncClient`: the same calls, blocking and awaitable.

A call ends within `timeout_seconds`, all its attempts and pauses together, so that a page never waits
longer for a service that hangs.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Iterable, Sequence
from typing import Any, Self, TypeVar

import httpx2 as httpx

from deniable._types import JsonObject
from deniable.client import calls
from deniable.client.calls import Call, Reward, ServiceError
from deniable.errors import InvalidArgumentError
from deniable.storage.records import Decision

T = TypeVar("T")

_log = logging.getLogger("deniable.client")


def _options(url: str, api_key: str, timeout_seconds: float) -> JsonObject:
    if not url.startswith(("http://", "https://")):
        raise InvalidArgumentError("url", url, "http://... or https://...")
    if not timeout_seconds > 0:
        raise InvalidArgumentError("timeout_seconds", timeout_seconds, "a number above 0")
    return {
        "base_url": url,
        "headers": {"Authorization": f"Bearer {api_key}"},
        "timeout": timeout_seconds,
    }


class _Remaining(dict[str, float]):
    """What is left of a deadline, as the timeout of each step of a request."""

    def __init__(self, deadline: float) -> None:
        super().__init__()
        self._deadline = deadline

    def get(self, _step: str, _default: Any = None) -> float:
        """See dict."""
        return max(1e-3, self._deadline - time.monotonic())


def _fallback(error: ServiceError, arm: str) -> Decision:
    _log.warning("the fallback is shown: %s", error)
    return Decision("", arm)


class Client:
    """Blocking client. Thread-safe.

    Args:
        url: URL of the service, without a path.
        api_key: a key with the scopes `decide` and `reward`, or one of them.
        timeout_seconds: how long a call may take, all its attempts together.
        retries: number of retries if the service cannot be reached or responds with 503.
        transport: for tests.

    >>> with Client("http://127.0.0.1:8000", api_key="dnb_...") as client:
    ...     pass  # decision = client.decide("checkout", visitor="v-1", segment="returning")
    """

    def __init__(
        self,
        url: str,
        api_key: str,
        *,
        timeout_seconds: float = 1.0,
        retries: int = 3,
        transport: httpx.BaseTransport | None = None,
    ) -> None:
        self._http = httpx.Client(**_options(url, api_key, timeout_seconds), transport=transport)
        self._retries = retries
        self._timeout_seconds = timeout_seconds

    def decide(
        self,
        experiment: str,
        visitor: str,
        segment: str | None = None,
        *,
        context: str | None = None,
        observed: bool = True,
        fallback: str | None = None,
    ) -> Decision:
        """Return the arm for this visitor, and the id for its reward.

        Args:
            experiment: the experiment's key.
            visitor: your id of the visitor.
            segment: the visitor's segment.
            context: what a tracker knows anyway, such as the device, if the experiment is on contexts.
            observed: False for a visit that no third party observes; such an experiment is decided
                with a key of its own, of the scope `unobserved`.
            fallback: the arm to return, with an empty id, if the service does not answer in time or
                refuses the call, also for a revoked key or an unknown experiment. Its reward is not
                sent. None raises ServiceError.
        """
        try:
            return self._done(calls.decide(experiment, visitor, segment, context, observed))
        except ServiceError as error:
            if fallback is None:
                raise
            return _fallback(error, fallback)

    def decide_batch(
        self,
        experiment: str,
        visitors: Iterable[tuple[str, str | None]],
        *,
        contexts: Sequence[str | None] | None = None,
        observed: bool = True,
        fallback: str | None = None,
    ) -> list[Decision]:
        """Return decisions for (visitor, segment) pairs, in order; the rest as in `decide`."""
        pairs = list(visitors)
        try:
            return self._done(calls.decide_batch(experiment, pairs, contexts, observed))
        except ServiceError as error:
            if fallback is None:
                raise
            return [_fallback(error, fallback)] * len(pairs)

    def reward(self, decision: str, value: float, metric: str | None = None) -> None:
        """Record the reward of a decision. Only the first reward per metric counts.

        Args:
            decision: the id that `decide` returned. The empty one of a fallback has no reward.
            value: from 0 to the metric's cap; without a declared cap, 1 for a click and 0 for none.
            metric: defaults to the experiment's deciding metric.
        """
        if decision:
            self._done(calls.reward(decision, value, metric))

    def reward_batch(self, rewards: Iterable[Reward]) -> None:
        """Record (decision, value) or (decision, value, metric) tuples."""
        decided = [reward for reward in rewards if reward[0]]
        if decided:
            self._done(calls.reward_batch(decided))

    def label(self, mask: str, visitor: str, segment: str | None = None) -> str:
        """Return the visitor's label for life, such as "~sports".

        Args:
            mask: the mask's name.
            visitor: 1 to 256 printable ASCII characters without spaces, compared as they are.
            segment: None if it is not known. The first known one counts; later ones are not looked at.
        """
        return self._done(calls.label(mask, visitor, segment))

    def label_batch(self, mask: str, visitors: Iterable[tuple[str, str | None]]) -> list[str]:
        """Return the labels of (visitor, segment) pairs, in order."""
        return self._done(calls.label_batch(mask, visitors))

    def stored(self, visitor: str, context: str | None = None) -> dict[str, Decision]:
        """Return the visitor's stored decisions in this context, by experiment. Never draws."""
        return self._done(calls.stored(visitor, context))

    def close(self) -> None:
        """Close the connections."""
        self._http.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exception: object) -> None:
        self.close()

    def _done(self, call: Call[T]) -> T:
        deadline = time.monotonic() + self._timeout_seconds
        for attempt in range(self._retries + 1):
            response = None
            try:
                response = self._sent(call, deadline)
                if not calls.worth_repeating(response):
                    break
            except httpx.TransportError as error:
                failure = error
            pause = calls.pause(attempt, response)
            if attempt == self._retries or time.monotonic() + pause >= deadline:
                break
            time.sleep(pause)
        if response is None:
            raise calls.unreachable(failure) from failure
        return calls.answer(call, response)

    def _sent(self, call: Call[T], deadline: float) -> httpx.Response:
        """Return the response once it is complete. One that trickles in has the same deadline."""
        extensions = {"timeout": _Remaining(deadline)}
        with self._http.stream(
            "POST", call.path, json=call.body, extensions=extensions
        ) as response:
            parts = []
            for part in response.iter_bytes():
                parts.append(part)
                if time.monotonic() > deadline:
                    raise httpx.ReadTimeout("no answer in time", request=response.request)
        headers = {**response.headers}
        headers.pop("content-encoding", None)
        return httpx.Response(response.status_code, headers=headers, content=b"".join(parts))


class AsyncClient:
    """Awaitable client, with the arguments of `Client`."""

    def __init__(
        self,
        url: str,
        api_key: str,
        *,
        timeout_seconds: float = 1.0,
        retries: int = 3,
        transport: httpx.AsyncBaseTransport | None = None,
    ) -> None:
        self._http = httpx.AsyncClient(
            **_options(url, api_key, timeout_seconds), transport=transport
        )
        self._retries = retries
        self._timeout_seconds = timeout_seconds

    async def decide(
        self,
        experiment: str,
        visitor: str,
        segment: str | None = None,
        *,
        context: str | None = None,
        observed: bool = True,
        fallback: str | None = None,
    ) -> Decision:
        """See Client."""
        try:
            return await self._done(calls.decide(experiment, visitor, segment, context, observed))
        except ServiceError as error:
            if fallback is None:
                raise
            return _fallback(error, fallback)

    async def decide_batch(
        self,
        experiment: str,
        visitors: Iterable[tuple[str, str | None]],
        *,
        contexts: Sequence[str | None] | None = None,
        observed: bool = True,
        fallback: str | None = None,
    ) -> list[Decision]:
        """See Client."""
        pairs = list(visitors)
        try:
            return await self._done(calls.decide_batch(experiment, pairs, contexts, observed))
        except ServiceError as error:
            if fallback is None:
                raise
            return [_fallback(error, fallback)] * len(pairs)

    async def reward(self, decision: str, value: float, metric: str | None = None) -> None:
        """See Client."""
        if decision:
            await self._done(calls.reward(decision, value, metric))

    async def reward_batch(self, rewards: Iterable[Reward]) -> None:
        """See Client."""
        decided = [reward for reward in rewards if reward[0]]
        if decided:
            await self._done(calls.reward_batch(decided))

    async def label(self, mask: str, visitor: str, segment: str | None = None) -> str:
        """See Client."""
        return await self._done(calls.label(mask, visitor, segment))

    async def label_batch(self, mask: str, visitors: Iterable[tuple[str, str | None]]) -> list[str]:
        """See Client."""
        return await self._done(calls.label_batch(mask, visitors))

    async def stored(self, visitor: str, context: str | None = None) -> dict[str, Decision]:
        """See Client."""
        return await self._done(calls.stored(visitor, context))

    async def close(self) -> None:
        """Close the connections."""
        await self._http.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_exception: object) -> None:
        await self.close()

    async def _done(self, call: Call[T]) -> T:
        try:
            async with asyncio.timeout(self._timeout_seconds):
                response = await self._attempts(call)
        except TimeoutError:
            raise ServiceError(None, "unreachable", "no answer in time") from None
        return calls.answer(call, response)

    async def _attempts(self, call: Call[T]) -> httpx.Response:
        for attempt in range(self._retries + 1):
            last = attempt == self._retries
            try:
                response = await self._http.post(call.path, json=call.body)
            except httpx.TransportError as error:
                if last:
                    raise calls.unreachable(error) from error
                await asyncio.sleep(calls.pause(attempt, None))
                continue
            if last or not calls.worth_repeating(response):
                break
            await asyncio.sleep(calls.pause(attempt, response))
        return response

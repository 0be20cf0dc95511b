"""`Client` and `AsyncClient`: the same calls, blocking and awaitable."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable, Mapping
from typing import Self, TypeVar

import httpx2 as httpx

from deniable._types import JsonObject
from deniable.client import calls
from deniable.client.calls import Call, Reward
from deniable.errors import InvalidArgumentError
from deniable.storage.records import Decision, GateReport

T = TypeVar("T")


def _options(url: str, api_key: str, timeout_seconds: float) -> JsonObject:
    if not url.startswith(("http://", "https://")):
        raise InvalidArgumentError("url", url, "http://... or https://...")
    return {
        "base_url": url,
        "headers": {"Authorization": f"Bearer {api_key}"},
        "timeout": timeout_seconds,
    }


class Client:
    """Blocking client. Thread-safe.

    Args:
        url: URL of the service, without a path.
        api_key: a key with the scopes `decide` and `reward`, or one of them.
        timeout_seconds: timeout of one attempt.
        retries: number of retries if the service cannot be reached or responds with 503.
        transport: for tests.
    """

    def __init__(
        self,
        url: str,
        api_key: str,
        *,
        timeout_seconds: float = 2.0,
        retries: int = 3,
        transport: httpx.BaseTransport | None = None,
    ) -> None:
        self._http = httpx.Client(**_options(url, api_key, timeout_seconds), transport=transport)
        self._retries = retries

    def decide(self, experiment: str, visitor: str, segment: str | None = None) -> Decision:
        """Return the arm for this visitor, and the id for its reward."""
        return self._done(calls.decide(experiment, visitor, segment))

    def decide_batch(
        self, experiment: str, visitors: Iterable[tuple[str, str | None]]
    ) -> list[Decision]:
        """Return decisions for (visitor, segment) pairs, in order."""
        return self._done(calls.decide_batch(experiment, visitors))

    def reward(self, decision: str, value: float, metric: str | None = None) -> None:
        """Record the reward of a decision. Only the first reward per metric counts.

        Args:
            decision: the id that `decide` returned.
            value: from 0 to the metric's cap; without a declared cap, 1 for a click and 0 for none.
            metric: defaults to the experiment's deciding metric.
        """
        self._done(calls.reward(decision, value, metric))

    def reward_batch(self, rewards: Iterable[Reward]) -> None:
        """Record (decision, value) or (decision, value, metric) tuples."""
        self._done(calls.reward_batch(rewards))

    def stored(self, visitor: str) -> dict[str, Decision]:
        """Return the visitor's stored decisions, by experiment. Never draws."""
        return self._done(calls.stored(visitor))

    def put_scores(
        self, experiment: str, scores: Mapping[str, Mapping[str, float]], kind: str = "scores"
    ) -> GateReport:
        """Set a model's scores for the next scheduled table; returns what the promise costs.

        Args:
            experiment: an experiment with the strategy "gate".
            scores: segment -> arm -> score.
            kind: `scores`, higher is better; or `probabilities`.
        """
        return self._done(calls.put_scores(experiment, scores, kind))

    def close(self) -> None:
        """Close the connections."""
        self._http.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exception: object) -> None:
        self.close()

    def _done(self, call: Call[T]) -> T:
        for attempt in range(self._retries + 1):
            last = attempt == self._retries
            try:
                response = self._http.request(call.method, call.path, json=call.body)
            except httpx.TransportError as error:
                if last:
                    raise calls.unreachable(error) from error
                time.sleep(calls.pause(attempt, None))
                continue
            if last or not calls.worth_repeating(response):
                break
            time.sleep(calls.pause(attempt, response))
        return calls.answer(call, response)


class AsyncClient:
    """Awaitable client, with the arguments of `Client`."""

    def __init__(
        self,
        url: str,
        api_key: str,
        *,
        timeout_seconds: float = 2.0,
        retries: int = 3,
        transport: httpx.AsyncBaseTransport | None = None,
    ) -> None:
        self._http = httpx.AsyncClient(
            **_options(url, api_key, timeout_seconds), transport=transport
        )
        self._retries = retries

    async def decide(self, experiment: str, visitor: str, segment: str | None = None) -> Decision:
        """See Client."""
        return await self._done(calls.decide(experiment, visitor, segment))

    async def decide_batch(
        self, experiment: str, visitors: Iterable[tuple[str, str | None]]
    ) -> list[Decision]:
        """See Client."""
        return await self._done(calls.decide_batch(experiment, visitors))

    async def reward(self, decision: str, value: float, metric: str | None = None) -> None:
        """See Client."""
        await self._done(calls.reward(decision, value, metric))

    async def reward_batch(self, rewards: Iterable[Reward]) -> None:
        """See Client."""
        await self._done(calls.reward_batch(rewards))

    async def stored(self, visitor: str) -> dict[str, Decision]:
        """See Client."""
        return await self._done(calls.stored(visitor))

    async def put_scores(
        self, experiment: str, scores: Mapping[str, Mapping[str, float]], kind: str = "scores"
    ) -> GateReport:
        """See Client."""
        return await self._done(calls.put_scores(experiment, scores, kind))

    async def close(self) -> None:
        """Close the connections."""
        await self._http.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_exception: object) -> None:
        await self.close()

    async def _done(self, call: Call[T]) -> T:
        for attempt in range(self._retries + 1):
            last = attempt == self._retries
            try:
                response = await self._http.request(call.method, call.path, json=call.body)
            except httpx.TransportError as error:
                if last:
                    raise calls.unreachable(error) from error
                await asyncio.sleep(calls.pause(attempt, None))
                continue
            if last or not calls.worth_repeating(response):
                break
            await asyncio.sleep(calls.pause(attempt, response))
        return calls.answer(call, response)

"""OpenFeature provider: flags are experiments, variants are arms, and `track` sends rewards.

::

    api.set_provider(DeniableProvider(Client(url, api_key)))
    client = api.get_client()
    context = EvaluationContext("v-1", {"segment": "returning"})
    arm = client.get_string_value("checkout", "old", context)
    client.track("checkout", context)

Requires the extra `deniable[openfeature]`.
"""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from typing import NoReturn

from openfeature.evaluation_context import EvaluationContext
from openfeature.exception import (
    FlagNotFoundError,
    GeneralError,
    InvalidContextError,
    TargetingKeyMissingError,
    TypeMismatchError,
)
from openfeature.flag_evaluation import FlagResolutionDetails, FlagValueType, Reason
from openfeature.provider import AbstractProvider, Metadata
from openfeature.track import TrackingEventDetails

from deniable.client.calls import ServiceError
from deniable.client.clients import Client
from deniable.storage.records import Decision

_log = logging.getLogger("deniable.openfeature")

REMEMBERED = 100_000
"""Number of decision ids cached for `track`; older ones are requested from the service."""


class DeniableProvider(AbstractProvider):
    """Evaluates string flags with a `Client`.

    Args:
        client: client of the service; closed by `shutdown`.
        events: event name -> the experiments whose reward it is. An unlisted event is the reward of
            the experiment of the same name.
        segment_attribute: the evaluation context's attribute with the segment. Its attribute `context`
            has what trackers know anyway.
    """

    def __init__(
        self,
        client: Client,
        *,
        events: Mapping[str, Sequence[str]] | None = None,
        segment_attribute: str = "segment",
    ) -> None:
        super().__init__()
        self._client = client
        self._events = dict(events or {})
        self._segment_attribute = segment_attribute
        self._remembered: OrderedDict[tuple[str, str, str | None], str] = OrderedDict()

    def get_metadata(self) -> Metadata:
        """Return the provider's name."""
        return Metadata(name="deniable")

    def shutdown(self) -> None:
        """Close the client."""
        self._client.close()

    def resolve_string_details(
        self,
        flag_key: str,
        default_value: str,
        evaluation_context: EvaluationContext | None = None,
    ) -> FlagResolutionDetails[str]:
        """Return the visitor's arm. The reason is the same for all visitors."""
        visitor = _visitor(evaluation_context)
        attributes = evaluation_context.attributes if evaluation_context else {}
        segment = _text(attributes, self._segment_attribute)
        context = _text(attributes, "context")
        try:
            decision = self._client.decide(flag_key, visitor, segment, context=context)
        except ServiceError as error:
            _raise(error)
        self._remember((flag_key, visitor, context), decision)
        return FlagResolutionDetails(
            value=decision.arm,
            variant=decision.arm,
            reason=Reason.SPLIT,
            flag_metadata={"decision": decision.id},
        )

    async def resolve_string_details_async(
        self,
        flag_key: str,
        default_value: str,
        evaluation_context: EvaluationContext | None = None,
    ) -> FlagResolutionDetails[str]:
        """Like `resolve_string_details`, without blocking the event loop."""
        return await asyncio.to_thread(
            self.resolve_string_details, flag_key, default_value, evaluation_context
        )

    def track(
        self,
        tracking_event_name: str,
        evaluation_context: EvaluationContext | None = None,
        tracking_event_details: TrackingEventDetails | None = None,
    ) -> None:
        """Send the event as the reward of its experiments: 1, or the details' value.

        The details' attribute `metric`, if given, names the metric. An event does not enrol a
        visitor without a decision. Failures are logged, never raised.
        """
        given = tracking_event_details.value if tracking_event_details else None
        value = 1.0 if given is None else float(given)
        metric = tracking_event_details.attributes.get("metric") if tracking_event_details else None
        try:
            visitor = _visitor(evaluation_context)
            wanted = self._events.get(tracking_event_name, (tracking_event_name,))
            attributes = evaluation_context.attributes if evaluation_context else {}
            found = self._decisions(visitor, _text(attributes, "context"), wanted)
            if found:
                self._client.reward_batch(
                    (decision, value, None if metric is None else str(metric)) for decision in found
                )
        except (ServiceError, InvalidContextError, TargetingKeyMissingError) as error:
            _log.warning("a reward was not sent: %s", type(error).__name__)

    def resolve_boolean_details(
        self,
        flag_key: str,
        default_value: bool,
        evaluation_context: EvaluationContext | None = None,
    ) -> FlagResolutionDetails[bool]:
        """Not supported: arms are strings."""
        raise _not_text()

    def resolve_integer_details(
        self,
        flag_key: str,
        default_value: int,
        evaluation_context: EvaluationContext | None = None,
    ) -> FlagResolutionDetails[int]:
        """Not supported: arms are strings."""
        raise _not_text()

    def resolve_float_details(
        self,
        flag_key: str,
        default_value: float,
        evaluation_context: EvaluationContext | None = None,
    ) -> FlagResolutionDetails[float]:
        """Not supported: arms are strings."""
        raise _not_text()

    def resolve_object_details(
        self,
        flag_key: str,
        default_value: Sequence[FlagValueType] | Mapping[str, FlagValueType],
        evaluation_context: EvaluationContext | None = None,
    ) -> FlagResolutionDetails[Sequence[FlagValueType] | Mapping[str, FlagValueType]]:
        """Not supported: arms are strings."""
        raise _not_text()

    def _decisions(
        self, visitor: str, context: str | None, experiments: Sequence[str]
    ) -> list[str]:
        """Return ids of the visitor's decisions from the cache, else from the service."""
        known = {name: self._remembered.get((name, visitor, context)) for name in experiments}
        if None in known.values():
            stored = self._client.stored(visitor, context)
            known.update((name, stored[name].id) for name in experiments if name in stored)
        return [decision for decision in known.values() if decision is not None]

    def _remember(self, visit: tuple[str, str, str | None], decision: Decision) -> None:
        self._remembered[visit] = decision.id
        self._remembered.move_to_end(visit)
        if len(self._remembered) > REMEMBERED:
            self._remembered.popitem(last=False)


def _visitor(context: EvaluationContext | None) -> str:
    if context is None or not context.targeting_key:
        raise TargetingKeyMissingError("the targeting key is the visitor's id")
    return context.targeting_key


def _text(attributes: Mapping[str, object], name: str) -> str | None:
    found = attributes.get(name)
    if found is None or isinstance(found, str):
        return found
    raise InvalidContextError(f"{name}: expected text")


def _not_text() -> TypeMismatchError:
    return TypeMismatchError("an experiment's value is the key of an arm, which is text")


def _raise(error: ServiceError) -> NoReturn:
    kinds = {404: FlagNotFoundError, 400: InvalidContextError, 422: InvalidContextError}
    raise kinds.get(error.status or 0, GeneralError)(str(error)) from error

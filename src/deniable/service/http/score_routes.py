"""Scores over HTTP: what an external model wants in an experiment with the strategy "gate"."""

from __future__ import annotations

from typing import Annotated, Literal

from fastapi import APIRouter, Depends
from pydantic import BaseModel, ConfigDict, PlainValidator, WithJsonSchema, model_validator

from deniable.errors import InvalidArgumentError
from deniable.service.http.administration import ExperimentKey, problems
from deniable.service.http.auth import Service, require
from deniable.service.scores import LARGEST_SCORE, checked_scores

scores = APIRouter(
    prefix="/v1", tags=["scores"], dependencies=[Depends(require("scores"))], responses=problems()
)


def _shaped(given: object) -> dict[str, dict[str, float]]:
    """Validate all scores at once: pydantic would report the location and thereby name a segment."""
    try:
        return checked_scores(given)
    except InvalidArgumentError as error:
        raise ValueError(f"expected {error.allowed}") from None


_ROW = {
    "type": "object",
    "minProperties": 1,
    "additionalProperties": {
        "type": "number",
        "minimum": -LARGEST_SCORE,
        "maximum": LARGEST_SCORE,
    },
}
_SCHEMA = {
    "type": "object",
    "description": "Segment -> arm -> score, for every segment and every arm.",
    "minProperties": 1,
    "additionalProperties": _ROW,
}


class ScoresRequest(BaseModel):
    """A model's scores, by segment and arm."""

    model_config = ConfigDict(json_schema_extra={"additionalProperties": False})

    kind: Literal["scores", "probabilities"] = "scores"
    scores: Annotated[dict[str, dict[str, float]], PlainValidator(_shaped), WithJsonSchema(_SCHEMA)]

    @model_validator(mode="before")
    @classmethod
    def _members(cls, given: object) -> object:
        if isinstance(given, dict) and not set(given) <= set(cls.model_fields):
            raise ValueError("expected the members kind and scores, and no other")
        return given


class ScoresReply(BaseModel):
    """What the gate will do with the scores; see `deniable.storage.records.GateReport`."""

    model_config = ConfigDict(from_attributes=True)

    experiment: str
    kind: Literal["scores", "probabilities"]
    recorded: bool
    wanted: float
    kept: float
    cost: float
    table: int
    decisions: int
    next_at: int | None
    words: str


@scores.put("/experiments/{key}/scores", responses=problems(404, 409))
def put_scores(service: Service, key: ExperimentKey, wanted: ScoresRequest) -> ScoresReply:
    """Set the scores for the next scheduled table; returns what the promise costs the model. Private."""
    report = service.scores.put(key, wanted.scores, kind=wanted.kind)
    return ScoresReply.model_validate(report)

"""Schemathesis sends what the OpenAPI allows and what it forbids: 10,400 cases, all checks on.

Every answer is in the document, none is a 5xx, what is allowed is accepted, what is forbidden is
refused, and the store is sound afterwards.
"""

from __future__ import annotations

from collections import Counter
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import hypothesis.core
import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis.errors import Unsatisfiable
from hypothesis.strategies import SearchStrategy, one_of
from schemathesis.python import asgi
from schemathesis.specs.openapi.checks import negative_data_rejection, positive_data_acceptance
from tests.patience import PATIENCE

from deniable.service.http.app import Options, create_app
from deniable.service.service import open as open_service

SHARDS = 4
CASES_PER_SHARD = 2_600
MODES = (schemathesis.GenerationMode.POSITIVE, schemathesis.GenerationMode.NEGATIVE)

BEYOND_JSON_SCHEMA = {
    "POST /v1/experiments",
    "POST /v1/experiments/{key}/arms",
    "POST /v1/experiments/{key}/contexts",
    "POST /v1/experiments/{key}/segments",
    "PUT /v1/experiments/{key}",
    "PUT /v1/experiments/{key}/labels",
    "POST /v1/experiments/{key}/notes",
    "POST /v1/firm",
    "POST /v1/keys",
    "POST /v1/masks",
    "POST /v1/plan",
}
"""Arms and segments that differ, printable names, a reason where a budget is raised, shares that add up:
the schema cannot say it."""


@pytest.mark.parametrize("shard", range(SHARDS))
def test_every_answer_is_the_documented_one(
    tmp_path: Path, shard: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Schemathesis makes new strategies for each case. To look through all of their parts takes a sixth
    # of the time, and finds only that schemathesis called Hypothesis wrongly.
    monkeypatch.setattr(SearchStrategy, "validate", lambda _: None)
    # Cases are drawn by Hypothesis, and the service takes randomness from os.urandom: nobody needs the
    # global generators of Python and NumPy to be saved, seeded and put back for each case.
    monkeypatch.setattr(hypothesis.core, "deterministic_PRNG", nullcontext)
    service = open_service(f"sqlite:///{tmp_path / 'store.db'}")
    service.firm.set(budget=100.0)
    for key in ("checkout", "hero", "banner"):
        kind = {"observed": False} if key == "banner" else {"budget": 1.0}
        service.experiments.create(key, arms=["a", "b", "c"], segments=["x"], **kind)
        service.experiments.start(key)
    secret, _ = service.keys.create("schemathesis", ["admin"])
    app: Any = create_app(service, Options(log_requests="none"))
    schema = schemathesis.openapi.from_asgi("/openapi.json", app)
    schema.config.request_timeout = PATIENCE
    found: list[Any] = list(schema.get_all_operations())
    operations = [item.ok() for item in found]
    mine = [op for op in operations if _varied(op)][shard::SHARDS]
    each = -(-CASES_PER_SHARD // (len(mine) * len(MODES)))
    statuses: Counter[int] = Counter()
    with asgi.get_client(app) as client:
        client.trust_env = False  # no proxy is looked for, ten thousand times
        for operation in mine:
            for mode in MODES:
                _send(
                    operation, mode, each, {"Authorization": f"Bearer {secret}"}, client, statuses
                )
    assert statuses.total() >= CASES_PER_SHARD
    assert statuses[422] + statuses[400] > CASES_PER_SHARD / 8  # the forbidden half was sent
    assert statuses[200] + statuses[201] + statuses[204] > CASES_PER_SHARD / 8
    assert service.ledger.verify().sound
    asgi.shutdown_lifespans()
    service.close()


def test_the_document_names_every_route() -> None:
    """Also those that FastAPI does not know."""
    with open_service("memory:") as service:
        app = create_app(service)
        paths = app.api.openapi()["paths"]
        routes = {path for route in app.api.routes if (path := getattr(route, "path", None))}
    assert routes - paths.keys() == {"/openapi.json"}
    assert {
        "/v1/experiments/{key}/decisions",
        "/v1/experiments/{key}/decisions/batch",
        "/v1/rewards",
        "/v1/rewards/batch",
        "/ofrep/v1/evaluate/flags",
        "/ofrep/v1/evaluate/flags/{key}",
    } <= paths.keys()


def _varied(operation: Any) -> bool:
    """Whether there is anything to vary: a key, a body."""
    return bool(operation.body) or "{" in operation.path


KEYS = ("checkout", "hero", "banner", None, "no-such-experiment")
"""Most cases that are allowed meet an experiment that exists; None: whatever is generated."""


def _cases(operation: Any, mode: schemathesis.GenerationMode, headers: dict[str, str]) -> Any:
    """Cases of an operation. What is allowed says who asks, so that nothing is generated in vain."""
    if mode is MODES[1]:
        return operation.as_strategy(generation_mode=mode)
    fixed = [{"key": key} if key and "{key}" in operation.path else None for key in KEYS]
    return one_of(
        [
            operation.as_strategy(generation_mode=mode, path_parameters=known, headers=headers)
            for known in fixed
        ]
    )


def _send(
    operation: Any,
    mode: schemathesis.GenerationMode,
    cases: int,
    headers: dict[str, str],
    client: Any,
    statuses: Counter[int],
) -> None:
    excluded = [positive_data_acceptance] if operation.label in BEYOND_JSON_SCHEMA else []

    @given(_cases(operation, mode, headers))
    @settings(
        max_examples=cases,
        deadline=None,
        database=None,
        derandomize=True,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    def run(case: Any) -> None:
        # A missing key is put right by the session, and a nameless query means nothing to anybody:
        # what was sent is then not what was generated to be refused.
        healed = "Authorization" not in (case.headers or {}) or "" in (case.query or {})
        answer = case.call(session=client, headers=headers)
        statuses[answer.status_code] += 1
        assert "cache-control" in answer.headers
        case.validate_response(
            answer,
            headers=headers,
            excluded_checks=[*excluded, negative_data_rejection] if healed else excluded,
            transport_kwargs={"session": client, "headers": headers},
        )

    try:
        run()
    except Unsatisfiable:  # nothing can be forbidden about it
        assert mode is MODES[1]

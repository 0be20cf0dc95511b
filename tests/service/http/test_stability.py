"""The HTTP interface as released: nothing of it goes away, and nothing new is asked for.

`v1.json` holds every operation under `/v1/` and OFREP with the fields of its request, of its answer, and
those that a request needs. Additions are allowed; a release writes them down by
`python -m tests.service.http.test_stability`. What is written down stays (docs/stability.md).
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from deniable.service.http.app import Options, create_app
from deniable.service.service import open as open_service

RELEASED = Path(__file__).parent / "v1.json"
Interface = dict[str, dict[str, list[str]]]


def interface() -> Interface:
    """Operation -> what it takes, needs and answers, as dotted names."""
    with open_service("memory:") as service:
        document = create_app(service, Options(log_requests="none")).api.openapi()
    found: Interface = {}
    for path, operations in document["paths"].items():
        if not path.startswith(("/v1/", "/ofrep/")):
            continue
        for method, operation in operations.items():
            needs: set[str] = set()
            given = operation.get("parameters", ())
            takes = {f"?{one['name']}" for one in given}
            needs |= {f"?{one['name']}" for one in given if one.get("required")}
            body = operation.get("requestBody", {}).get("content", {}).get("application/json", {})
            takes |= _fields(document, body.get("schema", {}), "", needs, ())
            answers: set[str] = set()
            for status, answer in operation["responses"].items():
                if status.startswith("2"):
                    schema = answer.get("content", {}).get("application/json", {}).get("schema", {})
                    answers |= _fields(document, schema, "", set(), ())
            found[f"{method.upper()} {path}"] = {
                "takes": sorted(takes),
                "needs": sorted(needs),
                "answers": sorted(answers),
            }
    return found


def _fields(
    document: Any, schema: Any, inside: str, needs: set[str], seen: tuple[str, ...]
) -> set[str]:
    """Dotted names of all properties below a schema; `needs` gets those that are required."""
    if "$ref" in schema:
        name = schema["$ref"]
        if name in seen:
            return set()
        target = document["components"]["schemas"][name.rpartition("/")[2]]
        return _fields(document, target, inside, needs, (*seen, name))
    found: set[str] = set()
    for kind in ("anyOf", "oneOf", "allOf"):
        for part in schema.get(kind, ()):
            found |= _fields(document, part, inside, set(), seen)
    if "items" in schema:
        found |= _fields(document, schema["items"], f"{inside}[]", needs, seen)
    for name, part in schema.get("properties", {}).items():
        place = f"{inside}.{name}".lstrip(".")
        found.add(place)
        if name in schema.get("required", ()):
            needs.add(place)
        found |= _fields(document, part, place, needs, seen)
    return found


def broken(released: Interface, now: Interface) -> list[str]:
    """What a client that was written for the released interface would stumble over."""
    told = []
    for operation, old in released.items():
        new = now.get(operation)
        if new is None:
            told.append(f"{operation} is gone")
            continue
        told += [f"{operation} no longer takes {x}" for x in set(old["takes"]) - set(new["takes"])]
        told += [
            f"{operation} no longer answers {x}" for x in set(old["answers"]) - set(new["answers"])
        ]
        told += [f"{operation} needs {x}" for x in set(new["needs"]) - set(old["needs"])]
    return told


def test_what_was_released_stays() -> None:
    assert broken(json.loads(RELEASED.read_text()), interface()) == []


@pytest.mark.parametrize("part", ["takes", "answers", "needs", "operation"])
def test_a_break_is_found(part: str) -> None:
    released: Interface = json.loads(RELEASED.read_text())
    changed: Interface = json.loads(RELEASED.read_text())
    name = "POST /v1/experiments/{key}/decisions"
    if part == "operation":
        del changed[name]
    elif part == "needs":
        changed[name]["needs"].append("colour")
    else:
        changed[name][part].pop()
    assert len(broken(released, changed)) == 1


if __name__ == "__main__":
    RELEASED.write_text(json.dumps(interface(), indent=1) + "\n")

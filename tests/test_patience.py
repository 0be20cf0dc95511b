"""Tests do not give up on a busy machine: their HTTP clients name a timeout, or talk to no network."""

from __future__ import annotations

import ast
from pathlib import Path

TESTS = Path(__file__).parent
CALLS = {"AsyncClient", "Client", "delete", "get", "post", "put", "request"}
ENOUGH = {"timeout", "transport"}
"""httpx waits for five seconds where nothing is said; a transport in process waits for ever."""


def impatient(code: str) -> list[int]:
    """Lines with a call of httpx that says neither."""
    return [
        node.lineno
        for node in ast.walk(ast.parse(code))
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and isinstance(node.func.value, ast.Name)
        and (node.func.value.id, node.func.attr) in {("httpx", name) for name in CALLS}
        and not ENOUGH & {keyword.arg for keyword in node.keywords}
    ]


def test_nobody_waits_for_five_seconds_only() -> None:
    files = sorted(TESTS.rglob("*.py"))
    found = {str(file.relative_to(TESTS)): impatient(file.read_text("utf-8")) for file in files}
    assert {name: lines for name, lines in found.items() if lines} == {}


def test_an_impatient_call_is_found() -> None:
    assert impatient("httpx.get(url)\nhttpx.get(url, timeout=1)\nclient.get(url)") == [1]

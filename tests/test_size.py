"""Lines of code by layer, without blanks, comments and docstrings: growth is a decision, made here."""

from __future__ import annotations

import ast
import io
import tokenize
from collections import Counter
from pathlib import Path

PACKAGE = Path(__file__).parents[1] / "src/deniable"

MOST = {
    "analysis": 1850,
    "audit": 2700,
    "charts": 1750,
    "cli": 3050,
    "client": 500,
    "demo": 550,
    "documents": 600,
    "expectations": 800,
    "inference": 1250,
    "leak": 2300,
    "masks": 1050,
    "planning": 1400,
    "portfolio": 1700,
    "privacy": 800,
    "report": 350,
    "service": 8600,
    "simulation": 3250,
    "storage": 5000,
    "strategies": 2050,
    "theory": 750,
    "top": 600,
    "web": 4150,
}
"""Layer -> the most lines of code that it may have."""

NOT_CODE = (
    tokenize.COMMENT,
    tokenize.NL,
    tokenize.NEWLINE,
    tokenize.INDENT,
    tokenize.DEDENT,
    tokenize.ENDMARKER,
)


def lines_of_code(text: str) -> int:
    """Return the number of lines with code.

    >>> lines_of_code('x = 1  # why' + chr(10) * 2 + 'def f():' + chr(10) + '    "Words."' + chr(10))
    2
    """
    words = {
        line
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, str)
        for line in range(node.lineno, (node.end_lineno or node.lineno) + 1)
    }
    code = {
        line
        for token in tokenize.generate_tokens(io.StringIO(text).readline)
        if token.type not in NOT_CODE
        for line in range(token.start[0], token.end[0] + 1)
    }
    return len(code - words)


def test_no_layer_has_outgrown_its_budget() -> None:
    sizes: Counter[str] = Counter()
    for path in PACKAGE.rglob("*.py"):
        parts = path.relative_to(PACKAGE).parts
        sizes[parts[0] if len(parts) > 1 else "top"] += lines_of_code(path.read_text("utf-8"))
    assert set(sizes) == set(MOST)
    assert {layer: size for layer, size in sizes.items() if size > MOST[layer]} == {}

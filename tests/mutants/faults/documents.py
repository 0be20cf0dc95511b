"""Faults of the documents: wrong limits, facts that are not the chain's, names that become markup."""

from __future__ import annotations

from tests.mutants.fault import Fault

TESTS = "tests/documents/test_documents.py"
LIMITS = (
    f"{TESTS}::test_beliefs_are_those_of_the_formula_rounded_outwards",
    f"{TESTS}::test_limits_are_never_told_too_small",
)
LASTING = (f"{TESTS}::test_later_events_do_not_change_a_document",)
CHAIN = (f"{TESTS}::test_documents_are_made_from_the_chain_not_from_rows",)
HOSTILE = ("tests/documents/test_rendering.py::test_hostile_names_stay_text",)
ROW = (
    "e._replace(detail={**e.detail, 'budget_nano': experiments.matching(connection, "
    "__import__('deniable.storage.schema', fromlist=['x']).experiments.c.id == experiment_id)"
    "[0].budget_nano}) if (e.kind, e.experiment_id) == ('create', experiment_id) else e"
)

FAULTS = (
    Fault(
        "documents/limits.py",
        "return prior * ratio / (prior * ratio + 1 - prior)",
        "return prior * ratio / (prior * ratio + 1)",
        "a belief is told too small",
        LIMITS,
    ),
    Fault(
        "documents/limits.py",
        "found = _percent(share, digits, ROUND_CEILING)",
        "found = _percent(share, digits, ROUND_FLOOR)",
        "what is at most is rounded down",
        LIMITS,
    ),
    Fault(
        "documents/limits.py",
        "context = Context(prec=3, rounding=ROUND_CEILING)",
        "context = Context(prec=3, rounding=ROUND_FLOOR)",
        "the factor is rounded down",
        LIMITS,
    ),
    Fault(
        "documents/facts.py",
        "counting_nano=found.points[-1][1]",
        "counting_nano=sum(share.nano for share in shares)",
        "experiments of one layer are added up",
        (f"{TESTS}::test_the_account_of_layers_and_of_stopped_experiments",),
    ),
    Fault(
        "service/documents.py",
        "        entries=tuple(entries),",
        f"        entries=tuple({ROW} for e in entries),",
        "the budget is that of the row, which can be changed",
        CHAIN,
    ),
    Fault(
        "service/documents.py",
        "bytes.fromhex(issued.experiment_id), issued.height)",
        "bytes.fromhex(issued.experiment_id))",
        "a document is made again from the newest entries",
        LASTING,
    ),
    Fault(
        "service/documents.py",
        "promises.check(connection, experiments.by_key(connection, key))",
        "pass",
        "documents are issued about rows that somebody changed",
        CHAIN,
    ),
    Fault(
        "service/documents.py",
        "if digest in (issued.html, issued.markdown):",
        "if issued.number.encode() in content:",
        "a file is known by its number",
        (f"{TESTS}::test_an_edited_file_is_found",),
    ),
    Fault(
        "service/documents.py",
        'if entry.detail["number"].startswith(f"{year:04d}-")',
        "if True",
        "numbers go on in the next year",
        (f"{TESTS}::test_numbers_count_within_a_year",),
    ),
    Fault(
        "documents/source.py",
        'Markup(_MARKUP.sub(r"\\\\\\g<0>", _LINE_ENDS.sub(" ", str(value))))',
        "Markup(str(value))",
        "names become the markup of the templates",
        (*HOSTILE, "tests/documents/test_source.py::test_facts_stay_text"),
    ),
    Fault(
        "report/html.py",
        "autoescape=True",
        "autoescape=False",
        "names become HTML",
        HOSTILE,
    ),
    Fault(
        "report/markdown.py",
        'text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")',
        "text",
        "names become HTML inside of Markdown",
        HOSTILE,
    ),
    Fault(
        "report/markdown.py",
        'text = _ESCAPED.sub(r"\\\\\\1", text)',
        "text = text",
        "names become Markdown",
        HOSTILE,
    ),
)

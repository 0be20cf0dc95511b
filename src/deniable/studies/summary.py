"""The summary: each study's finding and claims as Markdown, to be kept beside code or pasted."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from deniable.studies.contract import Claim
from deniable.studies.publish import Record, read_record
from deniable.studies.registry import Study


def summary_markdown(folder: Path, studies: Sequence[Study]) -> str:
    """The findings of the studies that the folder holds, in their order."""
    found = [(study, record) for study in studies if (record := read_record(folder / study.name))]
    return "\n".join(_section(study, record) for study, record in found)


def _section(study: Study, record: Record) -> str:
    beyond = "" if study.in_paper else " (beyond the paper)"
    quick = "\nA quick run: it shows that everything works; conclude from a full one.\n"
    rows = "".join(map(_row, record.claims))
    table = (
        f"\n| claim | paper | here | verdict | why |\n|---|---|---|---|---|\n{rows}" if rows else ""
    )
    return (
        f"## {study.title}{beyond}\n{quick if record.quick else ''}\n**{record.headline}**\n{table}"
    )


def _row(claim: Claim) -> str:
    cells = (claim.text, claim.paper, claim.ours, claim.verdict, claim.why)
    return f"| {' | '.join(cell.replace('|', '/') for cell in cells)} |\n"

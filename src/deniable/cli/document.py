"""`deniable document`: numbered documents to sign, made again and verified from the ledger."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from deniable.cli.printing import AsJson, print_found, print_json
from deniable.cli.stores import KeyFile, Store, opened
from deniable.errors import InvalidArgumentError

if TYPE_CHECKING:
    from deniable.documents.content import Document
    from deniable.service.service import Deniable

app = typer.Typer(add_completion=False)

CHANGED = 1
"""Exit status where a file is not what the ledger says."""

FORMATS = (".html", ".pdf", ".md")


@app.command()
def document(
    experiment: Annotated[
        str, typer.Argument(help="The experiment's key (default: the firm's labels).")
    ] = "",
    kind: Annotated[
        str,
        typer.Option(
            "--as",
            help="Kind of document: statement, dpia, registry or record.",
            show_default=False,
        ),
    ] = "",
    out: Annotated[
        Path | None,
        typer.Option(help="Write to FILE.(html|pdf|md) (default: print Markdown)."),
    ] = None,
    firm: Annotated[str, typer.Option(help="The firm's name (default: a line to fill in).")] = "",
    segment_names: Annotated[
        bool, typer.Option(help="Whether the document names the segments.")
    ] = True,
    by: Annotated[str, typer.Option(help="Name of the issuer, for the ledger.")] = "",
    draft: Annotated[
        bool, typer.Option("--draft", help="Make a draft, without a number or a ledger entry.")
    ] = False,
    at: Annotated[
        int | None, typer.Option(help="Make a draft as of this ledger entry.", show_default=False)
    ] = None,
    number: Annotated[str, typer.Option(help="Write an issued document again.")] = "",
    verify: Annotated[
        Path | None,
        typer.Option(help="Check that FILE is an unchanged issued document; exit with 1 if not."),
    ] = None,
    listed: Annotated[bool, typer.Option("--list", help="List issued documents.")] = False,
    store: Store = "",
    key_file: KeyFile = "",
    as_json: AsJson = False,
) -> None:
    """Issue a document: a statement to sign, a DPIA annex, a register entry or a record.

    It takes the next number, is recorded in the ledger, and can be reproduced from the ledger at any
    time.
    """
    _check_call(
        experiment, kind, draft=draft or at is not None, number=number, verify=verify, listed=listed
    )
    if out is not None:
        from deniable.report.save import check_report_path

        check_report_path(out, FORMATS)
    with opened(store, key_file) as service:
        if verify is not None:
            _verify(service, verify, as_json)
        elif listed:
            _list(service, experiment or None, as_json)
        elif number:
            _write(service, service.documents.again(number), out)
        elif draft or at is not None:
            _write(
                service,
                service.documents.draft(
                    experiment or None, kind, firm=firm, height=at, names_segments=segment_names
                ),
                out,
            )
        else:
            issued = service.documents.issue(
                experiment or None, kind, firm=firm, actor=by, names_segments=segment_names
            )
            if as_json:
                print_json(issued)
            if out is not None or not as_json:
                _write(service, service.documents.again(issued.number), out)
            typer.echo(f"issued: {issued.number}, entry {issued.seq} of the ledger", err=True)


def _check_call(
    experiment: str, kind: str, *, draft: bool, number: str, verify: Path | None, listed: bool
) -> None:
    """One thing at a time, with what it needs."""
    asked = [bool(number), verify is not None, listed, draft]
    if sum(asked) > 1:
        raise InvalidArgumentError(
            "options", "...", "one of --number, --verify, --list and --draft or --at"
        )
    if number or verify is not None or listed:
        if kind or (experiment and not listed):
            raise InvalidArgumentError(
                "options", "...", "no experiment and no --as with --number, --verify or --list"
            )
        return
    from deniable.documents.assembly import checked_kind

    if not experiment and kind != "statement":
        raise InvalidArgumentError("experiment", experiment, "the key of an experiment")
    checked_kind(kind)


def _write(service: Deniable, made: Document, out: Path | None) -> None:
    from deniable.documents import rendering

    if out is None:
        typer.echo(rendering.markdown(made), nl=False)
        return
    ending = out.suffix.lower()
    if ending == ".pdf":
        dated = service.documents.get(made.number).issued_at if made.number else None
        out.write_bytes(rendering.pdf(made, dated))
    else:
        text = rendering.html(made) if ending == ".html" else rendering.markdown(made)
        out.write_bytes(text.encode())
    typer.echo(f"document: {out}", err=True)


def _verify(service: Deniable, path: Path, as_json: bool) -> None:
    found = service.documents.verify(path.read_bytes())
    if as_json:
        print_json(found)
    else:
        typer.echo(found.words, err=not found.sound)
    if not found.sound:
        raise typer.Exit(CHANGED)


def _list(service: Deniable, experiment: str | None, as_json: bool) -> None:
    found = service.documents.all(experiment)
    print_found(
        found,
        "Issued documents",
        ("number", "when", "what", "experiment", "made from entries to", "entry", "by"),
        lambda d: (d.number, d.issued_at, d.kind, d.experiment, d.height, d.seq, d.actor),
        as_json=as_json,
    )

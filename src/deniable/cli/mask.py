"""`deniable mask`: private labels for segments, in files and in SQL."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from deniable.cli.printing import AsJson, ChartFile, check_chart, print_json, write_chart
from deniable.cli.progress import progress_bar
from deniable.errors import InvalidArgumentError
from deniable.masks.mask import Mask
from deniable.report.terminal import print_table

app = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    help="Give each visitor one private label for life, instead of the segment.",
)

MaskFile = Annotated[Path, typer.Argument(help="The mask's file, as `create` wrote it.")]
KeyFile = Annotated[
    Path | None,
    typer.Option(help="File with the key (64 hex digits, mode 600); else DENIABLE_MASK_KEY."),
]
VisitorColumn = Annotated[str, typer.Option(help="Column of the visitor's id.")]
SegmentColumn = Annotated[str, typer.Option(help="Column of the segment.")]
Shares = Annotated[
    str, typer.Option(help="Visitors by segment, in whole percents: 40,30,20,10. Equal by default.")
]
VECTOR_VISITORS = ("deniable-test-1", "deniable-test-2", "deniable-test-3")


@app.command()
def create(
    name: Annotated[str, typer.Argument(help="Lower-case letters, digits and hyphens.")],
    segments: Annotated[str, typer.Option(help="All segments: sports,music,garden")],
    budget: Annotated[str, typer.Option(help="Privacy budget in nats, spent once.")],
    out: Annotated[
        Path | None, typer.Option(help="File to write; NAME.mask.json by default.")
    ] = None,
    key_file: KeyFile = None,
    new_key: Annotated[
        bool, typer.Option("--new-key", help="Create the key file with a random key.")
    ] = False,
    group: Annotated[
        list[str] | None,
        typer.Option(help="A label for several segments: outdoor=sports,garden. Can be repeated."),
    ] = None,
    shares: Annotated[
        str, typer.Option(help="Group segments for visitors in whole percents: 40,30,20,10.")
    ] = "",
    version: Annotated[int, typer.Option(help="Raise it when segments or budget change.")] = 1,
    period: Annotated[str, typer.Option(help="A new period is a new budget.")] = "life",
) -> None:
    """Create a mask: which labels there are, and how much a label may reveal."""
    from deniable.masks import definition
    from deniable.masks.limit import design_groups

    names = segments.split(",")
    target = out or Path(f"{name}.mask.json")
    if not target.parent.is_dir():
        raise InvalidArgumentError("out", str(target), "a file in a folder that exists")
    groups = _groups(group) if group else None
    if shares:
        if group:
            raise InvalidArgumentError("shares", shares, "either shares or groups")
        percents = dict(zip(names, _percents(shares, len(names)), strict=True))
        groups = {
            label: list(members)
            for label, members in design_groups(percents, float(budget)).items()
        }
    # Everything is checked with a key of zeros first, so that a mistake leaves no key behind.
    settings = {"version": version, "period": period, "groups": groups}
    Mask(segments=names, budget=budget, key=bytes(32), name=name, **settings)  # type: ignore[arg-type]
    if new_key:
        if key_file is None:
            raise InvalidArgumentError("key_file", None, "a file for the new key")
        key = definition.new_key(key_file)
    else:
        key = definition.read_key(key_file)
    mask = Mask(segments=names, budget=budget, key=key, name=name, **settings)  # type: ignore[arg-type]
    definition.write_mask(mask, target)
    typer.echo(f"{target}: {len(mask.groups)} labels, budget {mask.budget}, key {mask.fingerprint}")
    typer.echo("Keep the key secret and back it up: without it, nobody gets the same label again.")


@app.command()
def show(
    file: MaskFile,
    key_file: KeyFile = None,
    shares: Shares = "",
    as_json: AsJson = False,
    chart: ChartFile = None,
) -> None:
    """Show what a label tells, and what is promised."""
    check_chart(chart)
    mask = _opened(file, key_file)
    weights = [p / 100 for p in _percents(shares, len(mask.segments))] if shares else None
    posterior = mask.posterior(weights)
    own = [
        posterior[n, [mask.segments.index(s) for s in group]].sum()
        for n, group in enumerate(mask.groups.values())
    ]
    if as_json:
        print_json(
            {
                "mask": mask.name,
                "version": mask.version,
                "period": mask.period,
                "budget": str(mask.budget),
                "channel": mask.channel_hash,
                "key": mask.fingerprint,
                "labels": {
                    label: {"segments": list(members), "own_share": float(share)}
                    for (label, members), share in zip(mask.groups.items(), own, strict=True)
                },
                "belief_from_20_percent": mask.highest_belief(0.2),
                "limit": mask.expected_limit(weights, heterogeneity=0.8),
            }
        )
    else:
        print_table(
            f"Mask {mask.name}, version {mask.version}, period {mask.period}",
            ("label", "segments", "of 100 people with it, in its segments"),
            [
                (f"~{label}", ", ".join(members), round(100 * float(share), 1))
                for (label, members), share in zip(mask.groups.items(), own, strict=True)
            ],
        )
        typer.echo(_promise(mask))
    write_chart(lambda: mask.chart(weights), chart)


@app.command()
def check(
    file: MaskFile,
    key_file: KeyFile = None,
    dialect: Annotated[
        str, typer.Option(help="Print the statement that must return these labels: duckdb, ...")
    ] = "",
    as_json: AsJson = False,
) -> None:
    """Print labels of test visitors, to compare with every engine that computes labels."""
    from deniable.masks.sql import check_sql

    mask = _opened(file, key_file)
    rows: list[tuple[str, str | None]] = [
        (visitor, segment)
        for visitor in VECTOR_VISITORS
        for segment in (mask.segments[0], mask.segments[-1], None)
    ]
    if dialect:
        typer.echo(check_sql(mask, dialect, rows))
        return
    vector = [(visitor, segment, mask.label(visitor, segment)) for visitor, segment in rows]
    if as_json:
        keys = ("visitor", "segment", "label")
        print_json([dict(zip(keys, row, strict=True)) for row in vector])
    else:
        print_table(
            f"Labels of mask {mask.name}, channel {mask.channel_hash}, key {mask.fingerprint}",
            ("visitor", "segment", "label"),
            vector,
        )


@app.command()
def label(
    file: MaskFile,
    rows: Annotated[Path, typer.Argument(help="CSV, Parquet or JSON-lines file with segments.")],
    out: Annotated[Path, typer.Option(help="File to write, in the format of its extension.")],
    key_file: KeyFile = None,
    visitor: VisitorColumn = "visitor",
    segment: SegmentColumn = "segment",
    replace: Annotated[
        bool, typer.Option("--replace", help="Leave the segment's column out.")
    ] = False,
    first_values: Annotated[
        Path | None,
        typer.Option(help="Parquet file that remembers each visitor's first segment group."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Add a column with labels to a file. A run that was stopped can be repeated and goes on."""
    from deniable.masks.definition import read_key
    from deniable.masks.files import count_rows, label_file

    mask = _opened(file, key_file)
    total = count_rows(rows)
    with progress_bar("rows") as progress:
        written = label_file(
            mask,
            rows,
            out,
            key=read_key(key_file),
            visitor=visitor,
            segment=segment,
            replace=replace,
            first_values=first_values,
            progress=lambda done: progress("labelling", done, total),
        )
    if as_json:
        print_json({**written.__dict__, "path": str(written.path)})
        return
    print_table(
        f"{written.path}: {written.rows:,} rows",
        ("label", "rows"),
        list(written.label_counts.items()),
    )
    if written.without_segment:
        typer.echo(
            f"Rows without a segment (labels from equal chances): {written.without_segment:,}"
        )
    if written.changed is None:
        typer.echo(
            "Without --first-values the promise holds for each segment that a person has had, and a "
            "label that changes proves that the segment changed."
        )
    elif written.changed:
        typer.echo(
            f"Rows with another segment than the first (the label stays): {written.changed:,}"
        )


@app.command()
def sql(
    file: MaskFile,
    dialect: Annotated[str, typer.Option(help="duckdb, postgres, bigquery, snowflake or spark.")],
    key_file: KeyFile = None,
    table: Annotated[str, typer.Option(help="Table with visitors and segments.")] = "visitors",
    visitor: VisitorColumn = "visitor",
    segment: SegmentColumn = "segment",
    key_table: Annotated[
        str, typer.Option(help="Table with the padded key: inner_pad, outer_pad.")
    ] = "deniable_mask_key",
    key_csv: Annotated[
        Path | None,
        typer.Option(help="Also write the padded key to this CSV file, to load into that table."),
    ] = None,
) -> None:
    """Print a SQL statement that computes the labels. The key is not in it."""
    from deniable.masks.definition import read_key, write_key_pads
    from deniable.masks.sql import key_pads, label_sql

    mask = _opened(file, key_file)
    names = {"table": table, "visitor": visitor, "segment": segment, "key_table": key_table}
    statement = label_sql(mask, dialect, **names)
    if key_csv is not None:
        write_key_pads(key_csv, key_pads(read_key(key_file)))
        typer.echo(f"{key_csv}: the padded key; delete it when it is loaded", err=True)
    typer.echo(statement)


@app.command()
def audit(
    file: MaskFile,
    rows: Annotated[Path, typer.Argument(help="File with labels.")],
    key_file: KeyFile = None,
    visitor: VisitorColumn = "visitor",
    segment: Annotated[str, typer.Option(help="Column of the segment; - if it was dropped.")] = (
        "segment"
    ),
    first_values: Annotated[Path | None, typer.Option(help="File of first values.")] = None,
    as_json: AsJson = False,
) -> None:
    """Recompute every label of a file, and test how frequent labels are."""
    from deniable.masks.audit import ALARM, audit_labels
    from deniable.masks.definition import read_key
    from deniable.masks.files import count_rows

    mask = _opened(file, key_file)
    total = count_rows(rows)
    with progress_bar("rows") as progress:
        result = audit_labels(
            mask,
            rows,
            key=read_key(key_file),
            visitor=visitor,
            segment=None if segment == "-" else segment,
            first_values=first_values,
            progress=lambda done: progress("checking", done, total),
        )
    if as_json:
        print_json({**result.__dict__, "kept": result.kept})
    else:
        first = "" if result.first_wrong is None else f" (the first is row {result.first_wrong:,})"
        typer.echo(f"Rows: {result.rows:,}")
        typer.echo(f"Rows with a wrong label: {result.wrong:,}{first}")
        typer.echo(f"Rows without a known segment: {result.unchecked:,}")
        typer.echo(f"Rows whose visitor had another label before: {result.two_labels:,}")
        typer.echo(f"Frequencies of labels: p = {result.p_value:.3g}; below {ALARM:g} is an alarm.")
        typer.echo(
            f"A probability {result.power:.1%} too high would be noticed in 99 of 100 audits."
            if result.power < 1
            else "There are too few visitors for the frequencies to show anything."
        )
        typer.echo(
            "The labels are as promised." if result.kept else "The labels are NOT as promised."
        )
    if not result.kept:
        raise typer.Exit(1)


def _opened(file: Path, key_file: Path | None) -> Mask:
    from deniable.masks.definition import read_key, read_mask

    return read_mask(file, read_key(key_file))


def _promise(mask: Mask) -> str:
    return (
        "A tracker that was 20% sure of someone's segment can become at most "
        f"{mask.highest_belief(0.2):.1%} sure, whatever it sees of pages, mails and experiments that "
        f"use only the label (budget {mask.budget} nats).\n"
        "This holds for one id of a person, one period and the first segment that was known. Use one "
        "file of --first-values for all files: without it, the promise holds for each segment that a "
        "person has had, and a label that changes proves that the segment changed.\n"
        "What people do themselves (clicks, visits) may tell more. Other masks, other ids of the same "
        "person and experiments that read the segment add up."
    )


def _groups(options: list[str]) -> dict[str, list[str]]:
    groups: dict[str, list[str]] = {}
    for option in options:
        label, sign, members = option.partition("=")
        if not sign or label in groups:
            raise InvalidArgumentError("group", option, "LABEL=segment,segment, each label once")
        groups[label] = members.split(",")
    return groups


def _percents(text: str, count: int) -> list[int]:
    from deniable._numbers import whole

    percents = [whole("shares", part, 0, 100) for part in text.split(",")]
    if len(percents) != count or sum(percents) != 100:
        raise InvalidArgumentError("shares", text, f"{count} whole percents that sum to 100")
    return percents

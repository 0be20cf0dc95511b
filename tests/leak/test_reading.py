"""Logs as firms have them: formats, column names, times, and what is refused."""

from __future__ import annotations

import gzip
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from tests.leak.logs import visits, written

from deniable.errors import InvalidArgumentError
from deniable.leak.columns import find_columns
from deniable.leak.report import Leak, measure_leak

ROWS = "segment,variant,count,clicks\na,x,80,8\na,y,20,1\nb,x,30,3\nb,y,70,7\n"


def read(text: str | bytes, folder: Path, name: str = "log.csv", **columns: str) -> Leak:
    path = folder / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return measure_leak(path, columns=columns)


def totals(leak: Leak) -> Any:
    (counts,) = leak.tally.experiments
    return counts.total.tolist()


@pytest.mark.parametrize(
    ("header", "roles"),
    [
        (  # GrowthBook's assignment query with a dimension
            "user_id,timestamp,experiment_id,variation_id,tier",
            "visitor=user_id time=timestamp experiment=experiment_id variant=variation_id segment=tier",
        ),
        (  # GA4 in BigQuery, flattened
            "user_pseudo_id,event_timestamp,experiment_id,variant_id,audience_name,purchase",
            "visitor=user_pseudo_id time=event_timestamp experiment=experiment_id "
            "variant=variant_id segment=audience_name reward=purchase",
        ),
        (  # Statsig
            "unit_id,experiment_group,first_exposure_utc,Segment",
            "visitor=unit_id variant=experiment_group time=first_exposure_utc segment=Segment",
        ),
        (  # this product's own private export
            "experiment,decision,visitor,decided_at,segment,greedy,shown,propensity,reward",
            "experiment=experiment visitor=visitor time=decided_at segment=segment variant=shown "
            "reward=reward propensity=propensity",
        ),
        (
            "Segment,Variant,Impressions,Clicks",
            "segment=Segment variant=Variant count=Impressions reward=Clicks",
        ),
    ],
)  # fmt: skip
def test_column_names_are_guessed(header: str, roles: str) -> None:
    found = dict(find_columns(header.split(",")).used())
    assert found == dict(pair.split("=") for pair in roles.split())


def test_given_columns_come_before_guesses(tmp_path: Path) -> None:
    text = ROWS.replace("segment", "where").replace("variant", "segment")
    found = read(text, tmp_path, segment="where", variant="segment")
    assert totals(found) == [[80, 20], [30, 70]]
    assert found.columns.given == {"segment", "variant"}


def test_a_dash_reads_nothing(tmp_path: Path) -> None:
    assert totals(read(ROWS, tmp_path, count="-", reward="-")) == [[1, 1], [1, 1]]


def test_segments_of_several_columns_are_joined(tmp_path: Path) -> None:
    text = "tier,country,variant\n" + "free,fr,x\nfree,de,y\npaid,fr,x\n" * 3
    found = read(text, tmp_path, segment="tier,country")
    assert found.experiments[0].segments == ("free / de", "free / fr", "paid / fr")


@pytest.mark.parametrize(
    "text",
    [
        ROWS,
        ROWS.replace("\n", "\r\n"),
        ROWS.replace(",", ";"),
        ROWS.replace(",", "\t"),
        "\ufeff" + ROWS,
        ROWS.replace("a,", '"a",'),
        ROWS + ",x,5,5\n",  # no segment: left out
    ],
    ids=["plain", "crlf", "semicolons", "tabs", "bom", "quotes", "missing"],
)
def test_dialects_of_csv(text: str, tmp_path: Path) -> None:
    found = read(text, tmp_path)
    assert totals(found) == [[80, 20], [30, 70]]
    assert found.todays_reward == 19
    assert found.tally.skipped == text.count(",x,5,5")


def test_compressed(tmp_path: Path) -> None:
    assert totals(read(gzip.compress(ROWS.encode()), tmp_path, "log.csv.gz")) == [
        [80, 20],
        [30, 70],
    ]


def test_decimal_commas_and_words_are_numbers(tmp_path: Path) -> None:
    text = "segment;variant;revenue\na;x;1,5\na;y;2,25\nb;x;\nb;y;0\n"
    found = read(text, tmp_path)
    assert found.todays_reward == 3.75
    assert found.reward_word == "reward"
    assert (
        read(
            "segment,variant,converted\na,x,true\nb,y,False\na,y,yes\nb,x,no\n", tmp_path
        ).todays_reward
        == 2
    )


def test_formats_agree(tmp_path: Path) -> None:
    frame = visits(11, 2_000)
    found = [
        measure_leak(written(frame, tmp_path / f"log{ending}"))
        for ending in (".csv", ".parquet", ".jsonl")
    ]
    assert {leak.kind for leak in found} == {"CSV", "Parquet", "JSON lines"}
    first, *others = ({**leak.to_dict(), "file": "", "kind": ""} for leak in found)
    for other in others:
        assert other == first
    assert first["visitors"] == frame["visitor"].n_unique()


def test_typed_parquet(tmp_path: Path) -> None:
    frame = pl.DataFrame(
        {
            "segment": pl.Series(["a", "b"] * 20, dtype=pl.Categorical),
            "variant": [1, 2, 2, 1] * 10,
            "visitor": [i.to_bytes(8, "big") for i in range(40)],
            "timestamp": [datetime(2026, 1, 1 + i % 20, tzinfo=UTC) for i in range(40)],
            "converted": [True, False] * 20,
        }
    )
    found = measure_leak(written(frame, tmp_path / "log.parquet"))
    assert found.tally.visitors == 40
    assert found.todays_reward == 20
    assert found.period is not None
    assert (found.period[0].day, found.period[1].day) == (1, 20)


def test_mixed_types_are_text(tmp_path: Path) -> None:
    lines = (
        '{"segment":"a","variant":1}\n{"segment":7,"variant":"1"}\n{"variant":true,"segment":"a"}\n'
    )
    found = read(lines, tmp_path, "log.jsonl")
    assert found.experiments[0].segments == ("7", "a")
    assert totals(found) == [[1, 0], [1, 1]]


def test_keys_of_nested_objects(tmp_path: Path) -> None:
    lines = '{"u":{"tier":"free"},"variant":"x"}\n{"u":{"tier":"paid"},"variant":"y"}\n'
    assert totals(read(lines, tmp_path, "log.jsonl", segment="u.tier")) == [[1, 0], [0, 1]]
    text = (
        'unit_id,group_name,user_dimensions\n1,x,"{""tier"":""free""}"\n2,y,"{""tier"":""paid""}"\n'
    )
    assert totals(read(text, tmp_path, segment="user_dimensions.tier")) == [[1, 0], [0, 1]]
    frame = pl.DataFrame({"u": [{"tier": "free"}, {"tier": "paid"}], "variant": ["x", "y"]})
    path = written(frame, tmp_path / "log.parquet")
    assert totals(measure_leak(path, columns={"segment": "u.tier"})) == [[1, 0], [0, 1]]
    with pytest.raises(InvalidArgumentError, match="single values"):
        measure_leak(path, columns={"segment": "u"})


@pytest.mark.parametrize(
    "times",
    [
        "1767225600,1767398400",
        "1767225600000,1767398400000",
        "1767225600000000,1767398400000000",
        "2026-01-01,2026-01-03",
        "20260101,20260103",
        "2026-01-01T00:00:00Z,2026-01-03T00:00:00Z",
        "2026-01-01T01:00:00+01:00,2026-01-03T01:00:00+01:00",
        "2026-01-01 00:00:00 UTC,2026-01-03 00:00:00 UTC",
        "2026-01-01 00:00:00.000,2026-01-03 00:00:00.000",
    ],
)
def test_times_of_many_shapes(times: str, tmp_path: Path) -> None:
    first, last = times.split(",")
    text = f"segment,variant,time\na,x,{last}\na,y,{first}\nb,y,{first}\nb,x,\n"
    found = read(text, tmp_path)
    assert found.period is not None
    assert [time.date().isoformat() for time in found.period] == ["2026-01-01", "2026-01-03"]


def test_an_aggregated_log_is_the_log_it_stands_for(tmp_path: Path) -> None:
    """Counts say the same as their rows one by one; only which half a row is in differs."""
    rows = ["segment,variant,clicks"]
    for line in ROWS.splitlines()[1:]:
        segment, variant, count, clicks = line.split(",")
        rows += [f"{segment},{variant},{int(i < int(clicks))}" for i in range(int(count))]
    single, counted = read("\n".join(rows), tmp_path, "one.csv"), read(ROWS, tmp_path)
    for found, other in zip(single.tally.experiments, counted.tally.experiments, strict=True):
        assert np.array_equal(found.total, other.total)
        assert found.moments is not None
        assert other.moments is not None
        assert np.array_equal(found.moments.sum(axis=1), other.moments.sum(axis=1))
        assert (other.moments[0].sum(axis=(1, 2)) > 10).all()  # every fold has its part of a row
        assert (other.moments[1] <= other.moments[0]).all()
    assert single.todays_reward == counted.todays_reward


def test_json_lines_in_blocks_are_the_whole_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Blocks that end anywhere in a line, the last line without an end, compressed or not."""
    path = written(visits(15, 400), tmp_path / "log.jsonl")
    whole = {**measure_leak(path).to_dict(), "file": ""}
    monkeypatch.setattr("deniable.leak.files._BLOCK", 333)
    path.write_bytes(path.read_bytes().rstrip())
    packed = tmp_path / "log.jsonl.gz"
    packed.write_bytes(gzip.compress(b"\xef\xbb\xbf" + path.read_bytes()))
    for file in (path, packed):
        assert {**measure_leak(file).to_dict(), "file": ""} == whole


def test_keys_are_guessed_where_no_column_fits(tmp_path: Path) -> None:
    lines = '{"user":{"tier":"free","id":1},"arm":"x"}\n{"user":{"tier":"paid","id":2},"arm":"y"}\n'
    found = read(lines, tmp_path, "log.jsonl")
    assert dict(found.columns.used()) == {
        "segment": "user.tier", "variant": "arm", "visitor": "user.id"
    }  # fmt: skip
    assert found.tally.visitors == 2
    frame = pl.DataFrame({"u": [{"tier": "free"}, {"tier": "paid"}], "variant": ["x", "y"]})
    assert measure_leak(written(frame, tmp_path / "log.parquet")).columns.segment == "u.tier"
    # A column comes before a key with a likelier name, and only what is needed is guessed so.
    header = find_columns(["tier", "variant", "at"], keys=["at.segment", "at.reward", "at.flag"])
    assert dict(header.used()) == {"segment": "tier", "variant": "variant"}


@pytest.mark.parametrize(
    ("text", "line"),
    [
        (b"segment,variant\na,x\nb,y,z\n", "line 3 has 3, the header 2"),
        (b'segment,variant\n"a\nb",x\nb,y,z,z\n', "line 4 has 4, the header 2"),
        (b"segment,variant\na,x\nb,\xe9\n", "line 3 is not UTF-8"),
    ],
)
def test_the_line_that_cannot_be_read_is_named(text: bytes, line: str, tmp_path: Path) -> None:
    with pytest.raises(InvalidArgumentError, match=line):
        read(text, tmp_path)


def test_spaces_in_a_header(tmp_path: Path) -> None:
    assert totals(read(ROWS.replace("segment,variant", " segment , variant "), tmp_path)) == [
        [80, 20],
        [30, 70],
    ]


@pytest.mark.parametrize("size", [60, 20_000], ids=["at the start", "later"])
def test_a_compressed_file_that_was_cut(size: int, tmp_path: Path) -> None:
    rng = np.random.default_rng(16)
    rows = "".join(f"a,x,{rng.integers(1 << 40)}\nb,y,1\n" for _ in range(20_000))
    packed = gzip.compress(f"segment,variant,visitor\n{rows}".encode())[:size]
    with pytest.raises(InvalidArgumentError, match="a gzip file that is whole"):
        read(packed, tmp_path, "log.csv.gz")
    lines = "".join(f'{{"segment":"a","variant":{rng.integers(1 << 40)}}}\n' for _ in range(9_000))
    with pytest.raises(InvalidArgumentError, match="a gzip file that is whole"):
        read(gzip.compress(lines.encode())[:size], tmp_path, "log.jsonl.gz")


def test_a_line_without_end_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("deniable.leak.files._BLOCK", 1_000)
    monkeypatch.setattr("deniable.leak.files._LONGEST_LINE", 5_000)
    head = '{"segment":"a","variant":"x"}\n'
    with pytest.raises(InvalidArgumentError, match="in every line"):
        read(head + '{"segment":"' + "a" * 9_000, tmp_path, "log.jsonl")


def test_progress_is_told_in_rows(tmp_path: Path) -> None:
    told: list[int] = []
    frame = visits(17, 300)
    measure_leak(written(frame, tmp_path / "log.csv"), progress=told.append)
    assert told[-1] == frame.height


def test_halves_of_visitors_are_halves(tmp_path: Path) -> None:
    found = measure_leak(written(visits(12, 20_000), tmp_path / "log.csv"))
    sizes = np.sum([counts.shown.sum(axis=(1, 2)) for counts in found.tally.experiments], axis=0)
    assert abs(sizes[0] / sizes.sum() - 0.5) < 0.02  # a fair hash: 6 standard errors


def test_one_batch_or_many(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = written(visits(13, 3_000), tmp_path / "log.csv")
    whole = measure_leak(path)
    monkeypatch.setattr("deniable.leak.reading._BATCH", 500)
    monkeypatch.setattr("deniable.leak.joint._BLOCK", 70)
    pieces = measure_leak(path)
    for found, expected in zip(pieces.tally.experiments, whole.tally.experiments, strict=True):
        assert np.array_equal(found.shown, expected.shown)
    assert pieces.joint is not None
    assert whole.joint is not None
    assert (pieces.joint.moved, pieces.joint.most) == (whole.joint.moved, whole.joint.most)
    assert pieces.joint.guesses == whole.joint.guesses


def test_nothing_is_left_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "scratch"))
    (tmp_path / "scratch").mkdir()
    path = written(visits(14, 500), tmp_path / "log.csv")
    measure_leak(path)
    path.write_text(path.read_text() + "a,b,c,d,e,f,g\n")  # a ragged end, met half way
    with pytest.raises(InvalidArgumentError):
        measure_leak(path)
    assert list((tmp_path / "scratch").iterdir()) == []


class Column:
    """What is read of a pandas column: objects, some of them missing."""

    def __init__(self, cells: list[object]) -> None:
        self.cells = cells

    def astype(self, kind: type) -> Column:
        assert kind is object
        return self

    def notna(self) -> list[bool]:
        return [cell == cell for cell in self.cells]

    def where(self, kept: list[bool], other: None) -> Column:
        pairs = zip(self.cells, kept, strict=True)
        return Column([cell if keep else other for cell, keep in pairs])

    def tolist(self) -> list[object]:
        return self.cells


class PandasLike:
    def __init__(self, frame: pl.DataFrame) -> None:
        self.columns = frame.columns
        self._frame = frame

    def items(self) -> list[tuple[str, Column]]:
        missing = float("nan")
        return [
            (name, Column([missing if cell is None else cell for cell in self._frame[name]]))
            for name in self.columns
        ]


def test_a_frame_is_measured_as_its_file_is(tmp_path: Path) -> None:
    frame = pl.DataFrame(
        {
            "kind": ["a", "b", None, "a"] * 50,
            "shown": ["x", "y", "x", "y"] * 50,
            "clicks": [1, 0, 1, 0] * 50,
        }
    )
    frame.write_parquet(tmp_path / "log.parquet")
    expected = measure_leak(tmp_path / "log.parquet", columns={"segment": "kind"}).to_dict()
    for given in (frame, frame.lazy(), PandasLike(frame)):
        measured = measure_leak(given, segment="kind").to_dict()
        assert measured.pop("file") == "DataFrame"
        assert measured == {key: value for key, value in expected.items() if key != "file"}
    with pytest.raises(InvalidArgumentError, match="a path, or a DataFrame"):
        measure_leak(5)
    with pytest.raises(InvalidArgumentError, match="one of the roles segment"):
        measure_leak(frame, segments="kind")

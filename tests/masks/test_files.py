"""Labels for files: all formats, first values, stopping and going on, bad files."""

from __future__ import annotations

import stat
from pathlib import Path

import polars as pl
import pytest

from deniable.errors import InvalidArgumentError
from deniable.masks import files
from deniable.masks.audit import audit_labels
from deniable.masks.files import LabelFileError, label_file
from deniable.masks.mask import Mask

KEY = bytes(range(32))
MASK = Mask(segments=["a", "b", "c"], budget=1, key=KEY, name="taste")


def people(n: int = 1000) -> pl.DataFrame:
    segments = [("a", "b", "c", None)[place % 4] for place in range(n)]
    return pl.DataFrame(
        {"visitor": [f"v-{p}" for p in range(n)], "segment": segments, "n": range(n)}
    )


def write(frame: pl.DataFrame, path: Path) -> Path:
    if path.suffix == ".csv":
        frame.write_csv(path)
    elif path.suffix == ".parquet":
        frame.write_parquet(path)
    else:
        frame.write_ndjson(path)
    return path


def read(path: Path) -> pl.DataFrame:
    if path.suffix == ".csv":
        return pl.read_csv(path)
    return pl.read_parquet(path) if path.suffix == ".parquet" else pl.read_ndjson(path)


@pytest.mark.parametrize("suffix", [".csv", ".parquet", ".jsonl"])
def test_every_format_gets_the_labels_of_the_mask(tmp_path: Path, suffix: str) -> None:
    frame = people()
    out = tmp_path / f"out{suffix}"
    written = label_file(MASK, write(frame, tmp_path / f"in{suffix}"), out, key=KEY)
    labelled = read(out)
    expected = MASK.labels(frame["visitor"], frame["segment"])
    assert labelled["taste_label"].to_list() == expected
    assert labelled.drop("taste_label").equals(frame)
    assert written.rows == 1000
    assert written.without_segment == 250
    assert written.label_counts == {name: expected.count(name) for name in MASK.labels_in_order}
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".")] == []


def test_the_segment_can_be_left_out(tmp_path: Path) -> None:
    source = write(people(), tmp_path / "in.csv")
    label_file(MASK, source, tmp_path / "out.csv", key=KEY, replace=True)
    assert read(tmp_path / "out.csv").columns == ["visitor", "n", "taste_label"]


def test_a_stopped_run_goes_on_and_leaves_no_half_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "BATCH", 100)
    source = write(people(), tmp_path / "in.parquet")
    out = tmp_path / "out.csv"

    def stop(rows: int) -> None:
        if rows >= 300:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        label_file(MASK, source, out, key=KEY, progress=stop)
    assert not out.exists()
    seen: list[int] = []
    written = label_file(MASK, source, out, key=KEY, progress=seen.append)
    assert seen[0] == 400
    assert sum(written.label_counts.values()) == 1000
    whole = label_file(MASK, source, tmp_path / "whole.csv", key=KEY)
    assert out.read_bytes() == (tmp_path / "whole.csv").read_bytes()
    assert whole.label_counts == written.label_counts


def test_another_file_or_mask_begins_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "BATCH", 100)
    source, out = write(people(), tmp_path / "in.parquet"), tmp_path / "out.csv"

    def stop(rows: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        label_file(MASK, source, out, key=KEY, progress=stop)
    other = Mask(segments=["a", "b", "c"], budget=2, key=KEY, name="taste")
    label_file(other, source, out, key=KEY)
    frame = people()
    assert read(out)["taste_label"].to_list() == other.labels(frame["visitor"], frame["segment"])


def test_a_run_without_first_values_is_not_continued_with_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "BATCH", 100)
    firsts, out = tmp_path / "firsts.parquet", tmp_path / "out.csv"
    source = write(people(300), tmp_path / "in.parquet")
    label_file(MASK, source, out, key=KEY, first_values=firsts)
    moved = write(people(300).with_columns(segment=pl.lit("c")), tmp_path / "moved.parquet")

    def stop(rows: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        label_file(MASK, moved, out, key=KEY, progress=stop)
    label_file(MASK, moved, out, key=KEY, first_values=firsts)
    frozen = [segment or "c" for segment in people(300)["segment"]]
    expected = MASK.labels(people(300)["visitor"], frozen)
    assert read(out)["taste_label"].to_list() == expected


def test_the_first_value_counts_in_all_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "BATCH", 150)
    firsts = tmp_path / "firsts.parquet"
    first = people()
    label_file(
        MASK, write(first, tmp_path / "1.csv"), tmp_path / "o1.csv", key=KEY, first_values=firsts
    )
    assert stat.S_IMODE(firsts.stat().st_mode) == 0o600
    stored = pl.read_parquet(firsts)
    assert stored.height == 750  # nobody is frozen as unknown
    assert not any(b"v-" in visitor for visitor in stored["visitor"])
    # Everybody moves to c, twice; 250 are known for the first time.
    moved = pl.concat([first, first]).with_columns(segment=pl.lit("c"))
    written = label_file(
        MASK, write(moved, tmp_path / "2.csv"), tmp_path / "o2.csv", key=KEY, first_values=firsts
    )
    assert written.changed == 1000
    frozen = [segment or "c" for segment in first["segment"]]
    expected = MASK.labels(first["visitor"], frozen)
    assert read(tmp_path / "o2.csv")["taste_label"].to_list() == expected * 2
    assert pl.read_parquet(firsts).height == 1000
    audit = audit_labels(MASK, tmp_path / "o2.csv", key=KEY, first_values=firsts)
    assert audit.kept
    assert audit.two_labels == 0


def test_the_first_row_in_file_order_wins(tmp_path: Path) -> None:
    frame = pl.DataFrame({"visitor": ["v", "w", "v"], "segment": ["b", "a", "c"]})
    firsts = tmp_path / "firsts.parquet"
    label_file(
        MASK, write(frame, tmp_path / "1.csv"), tmp_path / "o.csv", key=KEY, first_values=firsts
    )
    expected = [MASK.label("v", "b"), MASK.label("w", "a"), MASK.label("v", "b")]
    assert read(tmp_path / "o.csv")["taste_label"].to_list() == expected


def test_first_values_of_another_mask_are_refused(tmp_path: Path) -> None:
    source, firsts = write(people(10), tmp_path / "1.csv"), tmp_path / "firsts.parquet"
    label_file(MASK, source, tmp_path / "o.csv", key=KEY, first_values=firsts)
    before = firsts.read_bytes()
    other = Mask(segments=["a", "b", "c"], budget=2, key=KEY, name="taste")
    with pytest.raises(LabelFileError, match="channel"):
        label_file(other, source, tmp_path / "p.csv", key=KEY, first_values=firsts)
    assert firsts.read_bytes() == before
    assert not (tmp_path / "p.csv").exists()


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("in.csv", b"visitor,segment\nv-1,a\nv-2,b", "cut off"),
        ("in.csv", b"", "empty"),
        ("in.csv", b"visitor,segment\n", "no rows"),
        ("in.csv", b"visitor,segment\nv-1,a\nv 2,b\n", "row 2: column visitor"),
        ("in.csv", b"visitor,segment\nv-1,a\n,b\n", "row 2: column visitor"),
        ("in.csv", "visitor,segment\nv-1,a\nv-ü,b\n".encode(), "row 2: column visitor"),
        ("in.csv", b"visitor,segment\nv-1,secret\n", "row 1: column segment"),
        ("in.jsonl", b'{"visitor": "v-1", "segment": "a"}\n{"visitor": \n', "whole jsonl"),
        ("in.parquet", b"PAR1 but not whole", "whole parquet"),
    ],
)
@pytest.mark.parametrize("frozen", [False, True])
def test_bad_files_are_named_and_leave_nothing(
    tmp_path: Path, name: str, content: bytes, words: str, frozen: bool
) -> None:
    (tmp_path / name).write_bytes(content)
    firsts = tmp_path / "firsts.parquet" if frozen else None
    with pytest.raises(LabelFileError, match=words) as refused:
        label_file(MASK, tmp_path / name, tmp_path / "out.csv", key=KEY, first_values=firsts)
    assert "secret" not in str(refused.value)
    left = {path.name for path in tmp_path.iterdir()} - {name, ".firsts.parquet.lock"}
    assert left == set()


def test_wrong_columns_and_paths_are_named(tmp_path: Path) -> None:
    source = write(people(10), tmp_path / "in.csv")
    with pytest.raises(
        InvalidArgumentError, match="visitor='id': expected a column: visitor, segm"
    ):
        label_file(MASK, source, tmp_path / "out.csv", key=KEY, visitor="id")
    with pytest.raises(InvalidArgumentError, match="another file"):
        label_file(MASK, source, source, key=KEY)
    with pytest.raises(InvalidArgumentError, match=r"\.csv, \.parquet"):
        label_file(MASK, source, tmp_path / "out.txt", key=KEY)
    with pytest.raises(FileNotFoundError):
        label_file(MASK, tmp_path / "none.csv", tmp_path / "out.csv", key=KEY)


# -- audits --------------------------------------------------------------------------------------


def test_an_audit_notices_one_wrong_label(tmp_path: Path) -> None:
    out = tmp_path / "out.csv"
    label_file(MASK, write(people(), tmp_path / "in.csv"), out, key=KEY)
    assert audit_labels(MASK, out, key=KEY).kept
    labels = read(out)["taste_label"].to_list()
    labels[40] = "~a" if labels[40] != "~a" else "~b"
    write(people().with_columns(pl.Series("taste_label", labels)), out)
    audit = audit_labels(MASK, out, key=KEY)
    assert (audit.kept, audit.wrong, audit.first_wrong) == (False, 1, 41)


def test_an_audit_notices_a_key_that_is_not_random(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Labels that are recomputed from a hash that favours small draws: every label is "right", and only
    # the frequencies tell. The stated power says that 20,000 visitors show an error of this size.
    honest = Mask._u
    monkeypatch.setattr(Mask, "_u", lambda mask, *a: honest(mask, *a) * 9 // 10)
    frame, out = people(20_000), tmp_path / "out.parquet"
    label_file(MASK, write(frame, tmp_path / "in.parquet"), out, key=KEY)
    audit = audit_labels(MASK, out, key=KEY)
    assert audit.wrong == 0
    assert audit.power < 0.1
    assert not audit.kept


def test_the_stated_power_is_reached() -> None:
    import numpy as np

    from deniable.masks.audit import frequency_test

    rng = np.random.default_rng(5)
    channel = np.array(MASK.entries, dtype=float) / 2.0**64
    visitors = 20_000
    counts = np.array([rng.multinomial(visitors, row) for row in channel])
    counts[-1] = 0
    power = frequency_test(counts, MASK)[1]
    own = channel[0, 0] * (1 + power)
    wrong = np.full((3, 3), (1 - own) / 2) + np.eye(3) * (own - (1 - own) / 2)
    alarms = 0
    for _ in range(400):
        counts[:3] = [rng.multinomial(visitors, row) for row in wrong]
        alarms += frequency_test(counts, MASK)[0] < 1e-9
    assert 385 <= alarms <= 400  # 99% of 400 is 396

"""What leaves besides the arm: lengths, counters, ids, key files, the mode of the store's files."""

from __future__ import annotations

import os
import stat
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.service.http.site import Site, running_site
from tests.service.support import running, serving

from deniable.errors import WrongStateError
from deniable.service.http.metrics import RELEASE_SECONDS, REWARD_STEP, ROUTES, Tally
from deniable.service.service import open as open_service

ARMS = ["a", "the-much-longer-arm", "middle"]
VISITORS = 60
"""Each arm is missing among so many with a chance below (2/3)^60 = 3e-11."""


@pytest.fixture
def site() -> Iterator[Site]:
    with serving("memory:") as service:
        running(service, arms=ARMS)
        with running_site(service) as opened:
            yield opened


def lengths(site: Site, path: str, body: object) -> tuple[int, str | None, int]:
    answer = site.client.post(path, json=body, headers=site.headers("decide"))
    assert answer.status_code == 200
    answer.json()  # blanks after it are allowed
    return len(answer.content), answer.headers.get("content-length"), len(answer.headers)


def test_the_length_of_an_answer_does_not_tell_the_arm(site: Site) -> None:
    path, seen = "/v1/experiments/checkout/decisions", Counter[str]()
    single, batch, flag, flags = set(), set(), set(), set()
    for number in range(VISITORS):
        visitor = f"v{number:03}"
        single.add(lengths(site, path, {"visitor": visitor, "segment": "a"}))
        pair = [{"visitor": f"{visitor}{i}", "segment": "b"} for i in range(2)]
        batch.add(lengths(site, f"{path}/batch", {"visitors": pair}))
        asked = {"context": {"targetingKey": visitor, "segment": "a"}}
        flag.add(lengths(site, "/ofrep/v1/evaluate/flags/checkout", asked))
        flags.add(lengths(site, "/ofrep/v1/evaluate/flags", asked))
        seen[site.decide(visitor)["arm"]] += 1
    assert set(seen) == set(ARMS)
    assert [len(found) for found in (single, batch, flag, flags)] == [1, 1, 1, 1]


def test_also_when_everybody_gets_one_arm(site: Site) -> None:
    path, body = "/v1/experiments/checkout/decisions", {"visitor": "v", "segment": "a"}
    before = lengths(site, path, body)
    site.service.experiments.stop("checkout", promote="a")
    assert lengths(site, path, body) == before


def test_metrics_do_not_show_a_single_reward(site: Site) -> None:
    clock = [0.0]
    tally = Tally(clock=lambda: clock[0])

    def text() -> str:
        return tally.exposition().decode()

    nothing = text()
    for place in range(1, 2 * REWARD_STEP + 1):
        tally.request(ROUTES.index("reward"), 204, 0.0015)
        tally.observe(site.service.figures, 0)
        assert text() == nothing, place
    clock[0] = RELEASE_SECONDS
    tally.observe(site.service.figures, 0)
    assert 'deniable_requests_total{route="reward",status="2xx"} 200.0' in text()
    assert 'request_seconds_sum{route="reward"}' not in text()
    # Whole figures of the writer: rewards, and the transactions that each of them is.
    decisions = [site.service.decide("checkout", f"v{i}", "a") for i in range(5)]
    tally.observe(site.service.figures, 0)
    before = text()
    for one in decisions:
        site.service.reward(one.id, 1)
    tally.observe(site.service.figures, 0)
    assert site.service.figures.rewards == 5
    assert text() == before


def test_no_text_of_a_segment_changes_the_status(site: Site) -> None:
    path = "/v1/experiments/checkout/decisions"
    for number, segment in enumerate(("a", "", "s" * 129, "s" * 513, "s" * 20_000)):
        body = {"visitor": f"long {number}", "segment": segment}
        answer = site.client.post(path, json=body, headers=site.headers("decide"))
        assert answer.status_code == 200, len(segment)
    for length in (1, 128):  # a full batch of the longest names that can be listed
        some = [{"visitor": f"b{length} {n}", "segment": "\0" * length} for n in range(1_000)]
        answer = site.client.post(
            f"{path}/batch", json={"visitors": some}, headers=site.headers("decide")
        )
        assert answer.status_code == 200, length


def test_private_exports_are_readable_by_their_owner_only(site: Site, tmp_path: Path) -> None:
    site.service.experiments.create("f", arms=["a", "b"], segments=["=1+1", "x"], budget=1)
    site.service.experiments.start("f")
    site.service.decide("f", "v", "=1+1")
    for ending in ("csv", "jsonl", "parquet"):
        path = tmp_path / f"log.{ending}"
        path.touch(mode=0o644)
        site.service.ledger.export(path, experiment="f", shape="private")
        assert path.stat().st_mode & 0o777 == 0o600
        site.service.ledger.export_log(tmp_path / f"chain.{ending}")
        assert (tmp_path / f"chain.{ending}").stat().st_mode & 0o777 == 0o600
    assert ",'=1+1," in (tmp_path / "log.csv").read_text()


def test_ids_tell_nothing_of_arm_segment_or_batch(site: Site) -> None:
    """Every bit beyond the tag is fair, whoever it is for: 96 bits, each within 7 deviations."""
    batch = [(f"w{i}", "ab"[i % 2]) for i in range(2_000)]
    shown = site.service.decide_batch("checkout", batch)
    assert len({one.id[:8] for one in shown}) == 1
    for chosen in (
        shown,
        [one for one in shown if one.arm == "a"],
        [one for one, (_, segment) in zip(shown, batch, strict=True) if segment == "a"],
    ):
        numbers = [int(one.id[8:], 16) for one in chosen]
        for bit in range(96):
            ones = sum(number >> bit & 1 for number in numbers)
            assert abs(ones - len(numbers) / 2) < 7 * len(numbers) ** 0.5 / 2


@pytest.mark.parametrize("lost", ["moved", "elsewhere"])
def test_a_lost_key_leaves_no_new_one_behind(tmp_path: Path, lost: str) -> None:
    url, key = f"sqlite:///{tmp_path / 'store.db'}", tmp_path / "store.db.key"
    with serving(url) as service:
        running(service)
        first = service.decide("checkout", "v", "a")
    other = tmp_path / "other.key" if lost == "elsewhere" else None
    kept = key.read_bytes()
    if other is None:
        key.rename(tmp_path / "kept")
    files = sorted(os.listdir(tmp_path))
    with pytest.raises(WrongStateError, match="missing"):
        open_service(url, key_file=other)
    assert sorted(os.listdir(tmp_path)) == files
    key.write_bytes(kept)
    key.chmod(0o600)
    with open_service(url) as service:
        assert service.decide("checkout", "v", "b") == first


def test_a_wrong_key_is_refused_and_stays_as_it_is(tmp_path: Path) -> None:
    url, wrong = f"sqlite:///{tmp_path / 'store.db'}", tmp_path / "wrong.key"
    serving(url).__enter__().close()
    wrong.write_text("ab" * 32)
    wrong.chmod(0o600)
    with pytest.raises(WrongStateError, match="not the one"):
        open_service(url, key_file=wrong)
    assert wrong.read_text() == "ab" * 32


def test_the_files_of_a_store_are_for_their_owner_alone(tmp_path: Path) -> None:
    before = os.umask(0o022)
    try:
        with serving(f"sqlite:///{tmp_path / 'store.db'}") as service:
            running(service)
            service.decide("checkout", "v", "a")
            found = {path.name: stat.S_IMODE(path.stat().st_mode) for path in tmp_path.iterdir()}
    finally:
        os.umask(before)
    names = {"store.db", "store.db-wal", "store.db-shm", "store.db.key"}
    assert found == dict.fromkeys(names, 0o600)

"""What `/metrics` says, read by the Prometheus client's own parser."""

from __future__ import annotations

import multiprocessing
import platform
import re
from importlib.metadata import version
from pathlib import Path

from prometheus_client.parser import text_string_to_metric_families
from tests.patience import PATIENCE, eventually
from tests.service.http.site import Site

from deniable.service.http.metrics import QUEUE_AGE, Rows, Tally
from deniable.service.service import StoreFigures
from deniable.service.writer import Figures

ROOT = Path(__file__).parents[3]


def _samples(text: str) -> dict[str, list[tuple[dict[str, str], float]]]:
    found: dict[str, list[tuple[dict[str, str], float]]] = {}
    for family in text_string_to_metric_families(text):
        assert family.documentation, family.name
        for sample in family.samples:
            found.setdefault(sample.name, []).append((dict(sample.labels), sample.value))
    return found


def test_a_healthy_service(site: Site) -> None:
    site.decide("v-1")
    found: dict[str, list[tuple[dict[str, str], float]]] = {}

    def counted() -> bool:  # figures are taken over every second
        found.update(_samples(site.client.get("/metrics").text))
        return found["deniable_new_decisions_total"][0][1] == 1.0

    eventually(counted, "the decision is counted")
    (labels, value), *more = found["deniable_build_info"]
    assert (labels, value, more) == (
        {"version": version("deniable"), "python": platform.python_version()},
        1.0,
        [],
    )
    assert found["deniable_store_failing"] == [({}, 0.0)]
    assert found[QUEUE_AGE] == [({}, 0.0)]
    assert found["deniable_queued"] == [({}, 0.0)]
    buckets = [
        v for labels, v in found["deniable_request_seconds_bucket"] if labels["route"] == "decide"
    ]
    assert buckets == sorted(buckets)
    assert buckets[-1] == 1.0


def test_processes_are_summed_and_the_oldest_wait_counts() -> None:
    memory = Rows(2)._memory
    first, second = Tally(memory, 0), Tally(memory, 1)
    first.request(0, 200, 0.003)
    second.request(0, 503, 0.003)
    first.observe(Figures(decisions=5, queued=2, queue_age=0.25, store_failing=True), 1)
    second.observe(Figures(decisions=7, queued=1, queue_age=0.5), 2)
    for tally in (first, second):
        found = _samples(tally.exposition().decode())
        assert found["deniable_decisions_total"] == [({}, 12.0)]
        assert found["deniable_queued"] == [({}, 3.0)]
        assert found["deniable_in_flight"] == [({}, 3.0)]
        assert found["deniable_store_failing"] == [({}, 1.0)]
        assert found[QUEUE_AGE] == [({}, 0.5)]
        requests = {
            (labels["route"], labels["status"]): value
            for labels, value in found["deniable_requests_total"]
        }
        assert requests["decide", "2xx"] == requests["decide", "5xx"] == 1.0
    replaced = Tally(memory, 1)  # the process of row 1 was replaced: counters go on
    replaced.observe(Figures(decisions=1), 0)
    assert _samples(first.exposition().decode())["deniable_decisions_total"] == [({}, 13.0)]


def _count_in(rows: Rows, decisions: int) -> None:
    rows.claim().observe(Figures(decisions=decisions), 0)


def test_a_process_takes_over_the_row_of_one_that_died() -> None:
    rows = Rows(2)
    mine = rows.claim()
    for decisions in (5, 7):  # one after the other, both in the second row
        process = multiprocessing.Process(target=_count_in, args=(rows, decisions))
        process.start()
        process.join()
        assert process.exitcode == 0
    mine.observe(Figures(decisions=1), 0)
    assert _samples(mine.exposition().decode())["deniable_decisions_total"] == [({}, 13.0)]


def test_process_disk_and_tables_are_measured(site: Site) -> None:
    def measured() -> dict[str, list[tuple[dict[str, str], float]]]:
        return _samples(site.client.get("/metrics").text)

    eventually(lambda: measured()["deniable_resident_bytes"][0][1] > 1e6, "memory is measured")
    found = measured()
    assert found["deniable_open_files"][0][1] > 3
    assert found["deniable_cpu_seconds_total"][0][1] > 0
    assert found["deniable_disk_free_bytes"][0][1] > 1e6
    assert 0 <= found["deniable_table_age_seconds"][0][1] < PATIENCE


def test_what_is_unknown_is_left_out() -> None:
    tally = Tally()
    tally.measure(StoreFigures(None, None))
    found = _samples(tally.exposition().decode())
    assert not {"deniable_disk_free_bytes", "deniable_table_age_seconds"} & found.keys()


def test_the_guide_names_every_metric() -> None:
    page = (ROOT / "docs" / "operate.md").read_text("utf-8")
    families = text_string_to_metric_families(Tally().exposition().decode())
    named = set(re.findall(r"`(deniable_\w+)`", page))
    for family in families:
        if not family.name.endswith("_created"):
            assert {family.name, f"{family.name}_total", f"{family.name}_info"} & named, family.name

"""Canaries draw on scratch copies alone, through HTTP, and leave nothing behind but two entries."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.stats import binomtest
from tests.audit.canary_site import SiteTransport, canaries, live
from tests.audit.levels import strict
from tests.promise.support import taught
from tests.service.http.site import Site, running_site
from tests.service.support import running, serving

from deniable.audit.live import ScratchCopy, audit_live, chosen_segments
from deniable.audit.live_power import cell_limits, noticed_excess, power
from deniable.audit.log import audit_log
from deniable.cli import main
from deniable.client import canaries as canaries_module
from deniable.client.calls import ServiceError
from deniable.errors import InvalidArgumentError, WrongStateError
from deniable.privacy.tables import Table
from deniable.service.service import Deniable


@pytest.fixture
def site(store_url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    strict(monkeypatch)
    with serving(store_url, budget=5) as service:
        running(service, budget=2, strategy="constant")
        taught(service, "checkout", {"a": "old", "b": "new"}, visitors=40)
        with running_site(service) as opened:
            yield opened


def test_a_sound_service_passes_and_nothing_is_left(site: Site) -> None:
    before = _everything(site.service)
    found = live(site, visitors=1_000)
    assert found.sound, found.verdict
    assert found.counts.sum() == 3 * 1_000  # both segments, and one that is not listed
    assert (found.counts > 0).all()
    assert _everything(site.service) == before
    kinds = [entry.kind for entry in site.service.ledger.entries()][-3:]
    assert kinds == ["scratch", "table", "scratch_end"]
    ended = json.loads(site.service.ledger.entries()[-1].detail)
    assert ended["decisions"] == 3 * 1_000 + 3
    assert all(int(writer) < 0 for writer in ended["chains"])


def _everything(service: Deniable) -> object:
    """What a person or a program sees of the store, the ledger apart."""
    verified = service.ledger.verify()
    assert verified.sound, verified.problem
    chains = {name: end for name, end in verified.heads.items() if name != "commitments"}
    counts = service.experiments.counts("checkout")
    firm = service.firm.current()
    return (chains, counts, firm, service.experiments.all(), verified.decisions)


def test_a_copy_is_seen_by_nobody_and_costs_nothing(site: Site, tmp_path: Path) -> None:
    service = site.service
    committed = service.firm.current().committed_nano
    with canaries(site) as sent:
        answers = sent.decide([(f"v{i}", "a") for i in range(50)])
        assert answers is not None
        assert service.firm.current().committed_nano == committed
        listed = site.client.get("/v1/experiments", headers=site.headers("read")).json()
        assert [one["key"] for one in listed] == ["checkout"]
        body = {"context": {"targetingKey": "v1"}}
        flags = "/ofrep/v1/evaluate/flags"
        bulk = site.client.post(flags, json=body, headers=site.headers("decide"))
        assert not [flag["key"] for flag in bulk.json()["flags"] if flag["key"] != "checkout"]
        metrics = site.client.get("/metrics", headers=site.headers("read")).text
        assert sent.copy.key not in metrics
        # Its decisions are chained, in a chain of their own; every audit passes meanwhile.
        verified = service.ledger.verify()
        assert verified.sound, verified.problem
        assert [name for name in verified.heads if name.startswith("-")]
        assert service.audits.run("checkout").sound
        assert service.audits.firm().sound
        service.ledger.export_log(tmp_path / "log.parquet")
        log = audit_log(tmp_path / "log.parquet")
        assert log.sound, log.verdict
        assert {one.scratch: one.decisions for one in log.experiments} == {False: 80, True: 50}
        # Rewards that name its decisions count nowhere.
        heads = service.ledger.verify().heads
        reward = {"decision": answers[0]["decision"], "value": 1}
        path = "/v1/rewards"
        assert (
            site.client.post(path, json=reward, headers=site.headers("reward")).status_code == 204
        )
        assert service.ledger.verify().heads == heads
    service.ledger.export_log(tmp_path / "after.parquet")
    assert audit_log(tmp_path / "after.parquet").sound
    assert service.audits.firm().sound


def test_a_copy_answers_nobody_but_auditors(site: Site) -> None:
    with canaries(site) as sent:
        path = f"/v1/experiments/{sent.copy.key}/decisions"
        body = {"visitor": "v", "segment": "a"}
        for scope in ("decide", "reward", "read"):
            answer = site.client.post(path, json=body, headers=site.headers(scope))
            assert answer.status_code == 403
        assert site.client.post(path, json=body, headers=site.headers("audit")).status_code == 200
        # And a key that may only audit draws on nothing else.
        real = "/v1/experiments/checkout/decisions"
        assert site.client.post(real, json=body, headers=site.headers("audit")).status_code == 403
        flag = f"/ofrep/v1/evaluate/flags/{sent.copy.key}"
        context = {"context": {"targetingKey": "v", "segment": "a"}}
        assert (
            site.client.post(flag, json=context, headers=site.headers("decide")).status_code == 403
        )
    assert site.client.post(path, json=body, headers=site.headers("audit")).status_code == 404


def test_removal_that_was_interrupted_is_finished_by_the_next_copy(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    from deniable.storage import scratch

    with monkeypatch.context() as patch:
        patch.setattr(scratch, "sweep", lambda *_, **__: False)
        with canaries(site) as sent:
            sent.decide([(f"v{i}", "a") for i in range(30)])
            left = bytes.fromhex(site.service.experiments.get(sent.copy.key).id)
    assert site.service.ledger.verify().sound
    monkeypatch.setattr(scratch, "LIFE_MICROSECONDS", -1)
    forgotten, _ = site.service.scratch.make("checkout")  # the process died before it was removed
    site.service.decide_batch(forgotten.key, [(f"v{i}", "a") for i in range(5)])
    site.service.scratch.make("checkout")
    with site.service._store.read() as connection:
        assert not _rows(connection, left)
        assert not _rows(connection, bytes.fromhex(forgotten.id))
    assert site.service.ledger.verify().sound


def _rows(connection: Any, identity: bytes) -> list[Any]:
    from sqlalchemy import select

    from deniable.storage.schema import decisions

    return list(
        connection.execute(select(decisions.c.id).where(decisions.c.experiment_id == identity))
    )


def test_drafts_arm_budgets_and_switched_off_arms_can_be_copied(site: Site) -> None:
    from deniable.service.drafts import NewArm

    service = site.service
    arms = [NewArm("x", budget=0.5), NewArm("y", budget=1), NewArm("z", budget=1)]
    service.experiments.create("draft", arms=arms, segments=["s", "t"])
    assert live(site, "draft", visitors=1_000).sound
    service.experiments.switch_off("checkout", "bold")
    found = live(site, visitors=1_000)
    assert found.sound, found.verdict
    assert not found.counts[:, 2].any()


def test_what_is_no_scratch_copy_is_refused_before_anything_is_drawn(site: Site) -> None:
    with canaries(site) as sent:
        with pytest.raises(WrongStateError, match="not a scratch copy"):
            audit_live(replace(sent.copy, key="checkout"), sent)
        with pytest.raises(InvalidArgumentError):
            audit_live(sent.copy, sent, visitors=10)
    answer = site.client.request("DELETE", "/v1/scratch/checkout", headers=site.headers("audit"))
    assert answer.status_code == 422


def test_a_missing_scope_experiment_or_service_is_one_line_and_status_2(
    site: Site, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(ServiceError, match="403 scope-missing"), canaries(site, scope="decide"):
        pass
    with pytest.raises(ServiceError, match="404 unknown-name"), canaries(site, "nothing"):
        pass
    monkeypatch.delenv("DENIABLE_API_KEY", raising=False)
    monkeypatch.setattr(canaries_module, "_RETRIES", 0)
    for url, key in (("http://127.0.0.1:1", "k"), ("http://127.0.0.1:1", ""), ("nonsense", "k")):
        assert main(["audit", "live", url, "checkout", "--api-key", key]) == 2
        said = capsys.readouterr()
        assert not said.out
        assert said.err.count("\n") == 1


def test_the_command_tells_by_its_status(
    site: Site, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    import httpx2 as httpx

    client, transport = httpx.Client, SiteTransport(site)
    monkeypatch.setattr(httpx, "Client", lambda **more: client(**{**more, "transport": transport}))
    monkeypatch.setenv("DENIABLE_API_KEY", site.secrets["audit"])
    asked = ["audit", "live", "http://site", "checkout", "--visitors", "1000", "--json"]
    assert main(asked) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["sound"]
    assert 0 < told["noticed_excess"] < 2
    from deniable.service import batch

    monkeypatch.setattr(batch, "bisect_right", lambda row, point: 0)
    assert main(asked) == 1
    broken = [
        check["name"]
        for check in json.loads(capsys.readouterr().out)["checks"]
        if check["outcome"] == "broken"
    ]
    assert broken == ["arms as in the table"]


# -- statistics ------------------------------------------------------------------------------


def test_limits_are_those_of_an_independent_implementation() -> None:
    counts = np.array([[0, 30, 70], [5, 0, 0], [1, 2, 3]])
    low, high = cell_limits(counts, 0.01)
    for place in np.ndindex(counts.shape):
        total = int(counts[place[0]].sum())
        wanted = binomtest(int(counts[place]), total).proportion_ci(1 - 0.01 / 9, "exact")
        assert low[place] == pytest.approx(wanted.low, abs=1e-12)
        assert high[place] == pytest.approx(wanted.high, abs=1e-12)


@pytest.mark.parametrize("budget", [0.1, 0.5, 1.0, 1.5, 2.0])
@pytest.mark.parametrize("segments", [2, 5])
def test_an_excess_of_a_tenth_is_noticed_with_99_percent(budget: float, segments: int) -> None:
    """100,000 canaries in each segment, five arms, budgets up to 2."""
    assert power(100_000, 5, segments + 1, budget, 0.1, 1e-3) >= 0.99


def test_the_power_is_that_of_a_simulation() -> None:
    """Where it is neither 0 nor 1, against 4,000 seeded repetitions of the whole rule."""
    n, arms, rows, budget, excess, alpha = 3_000, 3, 3, 1.0, 0.2, 1e-3
    stated = power(n, arms, rows, budget, excess, alpha)
    assert 0.2 < stated < 0.8
    factor = math.exp(budget + excess)
    least = 1 / (arms - 1 + factor)
    rng, noticed = np.random.default_rng(3), 0
    for _ in range(4_000):
        often, seldom = rng.binomial(n, factor * least), rng.binomial(n, least)
        counts = np.array([[often, n - often, 0], [seldom, n - seldom, 0], [0, 0, 1]])
        low, high = cell_limits(counts, alpha)
        noticed += math.log(low[0, 0] / high[1, 0]) > budget
    assert abs(noticed / 4_000 - stated) < 6 * math.sqrt(stated * (1 - stated) / 4_000)


def test_the_smallest_noticed_excess_has_the_wanted_power() -> None:
    found = noticed_excess(20_000, 3, 4, 1.0, 1e-3)
    assert found is not None
    assert (
        power(20_000, 3, 4, 1.0, found, 1e-3) >= 0.99 > power(20_000, 3, 4, 1.0, found - 1e-3, 1e-3)
    )
    assert noticed_excess(1_000, 2, 3, 12.0, 1e-3) is None


class Lying:
    """A service without a store: arms by these chances, sticky, and rows that say what is wished."""

    def __init__(self, copy: ScratchCopy, chances: Sequence[Sequence[float]], seed: int) -> None:
        self.copy, self._chances = copy, chances
        self._rng = np.random.default_rng(seed)
        self.known: dict[str, tuple[str, int, int]] = {}

    def decide(self, visitors: Sequence[tuple[str, str | None]]) -> list[dict[str, Any]]:
        new = [one for one in visitors if one[0] not in self.known]
        places = {name: place for place, name in enumerate(self.copy.segments)}
        for place in {places.get(segment or "", -1) for _, segment in new}:
            mine = [name for name, segment in new if places.get(segment or "", -1) == place]
            arms = self._rng.choice(len(self.copy.arms), len(mine), p=self._chances[place])
            for name, arm in zip(mine, arms.tolist(), strict=True):
                self.known[name] = (self._rng.bytes(16).hex(), place, arm)
        found = [self.known[name] for name, _ in visitors]
        return [{"decision": one[0], "arm": self.copy.arms[one[2]]} for one in found]

    def stored(self) -> Iterator[Any]:
        from deniable.audit.live import StoredDraw

        for identity, segment, arm in sorted(self.known.values()):
            yield StoredDraw(identity, segment, arm, 1, 0)


def test_a_service_that_lies_about_its_table_is_found_by_the_counts_alone() -> None:
    """A quarter of a nat above the budget: it draws from the table that it shows."""
    budget, excess = 1.0, 0.25
    factor = math.exp(budget + excess)
    often, seldom = factor / (1 + factor), 1 / (1 + factor)
    much = int(often * 2**64)
    table = Table(rows=((much, 2**64 - much), (2**64 - much, much)), zero=(2**63, 2**63))
    copy = ScratchCopy("_scratch-1", ("x", "y"), ("a", "b"), (10**9, 10**9), (0, 1), table)
    service = Lying(copy, [(often, seldom), (seldom, often), (0.5, 0.5)], seed=4)
    found = audit_live(copy, service, visitors=20_000)
    broken = [check.name for check in found.checks if check.outcome == "broken"]
    assert broken == ["exact table", "counts alone"]
    assert found.power >= 0.99


def test_segments_that_tell_most_are_chosen() -> None:
    quarter = 2**62
    rows = [(2 * quarter, 2 * quarter)] * 8
    rows[3], rows[6] = (3 * quarter, quarter), (quarter, 3 * quarter)
    assert chosen_segments(Table(tuple(rows), rows[0]), 2) == [3, 6]
    assert chosen_segments(Table(tuple(rows), rows[0]), 50) == list(range(8))

"""Documents: figures computed once more from other sources, bytes that last, edits that show."""

from __future__ import annotations

import re
from decimal import Decimal
from fractions import Fraction
from hashlib import sha256
from threading import Thread
from typing import Any

import mpmath
import pytest
from sqlalchemy import delete, update
from tests.documents.support import texts
from tests.passing import pass_until
from tests.service.support import published

import deniable.documents.limits as limits
from deniable.documents import assembly, rendering
from deniable.documents.assembly import KINDS
from deniable.documents.content import Document
from deniable.errors import (
    BrokenPromiseError,
    InvalidArgumentError,
    UnknownNameError,
    WrongStateError,
)
from deniable.report.content import Fields, Table
from deniable.service.drafts import NewArm
from deniable.service.service import Deniable
from deniable.service.service import open as open_service
from deniable.storage import times
from deniable.storage.commitments import acting
from deniable.storage.schema import commitments, experiments, tables

DAY = 86_400 * 1_000_000


def grids(document: Document, column: str) -> list[Table]:
    return [
        block
        for section in document.sections
        for block in section.blocks
        if isinstance(block, Table) and column in block.header
    ]


def field(document: Document, label: str) -> str:
    found = [
        row.value
        for section in document.sections
        for block in section.blocks
        if isinstance(block, Fields)
        for row in block.rows
        if row.label == label
    ]
    return next(iter(found))


def believed(prior: str, nats: str) -> tuple[Decimal, Decimal]:
    """The highest and lowest belief in percent, rounded outwards to one digit, by mpmath."""
    with mpmath.workdps(50):
        p, ratio = mpmath.mpf(prior), mpmath.exp(mpmath.mpf(nats))
        high = p * ratio / (p * ratio + 1 - p)
        low = p / (p + (1 - p) * ratio)
        up, down = int(mpmath.ceil(high * 1000)), int(mpmath.floor(low * 1000))
    return Decimal(up) / 10, Decimal(down) / 10


def test_beliefs_are_those_of_the_formula_rounded_outwards(service: Deniable) -> None:
    statement = service.documents.draft("checkout", "statement")
    table = grids(statement, "believed before")[0]
    columns = list(zip(table.header, *table.rows, strict=True))
    assert columns[0] == ("believed before", "after: at most", "after: at least")
    for prior, column in zip(("0.01", "0.1", "0.2", "0.5"), columns[1:], strict=True):
        told = [Decimal(cell.rstrip("%")) for cell in column]
        assert told == [Decimal(prior) * 100, *believed(prior, "2")]
    assert "by at most the factor 7.39 (a privacy budget of 2 nats)" in " ".join(texts(statement))


def test_a_budget_is_stated_as_it_was_typed() -> None:
    """1.13 is no binary fraction: rounded down, it would be signed as 1.129999999 nats."""
    with open_service("memory:") as service:
        service.firm.set(budget=6.57)
        service.experiments.create("e", arms=["a", "b"], segments=["s", "t"], budget=1.13)
        service.experiments.redraft("e", segments=["s", "t", "u"])  # read, and written once more
        service.experiments.start("e")
        said = " ".join(texts(service.documents.draft("e", "statement")))
    assert "a privacy budget of 1.13 nats" in said
    assert "6.57 nats in any" in said
    assert not re.search(r"\d\.\d*9{4}", said)


@pytest.mark.parametrize("budget", [0, 1, 250_000_000, 10**9, 3 * 10**9, 12 * 10**9, 25 * 10**9])
def test_limits_are_never_told_too_small(budget: int) -> None:
    with mpmath.workdps(60):
        ratio = mpmath.exp(mpmath.mpf(budget) / 10**9)
        told = mpmath.mpf(limits.factor(budget).replace(",", ""))
        assert ratio * (1 - mpmath.mpf(10) ** -40) <= told <= ratio * mpmath.mpf("1.01")
        for prior in limits.PRIORS:
            p = mpmath.mpf(prior.numerator) / prior.denominator
            high = 100 * p * ratio / (p * ratio + 1 - p)
            low = 100 * p / (p + (1 - p) * ratio)
            most = limits.at_most(limits.highest(prior, budget))
            least = limits.at_least(limits.lowest(prior, budget))
            if "practically" not in most:
                assert mpmath.mpf(most.rstrip("%")) >= high * (1 - mpmath.mpf(10) ** -40)
            if "practically" not in least:
                assert mpmath.mpf(least.rstrip("%")) <= low * (1 + mpmath.mpf(10) ** -40)
            assert abs(mpmath.mpf(most.split()[-1].rstrip("%")) - high) <= 0.1


def test_the_limits_are_those_of_the_budgets(service: Deniable) -> None:
    statement = service.documents.draft("checkout", "statement")
    rows = {row[0]: row for row in grids(statement, "largest factor")[0].rows}
    assert set(rows) == {"old", "new", "bold"}
    stored = [one.table for one in service.audits.promise("checkout").tables]
    assert len(stored) == 3
    for place, arm in enumerate(rows):
        entries = [row[place] for table in stored for row in (*table.rows, table.unlisted)]
        _, budget, factor, least, most, kept = rows[arm]
        assert (budget, factor, kept) == ("2", "7.39", "yes")
        if most != "not fixed":
            assert Fraction(least.rstrip("%")) / 100 <= Fraction(min(entries), 2**64)
            assert Fraction(most.rstrip("%")) / 100 >= Fraction(max(entries), 2**64)


@pytest.mark.parametrize("kind", sorted(KINDS))
@pytest.mark.parametrize("strategy", ["dynamic", "constant", "joint"])
def test_nothing_is_made_from_counts(strategy: str, kind: str) -> None:
    """Two stores that differ in one visitor's segment and click give the same text."""

    def text(segment: str) -> str:
        with open_service("memory:") as store:
            store.firm.set(budget=9)
            store.experiments.create(
                "E", arms=["a", "b", "c"], segments=["x", "y"], budget=1, strategy=strategy
            )
            store.experiments.start("E")
            victim = store.decide("E", "victim", segment)
            store.reward(victim.id, int(segment == "x"))
            shown = store.decide_batch("E", [(f"v{n}", "xy"[n % 2]) for n in range(299)])
            store.reward_batch([(one.id, int(one.arm == "a")) for one in shown])
            published(store, "E")
            assert store.experiments.get("E").table_number >= 2
            draft = rendering.markdown(store.documents.draft("E", kind))
        # Times and hashes differ between any two stores.
        return re.sub(r"\d\d:\d\d|[0-9a-f]{16,}|([0-9a-f]{4,} ?){4,}", "", draft)

    assert text("x") == text("y")


def test_the_account_is_the_firms(service: Deniable) -> None:
    """The document counts by the audit's code, the service spends by other code."""
    statement = service.documents.draft("checkout", "statement")
    firm = service.firm.current()
    assert (firm.committed, firm.budget, firm.window_days) == (2.5, 6, 90)
    assert field(statement, "Counts on this date") == f"{firm.committed:g} nats"
    assert field(statement, "The firm's limit") == "6 nats in any 90 days"
    lines = grids(statement, "uses budget until")[0].rows
    assert [(row[0], row[3]) for row in lines] == [("checkout", "2"), ("search", "0.5")]
    assert sum(Decimal(row[3]) for row in lines) == Decimal("2.5")
    told = next(text for text in texts(statement) if text.startswith("A visitor may meet"))
    assert f"to at most {believed('0.1', '2.5')[0]}%" in told
    assert f"limit allows {believed('0.1', '6')[0]}%" in told


def test_the_account_of_layers_and_of_stopped_experiments(
    service: Deniable, monkeypatch: pytest.MonkeyPatch
) -> None:
    for key in ("one", "two"):
        service.experiments.create(
            key, arms=["a", "b"], segments=["x", "y"], budget=1, layer="page"
        )
        service.experiments.start(key, share=0.5)
    service.experiments.stop("search")
    later = times.now()
    for days in (0, 89, 92):
        pass_until(monkeypatch, service.beat, later + days * DAY)
        statement = service.documents.draft("checkout", "statement")
        counts = service.firm.current().committed
        assert field(statement, "Counts on this date") == f"{counts:g} nats"
    assert counts == 3.0
    assert "search" not in {row[0] for row in grids(statement, "uses budget until")[0].rows}


def test_residual_risks_are_beliefs_before_and_after(service: Deniable) -> None:
    risks = grids(service.documents.draft("checkout", "dpia"), "inherent: no measures")[0]
    for prior, row in zip(("0.01", "0.1", "0.2", "0.5"), risks.rows, strict=True):
        assert row[1] == "100%"
        assert [Decimal(cell.rstrip("%")) for cell in row[2:]] == [
            believed(prior, nats)[0] for nats in ("2", "2.5", "6")
        ]


def test_the_register_names_flavour_unit_and_parameters_but_no_segment(service: Deniable) -> None:
    entry = service.documents.draft("search", "registry")
    said = " ".join(texts(entry))
    assert field(entry, "Epsilon") == "0.5 (natural logarithm)"
    assert field(entry, "Delta") == "0"
    assert field(entry, "Segments") == "2, not named here"
    assert field(entry, "Epsilon for contributions to what others are shown later") == "not limited"
    assert field(entry, "Limit of the firm") == "epsilon 6 in any 90 days"
    assert "“x”" not in said


def test_many_segments_are_all_named_in_an_annex(service: Deniable) -> None:
    names = [f"group {n}" for n in range(30)]
    service.experiments.create("wide", arms=["a", "b"], segments=names, budget=1)
    service.experiments.start("wide")
    said = texts(service.documents.draft("wide", "statement"))
    assert any("“group 11” and 18 more" in text for text in said)
    assert all(f"“{name}”" in said[said.index("Annex D. The segments") + 1] for name in names)


def test_arms_with_budgets_of_their_own(service: Deniable) -> None:
    service.experiments.create(
        "prices", arms=[NewArm("low", budget=0.5), NewArm("high", budget=1)], segments=["s", "t"]
    )
    service.experiments.start("prices")
    entry = service.documents.draft("prices", "registry")
    assert field(entry, "Epsilon of each version") == "low: 0.5, high: 1"
    statement = service.documents.draft("prices", "statement")
    assert [row[1] for row in grids(statement, "largest factor")[0].rows] == ["0.5", "1"]
    assert "for single versions by less" in " ".join(texts(statement))


def test_no_document_claims_compliance_and_blanks_are_marked(service: Deniable) -> None:
    annex = service.documents.draft("checkout", "dpia")
    for label in ("Legal basis", "Necessity", "Advice", "Decision", "Retention period"):
        assert field(annex, label) == ""
    page, text = rendering.html(annex), rendering.markdown(annex)
    assert page.count('class="blank"') == text.count("to be completed (")
    assert "makes no claim that any law is complied with" in page
    for kind in KINDS:
        said = " ".join(texts(service.documents.draft("checkout", kind))).lower()
        assert "compliant" not in said
        assert "gdpr" not in said


@pytest.mark.parametrize("kind", KINDS)
def test_later_events_do_not_change_a_document(service: Deniable, kind: str) -> None:
    issued = service.documents.issue("checkout", kind, firm="Example Ltd", actor="ada")
    made = service.documents.again(issued.number)
    before = (rendering.html(made), rendering.markdown(made))
    service.experiments.switch_off("checkout", "bold")
    service.decide_batch("checkout", [(f"w{n}", "new") for n in range(200)])
    published(service)
    service.visitors.erase(["v1", "v2"])
    service.firm.set(budget=9, window_days=30, reason="more teams")
    service.audits.run("checkout", record=True)
    service.documents.issue("checkout", kind)
    service.experiments.stop("checkout")
    again = service.documents.again(issued.number)
    assert (rendering.html(again), rendering.markdown(again)) == before
    assert sha256(before[0].encode()).hexdigest() == issued.html
    for text in before:
        found = service.documents.verify(text.encode())
        assert found.sound, found.words
        assert "gives the same bytes" in found.words
    assert rendering.html(service.documents.draft("checkout", kind)) != before[0]
    assert service.ledger.verify().sound


def test_a_draft_at_a_height_stays_the_same(service: Deniable) -> None:
    height = len(service.ledger.entries())
    first = rendering.html(service.documents.draft("checkout", "statement", height=height))
    service.experiments.stop("checkout")
    assert first == rendering.html(service.documents.draft("checkout", "statement", height=height))
    assert "Draft. It was not issued" in first
    for wrong in (0, height + 99):
        with pytest.raises(InvalidArgumentError, match="entry of the ledger"):
            service.documents.draft("checkout", "statement", height=wrong)
    with pytest.raises(WrongStateError, match="at entry 2"):
        service.documents.draft("checkout", "statement", height=2)


def test_documents_are_made_from_the_chain_not_from_rows(service: Deniable) -> None:
    """Whoever changes a row changes no document; and nothing more is issued about it."""
    issued = service.documents.issue("checkout", "statement")
    before = rendering.html(service.documents.again(issued.number))
    with service._store.begin() as connection:
        connection.execute(
            update(experiments)
            .where(experiments.c.key == "checkout")
            .values(budget_nano=10**8, strategy="constant", holdout=500)
        )
    assert rendering.html(service.documents.again(issued.number)) == before
    draft = " ".join(texts(service.documents.draft("checkout", "dpia")))
    assert "Privacy budget: 2 nats" in draft
    assert "joint strategy" in draft
    assert "Held out" not in draft
    with pytest.raises(BrokenPromiseError, match="not what the ledger says"):
        service.documents.issue("checkout", "statement")


def test_a_changed_chain_or_table_gives_no_document(service: Deniable) -> None:
    issued = service.documents.issue("checkout", "statement")
    other = service.documents.issue("search", "statement")
    with service._store.begin() as connection:
        connection.execute(delete(tables).where(tables.c.number == 2))
    with pytest.raises(BrokenPromiseError, match=r"table 2 .* was removed"):
        service.documents.again(issued.number)
    service.documents.again(other.number)
    with service._store.begin() as connection:
        connection.execute(update(commitments).where(commitments.c.seq == 3).values(amount_nano=5))
    for number in (issued.number, other.number):
        with pytest.raises(BrokenPromiseError, match="commitment 3 was changed"):
            service.documents.again(number)


def test_an_edited_file_is_found(service: Deniable) -> None:
    issued = service.documents.issue("checkout", "statement")
    made = service.documents.again(issued.number)
    for text in (rendering.html(made), rendering.markdown(made)):
        for edited in (text.replace("45.1%", "25.1%"), text + "\n", text.replace("7.39", "1.39")):
            assert edited != text
            found = service.documents.verify(edited.encode())
            assert not found.sound
            assert f"names document {issued.number}, but it was changed" in found.words
    stranger = service.documents.verify(b"2019-0001 is nobody's number")
    assert (stranger.sound, stranger.issued) == (False, None)
    assert not service.documents.verify(b"%PDF-1.4 nothing").sound
    assert not service.documents.verify(b"").sound


def test_a_document_of_another_release_is_known_by_its_hash(
    service: Deniable, monkeypatch: pytest.MonkeyPatch
) -> None:
    issued = service.documents.issue("checkout", "record")
    page = rendering.html(service.documents.again(issued.number))
    monkeypatch.setattr(assembly, "layout", lambda: "another")
    monkeypatch.setattr("deniable.report.markdown.BLANK", "......")
    found = service.documents.verify(page.encode())
    assert found.sound
    assert "Another release issued it" in found.words
    with pytest.raises(BrokenPromiseError, match="another release"):
        service.documents.again(issued.number)


def test_numbers_count_within_a_year(service: Deniable, monkeypatch: pytest.MonkeyPatch) -> None:
    new_year = 1_798_761_600_000_000  # 2027-01-01 UTC
    found = []
    for now in (new_year - 2, new_year - 1, new_year, new_year + 400 * DAY):
        monkeypatch.setattr(times, "now", lambda now=now: now)
        found.append(service.documents.issue("checkout", "record").number)
    assert found == ["2026-0001", "2026-0002", "2027-0001", "2028-0001"]
    assert [one.number for one in service.documents.all("checkout")] == found
    assert service.documents.all("search") == []


def test_two_who_issue_at_once_get_two_numbers(tmp_path: Any) -> None:
    with open_service(f"sqlite:///{tmp_path / 'store.db'}") as opened:
        opened.firm.set(budget=3)
        opened.experiments.create("e", arms=["a", "b"], segments=["x", "y"], budget=1)
        opened.experiments.start("e")
        threads = [
            Thread(target=lambda: opened.documents.issue("e", "statement")) for _ in range(6)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        numbers = [one.number.partition("-")[2] for one in opened.documents.all()]
        assert numbers == [f"{n:04d}" for n in range(1, 7)]
        for one in opened.documents.all():
            opened.documents.again(one.number)
        assert opened.ledger.verify().sound


def test_the_entry_says_number_kind_height_hashes_and_who(service: Deniable) -> None:
    before = len(service.ledger.entries())
    issued = service.documents.issue("checkout", "dpia", firm="Example Ltd", actor="ada")
    entry = service.ledger.entries()[-1]
    assert (entry.kind, entry.experiment, entry.seq) == ("document", "checkout", issued.seq)
    assert entry.recorded_at == issued.issued_at
    assert (issued.height, issued.seq) == (before, before + 1)
    assert '"as": "dpia"' in entry.detail
    assert f'"html": "{issued.html}"' in entry.detail
    assert (issued.kind, issued.firm, issued.actor) == ("dpia", "Example Ltd", "ada")
    made = service.documents.again(issued.number)
    assert made.fingerprint() == issued.content
    assert issued.content in rendering.html(made)
    assert issued.content in rendering.markdown(made)


def test_what_cannot_be_issued(service: Deniable) -> None:
    service.experiments.create("later", arms=["a", "b"], segments=["x"], budget=1)
    before = len(service.ledger.entries())
    for kind in ("statement", "registry", "record"):
        with pytest.raises(WrongStateError, match="'later' was never started"):
            service.documents.issue("later", kind)
    with pytest.raises(UnknownNameError, match="no experiment is called 'nothing'"):
        service.documents.issue("nothing", "statement")
    with pytest.raises(InvalidArgumentError, match="statement, dpia, registry, record"):
        service.documents.issue("checkout", "poem")
    with pytest.raises(UnknownNameError, match="no document is called '2026-9999'"):
        service.documents.again("2026-9999")
    for wrong in ("x" * 201, "a\nb", "\x1b[31m"):
        with pytest.raises(InvalidArgumentError, match="printable"):
            service.documents.issue("checkout", "record", firm=wrong)
    assert len(service.ledger.entries()) == before


def test_an_assessment_comes_before_the_start(service: Deniable) -> None:
    service.experiments.create("later", arms=["a", "b"], segments=["x", "y"], budget=1)
    annex = service.documents.draft("later", "dpia")
    assert field(annex, "Period") == "not started"
    assert field(annex, "Scale") == "no decisions yet"
    issued = service.documents.issue("later", "dpia")
    service.experiments.start("later")
    service.documents.again(issued.number)


def test_a_switched_off_arm_makes_two_lists_of_limits(service: Deniable) -> None:
    service.experiments.switch_off("checkout", "bold")
    statement = service.documents.draft("checkout", "statement")
    found = grids(statement, "largest factor")
    assert [[row[0] for row in grid.rows] for grid in found] == [
        ["old", "new", "bold"],
        ["old", "new"],
    ]
    assert found[0].caption.startswith("Until “bold” was switched off: limits")
    assert found[1].caption.startswith("Since “bold” was switched off: limits")
    grade = service.audits.promise("checkout").grade
    assert any(text.startswith(f"This promise is {grade}") for text in texts(statement))


def test_stops_erasures_and_audits_are_told(service: Deniable) -> None:
    service.visitors.erase(["v1", "v2", "v3"])
    service.audits.run("checkout", record=True)
    service.experiments.stop("checkout")
    annex = service.documents.draft("checkout", "dpia")
    assert field(annex, "Erased so far") == "3 decisions of this experiment"
    experiment = service.experiments.get("checkout")
    assert experiment.started_at is not None
    assert field(annex, "Period").startswith(f"{experiment.started_at:%-d %B %Y} to ")
    audit = [one for one in service.ledger.entries() if one.kind == "audit"][-1]
    assert f"entry {audit.seq:,}" in " ".join(texts(annex))


def test_a_statement_says_what_a_reader_asks_before_signing() -> None:
    """The sum over a year, the decision id, the firm's own words or blanks, and nobody of the staff."""
    with open_service("memory:") as service:
        service.firm.set(budget=3, window_days=90)
        service.firm.change_settings(contact="privacy office", purpose="to sell more")
        service.experiments.create("e", arms=["a", "b"], segments=["rich", "poor"], budget=1)
        service.experiments.start("e")
        with acting("user", "ada"):
            issued = service.documents.issue("e", "statement", names_segments=False)
        made = service.documents.again(issued.number)
        named = service.documents.draft("e", "statement")
        for kind in KINDS:
            said = rendering.markdown(service.documents.draft("e", kind))
            assert "published table" not in said
            assert not re.search(r"\b\d[\d,]{16,}\b", said)
            assert kind == "registry" or "ecision id" in said, kind
    cover = {field.label: (field.value, field.hint) for field in made.cover}
    assert cover["Purpose"] == ("to sell more", "")
    assert cover["Contact"] == ("privacy office", "")
    assert cover["Legal basis"] == ("", "on which the firm relies")
    first_section = made.sections[0].text
    assert "No label for life is used here" in first_section
    assert "15 nats in any 365 days" in first_section  # five windows of 90 days are begun in a year
    told = " ".join(texts(made))
    assert "ada" not in re.findall(r"\w+", told)
    assert re.search(r"by person [0-9a-f]{6} \(a pseudonym", told)
    assert "rich" not in told
    assert "their names are left out here" in told
    assert "“rich” and “poor”" in " ".join(texts(named))


def _labelled(store: Deniable, budget: float = 1) -> None:
    store.firm.set(budget=9)
    store.masks.create("interest", segments=["s", "m", "g", "t"], budget=budget)
    store.experiments.create("banner", arms=["old", "new"], mask="interest")
    store.experiments.start("banner")
    store.decide("banner", "v-1", "s")


@pytest.mark.parametrize(("budget", "wrong"), [(1, "52.5%"), (3, "13%")])
def test_the_firms_statement_has_the_figures_of_its_labels(budget: float, wrong: str) -> None:
    with open_service("memory:") as store:
        _labelled(store, budget)
        statement = store.documents.draft(None, "statement")
        said = " ".join(texts(statement))
    own = mpmath.exp(budget) / (mpmath.exp(budget) + 3)  # from the formula, not from the channel
    assert wrong == f"{float(100 * (1 - own)):.3g}%"
    assert f"For {wrong} of people" in said
    told = budget * (own - (1 - own) / 3)
    assert f"another label move by {float(told):.2f} there" in said
    draw = mpmath.mpf(budget) / 78
    right = mpmath.exp(draw) / (mpmath.exp(draw) + 1)
    assert f"moves them by {float(78 * draw * (2 * right - 1)):.2f} in all" in said
    ceiling = mpmath.exp(budget) / (mpmath.exp(budget) + 9) * 100
    highest = grids(statement, "10%")[0].rows[0][2]
    assert 0 <= float(highest.rstrip("%")) - ceiling <= 0.1
    assert "shown to anybody" in said
    assert "banner" not in said


def test_documents_about_labels_have_the_budget_of_the_mask() -> None:
    with open_service("memory:") as store:
        _labelled(store)
        assert "Privacy budget of the labels" in " ".join(
            texts(store.documents.draft("banner", "dpia"))
        )
        risks = grids(store.documents.draft("banner", "dpia"), "inherent: no measures")[0]
        assert risks.header[2] == "residual: in all that reads the label"
        assert risks.rows[2][:3] == ("20%", "100%", "40.5%")
        entry = store.documents.draft("banner", "registry")
        assert field(entry, "Epsilon").startswith("1 (")
        assert field(entry, "Model").startswith(
            "local: the label is randomized on its own, in one draw"
        )
        record = " ".join(texts(store.documents.draft("banner", "record")))
        assert "by at most the factor 2.72" in record
        for kind in KINDS:
            said = " ".join(texts(store.documents.draft("banner", kind)))
            assert "budget of 0 nats" not in said
            assert "factor 1 " not in said


def test_the_firms_statement_is_issued_made_again_and_adds_experiments_that_read_segments() -> None:
    with open_service("memory:") as store:
        with pytest.raises(InvalidArgumentError, match="statement"):
            store.documents.draft(None, "dpia")
        store.firm.set(budget=9)
        with pytest.raises(WrongStateError, match="no labels count"):
            store.documents.draft(None, "statement")
    with open_service("memory:") as store:
        _labelled(store)
        issued = store.documents.issue(None, "statement", firm="Example Ltd")
        store.experiments.create("own", arms=["a", "b"], segments=["x", "y"], budget=2)
        store.experiments.start("own")
        again = store.documents.again(issued.number)
        assert "a budget of 3 nats" not in " ".join(texts(again))
        assert store.documents.verify(rendering.html(again).encode()).sound
        edited = rendering.html(again).replace("2.72", "1.72")
        assert not store.documents.verify(edited.encode()).sound
        later = " ".join(texts(store.documents.draft(None, "statement")))
        assert "a privacy budget of 3 nats" in later
        assert "given what earlier people were shown" in later
        assert store.audits.firm().sound

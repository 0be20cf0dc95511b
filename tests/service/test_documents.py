"""Documents on every kind of store."""

from __future__ import annotations

from tests.service.support import published, running

from deniable.documents import rendering
from deniable.service.service import Deniable


def test_a_document_is_issued_and_made_again(service: Deniable) -> None:
    running(service)
    service.decide_batch("checkout", [(f"v{n}", "ab"[n % 2]) for n in range(150)])
    published(service)
    issued = service.documents.issue("checkout", "statement", firm="Example Ltd", actor="ada")
    before = rendering.html(service.documents.again(issued.number))
    service.experiments.switch_off("checkout", "bold")
    service.experiments.stop("checkout")
    assert rendering.html(service.documents.again(issued.number)) == before
    assert service.documents.verify(before.encode()).sound
    assert not service.documents.verify(before.replace("checkout", "checkin").encode()).sound
    assert service.ledger.verify().sound

"""Faults of the pages: what is told, to whom, and what is hidden."""

from __future__ import annotations

from tests.mutants.fault import Fault

TESTS = "tests/web"
ACCESS = f"{TESTS}/test_access.py"

FAULTS = (
    Fault(
        "web/templates/overview.html",
        'figure("Free", firm.remaining | in_nats',
        'figure("Free", firm.committed | in_nats',
        "what is free is told as what is committed",
        (f"{TESTS}/test_overview.py",),
    ),
    Fault(
        "web/templates/overview.html",
        'figure("Committed", firm.committed | in_nats',
        'figure("Committed", firm.budget | in_nats',
        "what is committed is told as the budget",
        (f"{TESTS}/test_overview.py",),
    ),
    Fault(
        "web/access.py",
        'if not hmac.compare_digest(signature, self.sign("session", f"{token}.{expires}")):',
        "if False:",
        "a session can be forged",
        (f"{ACCESS}::test_a_session_cannot_be_stretched_or_guessed",),
    ),
    Fault(
        "web/access.py",
        "if int(expires) <= (time.time() if now is None else now):",
        "if False:",
        "a session never ends",
        (f"{ACCESS}::test_an_expired_session_is_over",),
    ),
    Fault(
        "web/access.py",
        "if not isinstance(given, str) or not signer_of(request).same(given, expected):",
        "if not isinstance(given, str):",
        "a form of another site is accepted",
        (f"{ACCESS}::test_a_token_of_another_session_does_nothing",),
    ),
    Fault(
        "web/access.py",
        "        viewer.caller.require(scope)\n",
        "",
        "a reader may change everything",
        (f"{ACCESS}::test_readers_look_but_do_not_touch",),
    ),
    Fault(
        "web/account.py",
        "service_of(request).sessions.end(form.viewer.session.id)",
        "pass",
        "signing out does not end a copy of the session",
        (f"{ACCESS}::test_a_copy_of_the_session_ends_with_it",),
    ),
    Fault(
        "web/account.py",
        "session = signer_of(request).new()",
        "session = session_of(request) or signer_of(request).new()",
        "a session that was planted before signing in is kept",
        (f"{TESTS}/test_people.py::test_signing_in_begins_a_session_that_nobody_planted",),
    ),
    Fault(
        "web/access.py",
        "        viewer.caller.act()\n",
        "",
        "the ledger does not say who did it",
        (f"{TESTS}/test_people.py::test_from_invitation_to_the_ledger",),
    ),
    Fault(
        "web/access.py",
        "if not self.header or not self.trusts(request):",
        "if not self.header:",
        "anybody signs in by sending the proxy's header",
        (f"{TESTS}/test_proxy.py::test_whose_word_counts",),
    ),
    Fault(
        "web/settings.py",
        'if wanted not in own and not form.viewer.may("admin"):',
        "if False:",
        "people end the sessions of others",
        (f"{TESTS}/test_people.py::test_nobody_ends_the_sessions_of_others_but_an_admin",),
    ),
    Fault(
        "web/access.py",
        'PrivacySubmission = Annotated[Form, Depends(sending("privacy"))]',
        'PrivacySubmission = Annotated[Form, Depends(sending("read"))]',
        "viewers look up and erase single visitors",
        (f"{TESTS}/test_roles.py::test_each_role_may_do_what_its_scopes_say[viewer]",),
    ),
    Fault(
        "_formatting.py",
        "    if probability > 0.99:\n",
        "    if probability > 2:\n",
        "a probability is told as certain",
        ("src/deniable/_formatting.py",),
    ),
    Fault(
        "web/listing.py",
        'if isinstance(cell, str) and cell[:1] in ("=", "+", "-", "@", "\\t", "\\r"):',
        "if False:",
        "a name becomes a formula in a spreadsheet",
        (f"{TESTS}/test_lists.py::test_a_cell_of_a_file_is_no_formula",),
    ),
    Fault(
        "web/listing.py",
        "first=0 if everything else (max(1, self.page) - 1) * SIZE,",
        "first=0,",
        "every page of a list is the first one",
        (f"{TESTS}/test_lists.py::test_pages_orders_and_filters_are_in_the_address",),
    ),
)

"""Faults of the pages: what is told, to whom, and what is hidden."""

from __future__ import annotations

from mutants.fault import Fault

TESTS = "tests/web"
HIDING = (f"{TESTS}/test_risks.py::test_a_small_group_is_never_hidden_alone",)
RISKS = f"{TESTS}/test_risks.py"
STANDING = (f"{TESTS}/test_standing.py",)
ACCESS = f"{TESTS}/test_access.py"
WATCHER = f"{TESTS}/test_watcher.py"

FAULTS = (
    Fault(
        "service/evidence.py",
        "if visible and len(smallest) - len(visible) + unlisted == 1:",
        "if False:",
        "a lone small segment follows from the total",
        HIDING,
    ),
    Fault(
        "service/evidence.py",
        "SMALLEST_CELL = 30",
        "SMALLEST_CELL = 3",
        "figures on three visitors are told",
        HIDING,
    ),
    Fault(
        "service/evidence.py",
        "unlisted = 0 < shows[-1].sum() < SMALLEST_CELL",
        "unlisted = False and 0 < shows[-1].sum() < SMALLEST_CELL",
        "a few unlisted visitors follow from the total",
        HIDING,
    ),
    Fault(
        "service/evidence.py",
        "smallest = shows[:-1, np.asarray(active)].min(axis=1)",
        "smallest = shows[:-1, np.asarray(active)].max(axis=1)",
        "a segment is told whose rarest arm few were shown",
        HIDING,
    ),
    Fault(
        "web/risks.py",
        "return math.log(max(ratios) / min(ratios))",
        "return math.log(max(ratios))",
        "the told risk is too small",
        (f"{RISKS}::test_the_told_risk_is_that_of_the_theory",),
    ),
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
        "web/standing.py",
        "for share in (0.025, 0.975))",
        "for share in (0.25, 0.75))",
        "the interval of an arm holds half of the belief",
        STANDING,
    ),
    Fault(
        "web/standing.py",
        "contending = np.where(self._on, posterior, -1.0)",
        "contending = posterior",
        "an arm that is off can be the best",
        STANDING,
    ),
    Fault(
        "web/standing.py",
        "return float((self.shows * np.maximum(best - rates, 0)).sum())",
        "return float(np.maximum(best - rates, 0).sum())",
        "clicks lost do not depend on visitors",
        STANDING,
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
        "web/watcher.py",
        "SUSPICIOUS = 1e-6",
        "SUSPICIOUS = 1e-60",
        "a planted fault is not noticed",
        (
            f"{WATCHER}::test_chance_is_not_suspicious_and_nine_deviations_are",
            f"{WATCHER}::test_a_planted_fault_is_noticed_and_told",
        ),
    ),
    Fault(
        "web/wording.py",
        "    if probability > 0.99:\n",
        "    if probability > 2:\n",
        "a probability is told as certain",
        ("src/deniable/web/wording.py",),
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
    Fault(
        "web/pages.py",
        "while not self._ended.is_set() and self._quiet_in() > 0:",
        "while False:",
        "first visits wait for what is prepared for later ones",
        (f"{TESTS}/test_preparation.py::test_nothing_is_done_while_somebody_looks",),
    ),
)

"""Faults of deciding, rewarding, publishing and the service's own administration."""

from __future__ import annotations

from tests.mutants.fault import Fault

TESTS = "tests/service"
FACADE = f"{TESTS}/test_facade.py"
LEASES = (f"{TESTS}/test_leases.py",)
QUEUEING = (f"{TESTS}/test_queueing.py",)
KEY = f"{TESTS}/test_visitor_key.py"
PEOPLE = f"{TESTS}/test_people.py"
GROWING = "tests/promise/test_growing.py"
PUBLISHING = f"{TESTS}/test_publishing.py"
CUTS = f"{TESTS}/test_cuts.py"

SPELLINGS = "tests/promise/test_spellings.py"
REFILLS = "tests/promise/test_refills.py"
RESTORE = "tests/promise/test_restore.py"

CONTEXTS = "tests/service/test_contexts.py"
LABELS = f"{TESTS}/test_labels.py"

FAULTS = (
    Fault(
        "service/batch.py",
        "first = new.get(visitor) or stored.get(visitor)",
        "first = new.get(visitor)",
        "a label follows the segment",
        (f"{LABELS}::test_labels_are_the_librarys_and_the_first_value_counts",),
    ),
    Fault(
        "service/experiment_state.py",
        "if segment in self.numbers:",
        "if segment == self.numbers:",
        "a label that was made elsewhere is drawn again",
        (f"{LABELS}::test_a_label_made_elsewhere_is_kept",),
    ),
    Fault(
        "service/ids.py",
        'b"context" + experiment + sha256(context.encode()).digest() for context',
        "experiment for context",
        "an arm is carried to another context",
        (f"{CONTEXTS}::test_an_arm_is_kept_in_its_context_and_never_carried_to_another",),
    ),
    Fault(
        "service/batch.py",
        "places += [state.contexts.get(context, 0) for context in job.contexts]",
        "places += [state.contexts.get(context, 0) for context in job.segments]",
        "the context is taken from the segment",
        (f"{CONTEXTS}::test_the_segment_is_not_read",),
    ),
    Fault(
        "service/engine.py",
        "    if observed and not state.observed:",
        "    if False and not state.observed:",
        "an observed visit is answered by an experiment of unobserved ones",
        (f"{CONTEXTS}::test_unobserved_visits_have_an_experiment_of_their_own",),
    ),
    Fault(
        "service/engine.py",
        "now = max(times.now(), *(state.chained_at for state in states), 0)",
        "now = times.now()",
        "a clock that was corrected breaks the ledger for ever",
        ("tests/promise/test_refills.py::test_a_clock_that_was_ahead_can_be_corrected",),
    ),
    Fault(
        "service/ids.py",
        "visitor.translate(_REMOVED)",
        "visitor",
        "an invisible character makes another visitor",
        (f"{SPELLINGS}::test_what_nobody_sees_makes_no_second_draw",),
    ),
    Fault(
        "service/engine.py",
        "if found is None or found.seq < seq or (found.seq == seq and found.head != head):",
        "if found is None:",
        "a process goes on with a backup that was written into its store",
        (f"{RESTORE}::test_a_backup_put_into_a_running_store_is_noticed",),
    ),
    Fault(
        "service/engine.py",
        "if now // HOUR != self._beaten_hour:",
        "if False:",
        "nobody records that the service is running",
        (f"{REFILLS}::test_a_running_service_says_so_once_a_day",),
    ),
    Fault(
        "service/batch.py",
        "if not self._tx.extend(writer, owner, self._before, self._chain, lease_until, counts):",
        "if self._tx.extend(writer, owner, self._before, self._chain, lease_until, counts) is None:",
        "a writer that lost its lease is acknowledged",
        LEASES,
    ),
    Fault(
        "service/engine.py",
        "        if chain is None:\n            self._identity = None\n",
        "        if chain is None:\n",
        "a writer that lost its chain asks for the same one for ever",
        LEASES,
    ),
    Fault(
        "service/lease.py",
        ".where(writers.c.id > COMMITMENT_CHAIN, writers.c.lease_until < now)",
        ".where(writers.c.id > COMMITMENT_CHAIN)",
        "a lease that runs is looked at as free",
        equivalent="the update beside it asks for the lease again; where it runs, a chain is begun",
    ),
    Fault(
        "service/lease.py",
        "            .where(writers.c.id == free, writers.c.lease_until < now)",
        "            .where(writers.c.id == free)",
        "a chain that another process just took is taken again",
        (f"{TESTS}/test_leases.py::test_of_two_who_saw_the_same_free_chain_one_gets_it",),
    ),
    Fault(
        "service/batch.py",
        "wanted.setdefault(tag, {}).setdefault(place, value)",
        "wanted.setdefault(tag, {})[place] = value",
        "of several rewards in one batch the last one counts",
        (f"{FACADE}::test_the_first_of_several_rewards_in_one_batch_counts",),
    ),
    Fault(
        "service/batch.py",
        "if (decision, metric) in before:",
        "if False:",
        "a second reward breaks the batch",
        (f"{FACADE}::test_rewards_count_once",),
    ),
    Fault(
        "service/batch.py",
        "elif window is not None and now - what.decided_at > window:",
        "elif False:",
        "rewards count after the attribution window",
        (f"{TESTS}/test_administration.py::test_attribution_window",),
    ),
    Fault(
        "service/batch.py",
        "shown = draw(by_role[role][segment], point)",
        "shown = draw(by_role[role][segment], point >> 8)",
        "a draw has 56 bits, so that late arms are never shown",
        (f"{TESTS}/test_draws.py::test_frequencies",),
    ),
    Fault(
        "service/batch.py",
        "by_role = [[neutral] * (len(state.rows) + 1) for _ in Role]",
        "by_role = [[unlisted] * (len(state.rows) + 1) for _ in Role]",
        "erased visitors are drawn from a row that was learned from their own record",
        (f"{TESTS}/test_drawing.py::test_only_members_are_drawn_from_their_segments_row",),
    ),
    Fault(
        "service/engine.py",
        "                raise StoreUnavailableError(self._outage)",
        '                raise StoreUnavailableError("the store did not respond")',
        "while a failed store is not asked, nobody is told what failed",
        ("tests/promise/test_restore.py::test_a_backup_put_into_a_running_store_is_noticed",),
    ),
    Fault(
        "service/experiment_state.py",
        "arm = draw(self.neutral, ",
        "arm = draw(self.unlisted or [], ",
        "answers of an outage are drawn from what was learned",
        ("tests/promise/test_neutral_row.py::test_an_outage_is_answered_from_it",),
    ),
    Fault(
        "service/batch.py",
        "by_role[Role.MEMBER] = [*state.rows, unlisted]",
        "by_role = [[*state.rows, unlisted] for _ in Role]",
        "visitors outside of the experiment get their segment's row",
        (f"{TESTS}/test_drawing.py::test_only_members_are_drawn_from_their_segments_row",),
    ),
    Fault(
        "service/batch.py",
        "            if visitor not in answers:",
        "            if visitor:",
        "a known visitor is drawn for again",
        (f"{FACADE}::test_a_visitor_keeps_the_arm_whatever_the_segment_and_process",),
    ),
    Fault(
        "service/batch.py",
        "            for stone in self._tx.erased(state.id, list(stones)):",
        "            for stone in ():",
        "an erased visitor is drawn for at full risk again",
        ("tests/promise/test_exhaustion.py::test_visiting_and_erasing_for_ever",),
    ),
    Fault(
        "service/ids.py",
        "if stat.S_IMODE(path.stat().st_mode) & 0o077:",
        "if stat.S_IMODE(path.stat().st_mode) & 0o022:",
        "a key file that everybody can read is accepted",
        (f"{KEY}::test_a_key_that_others_can_open_is_refused",),
    ),
    Fault(
        "service/ids.py",
        "descriptor = os.open(draft, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)",
        "descriptor = os.open(draft, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o644)",
        "a new key file can be read by everybody",
        (f"{KEY}::test_a_new_key_is_private_under_any_mask",),
    ),
    Fault(
        "service/ids.py",
        "elif known != fingerprint(key):",
        "elif False:",
        "with another key every visitor is new",
        ("tests/promise/test_side_channels.py::test_a_wrong_key_is_refused_and_stays_as_it_is",),
    ),
    Fault(
        "service/ids.py",
        'return unicodedata.normalize("NFC", visitor.translate(_REMOVED)).strip()',
        "return visitor.translate(_REMOVED).strip()",
        "two spellings of one id are two visitors",
        ("tests/promise/test_spellings.py::test_ten_spellings_are_one_draw",),
    ),
    Fault(
        "service/firm.py",
        "budget_nano = nano_down(budget)",
        "from deniable.privacy.composition import nano_up\n\n        budget_nano = nano_up(budget)",
        "the firm's limit is rounded up",
        (f"{KEY}::test_the_firms_limit_is_rounded_down",),
    ),
    Fault(
        "service/jobs.py",
        "            if job.since < oldest:\n",
        "            if False:\n",
        "jobs that waited too long are served while others wait",
        QUEUEING,
    ),
    Fault(
        "service/jobs.py",
        "if self._jobs and self.size + job.size > self._limit:",
        "if False:",
        "the queue has no limit",
        QUEUEING,
    ),
    Fault(
        "service/people.py",
        "                invites.c.expires_at > self._clock(),\n",
        "",
        "an invitation works for ever",
        (f"{PEOPLE}::test_an_invitation_ends",),
    ),
    Fault(
        "service/people.py",
        "None if row is None or row.disabled_at is not None else row.password_hash",
        "None if row is None else row.password_hash",
        "a disabled person signs in",
        (f"{PEOPLE}::test_every_refusal_costs_one_check_of_a_password",),
    ),
    Fault(
        "service/passwords.py",
        "hasher().verify(stored or of_nobody, _normalised(password)[:LONGEST])",
        "stored is None or hasher().verify(stored, _normalised(password)[:LONGEST])",
        "the time tells whether a name exists",
        (f"{PEOPLE}::test_every_refusal_costs_one_check_of_a_password",),
    ),
    Fault(
        "service/people.py",
        "        self._count(buckets)\n",
        "",
        "passwords can be guessed without a limit",
        (f"{PEOPLE}::test_guessing_is_limited_whether_or_not_anybody_has_the_name",),
    ),
    Fault(
        "service/approvals.py",
        "            if row.asked_by == actor:\n",
        "            if False:\n",
        "one person is both",
        (f"{TESTS}/test_approvals.py::test_one_asks_another_grants_the_first_does",),
    ),
    Fault(
        "service/approvals.py",
        "                approvals.c.answered_at > since,\n",
        "",
        "a grant holds for ever",
        (f"{TESTS}/test_approvals.py::test_a_refusal_or_an_old_grant_does_not_help",),
    ),
    Fault(
        "service/webhook.py",
        "                if self._tries < MOST_TRIES:\n",
        "                if True:\n",
        "one message that is never taken holds up all others",
        (f"{TESTS}/test_webhook.py::test_it_gives_up_after_some_hours_and_goes_on",),
    ),
    Fault(
        "service/table_making.py",
        "    cut = cut_at(grown.due, grown.stored, grown.made_of)\n",
        "    cut = grown.stored\n",
        "a table is made from everything that was stored when somebody looked",
        (f"{CUTS}::test_a_large_batch_is_one_table_at_the_last_due_number",),
    ),
    Fault(
        "service/table_making.py",
        "    due = last_due(before, now, epochs)\n",
        "    due = now\n",
        "a table is published whenever somebody looks",
        (f"{CUTS}::test_only_due_tables_are_published",),
    ),
    Fault(
        "service/experiment_state.py",
        "if head != (wanted[identity].revision, wanted[identity].table_number)",
        "if head[0] != wanted[identity].revision",
        "a table that is not in force any more is drawn from",
        (f"{PUBLISHING}::test_another_processs_table_is_read",),
    ),
    Fault(
        "service/publisher.py",
        "state.look_after = known + publish_due(connection, state.key).look_after",
        "state.look_after = known + 0 * publish_due(connection, state.key).look_after",
        "the counters are looked at after every batch",
        (f"{PUBLISHING}::test_the_counters_are_looked_at_once_for_each_table",),
    ),
    Fault(
        "service/publisher.py",
        "            self._look(state)\n            # Not",
        "            self._noticed.discard(state.id)\n            self._look(state)\n            # Not",
        "every batch that is stored during a look asks for another one",
        (f"{PUBLISHING}::test_batches_that_are_stored_during_a_look_ask_for_none",),
    ),
    Fault(
        "service/publisher.py",
        "if not state.differences and state.new_decisions >= state.look_after:",
        "if False:",
        "what became due during a look is not looked at",
        (f"{PUBLISHING}::test_what_became_due_during_a_look_is_looked_at_again",),
    ),
    Fault(
        "service/publisher.py",
        "except Exception as error:  # noqa: BLE001 - the table",
        "except BrokenPromiseError as error:  # the table",
        "an unexpected error ends the publisher for all experiments",
        (f"{PUBLISHING}::test_whatever_fails_publishing_goes_on",),
    ),
    Fault(
        "service/http/decide_routes.py",
        "if self._service.writer.crowded():",
        "if False:",
        "under overload every body is parsed before it is refused",
        (f"{TESTS}/http/test_pressure.py",),
    ),
    Fault(
        "service/visitor_requests.py",
        "if isinstance(visitors, str):",
        "if False:",
        "the letters of one id are erased in its place",
        ("tests/promise/test_spellings.py",),
    ),
    Fault(
        "service/experiment_state.py",
        "if before.version == self.version:",
        "if False:",
        "the counters are looked at again after every table",
        (f"{PUBLISHING}::test_the_counters_are_looked_at_once_for_each_table",),
    ),
    Fault(
        "service/writer.py",
        "        while waiting and _future(waiting[0]).done():\n            waiting.popleft()\n\n",
        "\n",
        "answered jobs are kept until their deadline",
        (f"{TESTS}/test_deadlines.py::test_what_was_answered_in_time_is_let_go",),
    ),
)

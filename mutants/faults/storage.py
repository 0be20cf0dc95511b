"""Faults of the stores, the account, the chains and what is forgotten."""

from __future__ import annotations

from mutants.fault import Fault

TESTS = "tests/storage"
DURABLE = f"{TESTS}/test_durability.py"
SQLITE_DISK = (f"{DURABLE}::test_a_new_sqlite_store_waits_for_its_disk",)
POSTGRES_DISK = (f"{DURABLE}::test_postgres_waits_for_its_disk_whatever_the_server_says",)
REPLIES = (f"{DURABLE}::test_old_replies_are_forgotten",)
ACCOUNT = (f"{TESTS}/test_account.py",)
ERASURE = (f"{TESTS}/test_erasure.py",)
LEDGER = (f"{TESTS}/test_ledger.py",)
LEASES = ("tests/service/test_leases.py",)
GROWING = "tests/promise/test_growing.py"
BELIEVED = (f"{GROWING}::test_entries_that_cannot_be_are_not_believed",)

CHECKPOINTS = ("tests/storage/test_checkpoints.py",)

REFILLS = "tests/promise/test_refills.py"
TAMPERING = "tests/promise/test_tampering.py"
JUMP = (f"{REFILLS}::test_a_clock_that_jumps_ahead_frees_nothing",)

FAULTS = (
    Fault(
        "storage/commitments.py",
        "skipped = silent if silent > LONGEST_GAP else 0",
        "skipped = 0",
        "a clock that jumped frees the window once something is recorded",
        JUMP,
    ),
    Fault(
        "storage/commitments.py",
        "return newest if newest and now - newest > LONGEST_GAP else max(now, newest)",
        "return max(now, newest)",
        "a clock that jumps frees the window at once",
        JUMP,
    ),
    Fault(
        "storage/commitments.py",
        "skipped = silent if silent > LONGEST_GAP else 0",
        "skipped = silent",
        "an outage of some days makes all windows longer",
        (f"{REFILLS}::test_an_outage_of_some_days_counts",),
    ),
    Fault(
        "storage/sums.py",
        "            shows[place] += count\n",
        "            shows[place] = count\n",
        "of several writers in one table only the last one counts",
        ("tests/storage/test_sums.py::test_several_writers_in_one_table_are_added",),
    ),
    Fault(
        "storage/ledger.py",
        "if answered is None or (counts and answered < decided):",
        "if answered is None:",
        "the last answer can be moved back before a stop",
        (TAMPERING,),
    ),
    Fault(
        "storage/commitments.py",
        "_holding(*row)\n    if found is None:",
        "_holding(*row)\n    if found is None and once:",
        "an entry that was changed is read as none",
        (f"{TESTS}/test_account.py::test_a_changed_entry_is_not_believed",),
    ),
    Fault(
        "storage/sqlite_files.py",
        'busy, _, _ = connection.execute("PRAGMA wal_checkpoint(RESTART)").fetchone()',
        "busy = False",
        "under load SQLite's log grows until a decision has to copy it",
        CHECKPOINTS,
    ),
    Fault(
        "storage/sqlite_files.py",
        " or long_log(self._path) not in (None, self._restarting)",
        "",
        "under overload SQLite's log becomes so long within seconds that a decision has to copy it",
        (f"{CHECKPOINTS[0]}::test_a_log_that_becomes_long_is_copied_at_once",),
    ),
    Fault(
        "storage/sqlite_files.py",
        "not in (None, self._restarting)",
        "is not None",
        "a long log that was copied is copied again and again while nothing is written",
        CHECKPOINTS,
    ),
    Fault(
        "storage/sqlite_connections.py",
        '    driver.execute("PRAGMA busy_timeout = 0")\n',
        "",
        "decisions queue behind a writer that waits long for a short purge",
        CHECKPOINTS,
    ),
    Fault(
        "storage/sqlite_connections.py",
        "{SYNCHRONOUS if lasting else NOT_LASTING}",
        "{NOT_LASTING}",
        "SQLite's administration does not wait for the disk",
        (f"{TESTS}/test_durability.py",),
    ),
    Fault(
        "storage/postgres.py",
        "self._begun(_LASTING if lasting else _FLEETING,",
        "self._begun(_FLEETING,",
        "PostgreSQL's administration does not wait for the disk",
        (f"{TESTS}/test_durability.py",),
    ),
    Fault(
        "storage/erasure.py",
        "return last or self.ended - self.settled >= LASTING_SECONDS",
        "return self.ended - self.settled >= LASTING_SECONDS",
        "the end of a purge is told as done and can be lost",
        ERASURE,
    ),
    Fault(
        "storage/erasure.py",
        "            self.settled = self.ended\n",
        "            pass\n",
        "every transaction of a long purge waits for the disk while decisions wait",
        ERASURE,
    ),
    Fault(
        "storage/erasure.py",
        "    began += clock() - asked\n",
        "    clock()\n",
        "a purge rests for what it waited, and hardly goes on",
        ERASURE,
    ),
    Fault(
        "storage/sqlite_connections.py",
        "?mode=rw",
        "?mode=rwc",
        "a store that is gone is made anew, empty",
        CHECKPOINTS,
    ),
    Fault(
        "storage/sqlite_connections.py",
        "time.sleep(RETRY_SECONDS)",
        "time.sleep(20 * RETRY_SECONDS)",
        "a decision waits long for a short transaction of another process",
        CHECKPOINTS,
    ),
    Fault(
        "storage/sqlite_connections.py",
        'SYNCHRONOUS = "FULL"',
        'SYNCHRONOUS = "NORMAL"',
        "an acknowledged decision can be lost with the power (SQLite)",
        SQLITE_DISK,
    ),
    Fault(
        "storage/sqlite_connections.py",
        '"journal_mode": "WAL"',
        '"journal_mode": "DELETE"',
        "readers and the writer block each other",
        SQLITE_DISK,
    ),
    Fault(
        "storage/sqlite_connections.py",
        "os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600",
        "os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o644",
        "the store can be read by others",
        (
            "tests/promise/test_side_channels.py::"
            "test_the_files_of_a_store_are_for_their_owner_alone",
        ),
    ),
    Fault(
        "storage/sqlite.py",
        "elif found != self._file:",
        "elif False:",
        "a store that was deleted or replaced goes on acknowledging",
        ("tests/service/http/test_outages.py::test_sqlite_file_replaced",),
    ),
    Fault(
        "storage/postgres.py",
        'b"SET synchronous_commit = on; SET statement_timeout',
        'b"SET statement_timeout',
        "an acknowledged decision can be lost with the power (PostgreSQL)",
        POSTGRES_DISK,
    ),
    Fault(
        "storage/postgres.py",
        "with self._begun(_LASTING, WRITE_SECONDS)",
        "with self._begun(_FLEETING, WRITE_SECONDS)",
        "a started experiment can be lost with the power (PostgreSQL)",
        POSTGRES_DISK,
    ),
    Fault(
        "storage/idempotency.py",
        "(replies.c.created_at < now - forget_seconds * SECOND)",
        "(replies.c.created_at < now - 10**9 * forget_seconds * SECOND)",
        "answers to idempotent requests are kept for ever",
        REPLIES,
    ),
    Fault(
        "storage/idempotency.py",
        "(replies.c.created_at < now - stale_seconds * SECOND)",
        "(replies.c.created_at < now - 10**9 * stale_seconds * SECOND)",
        "a request that was never finished blocks its key",
        REPLIES,
    ),
    Fault(
        "storage/sqlite.py",
        '"WHERE id = ? AND owner = ? AND head = ?",\n'
        "            (*chain, lease_until, writer, owner, before),",
        '"WHERE id = ?",\n            (*chain, lease_until, writer),',
        "a writer that lost its lease writes into another one's chain (SQLite)",
        LEASES,
    ),
    Fault(
        "storage/sqlite.py",
        '"SELECT seq, head FROM writers WHERE id = ? AND owner = ?", (writer, owner)',
        '"SELECT seq, head FROM writers WHERE id = ?", (writer,)',
        "a writer that lost its lease goes on from another one's end",
        LEASES,
    ),
    Fault(
        "storage/postgres.py",
        'self._plain.execute(f"BEGIN; {wanted}".encode())',
        'self._plain.execute(f"SELECT 1; {wanted}".encode())',
        "a batch on PostgreSQL is stored in parts",
        (f"{DURABLE}::test_a_transaction_that_fails_leaves_nothing",),
    ),
    Fault(
        "storage/postgres.py",
        'b"WHERE id = %b AND owner = %b AND head = %b"',
        'b"WHERE id = %b AND (owner = %b OR head = %b OR TRUE)"',
        "a writer that lost its lease writes into another one's chain (PostgreSQL)",
        LEASES,
    ),
    Fault(
        "storage/postgres.py",
        '_CHAIN = b"SELECT seq, head FROM writers WHERE id = %b AND owner = %b"',
        '_CHAIN = b"SELECT seq, head FROM writers WHERE id = %b AND (owner = %b OR TRUE)"',
        "a writer that lost its lease goes on from another one's end (PostgreSQL)",
        LEASES,
    ),
    Fault(
        "storage/sqlite.py",
        "DO UPDATE SET hour = max(hour, excluded.hour)",
        "DO UPDATE SET hour = min(hour, excluded.hour)",
        "the hour of the last answer does not move",
        ("tests/service/test_last_answers.py",),
    ),
    Fault(
        "storage/sqlite.py",
        "shows = shows + excluded.shows",
        "shows = excluded.shows",
        "counters hold the last batch only",
        ("tests/service/test_facade.py::test_rewards_count_once", "tests/service/test_leases.py"),
    ),
    Fault(
        "storage/account_rules.py",
        "return [one for one in found if one.until is None or one.until > now]",
        "return [one for one in found if one.until is None]",
        "an experiment that was stopped no longer counts",
        ACCOUNT,
    ),
    Fault(
        "storage/account.py",
        "if taken > budget_nano:",
        "if False:",
        "the firm's budget can be lowered below what counts",
        ACCOUNT,
    ),
    Fault(
        "storage/account.py",
        "if _weaker(before, budget_nano, window_days) and not reason.strip():",
        "if False:",
        "the promise is weakened without a reason",
        (f"{TESTS}/test_account.py::test_a_raise_needs_a_reason",),
    ),
    Fault(
        "storage/account.py",
        'if after > settings[-1].budget_nano and (kind != "resume" or after > before):',
        'if after > 2 * settings[-1].budget_nano and (kind != "resume" or after > before):',
        "twice the firm's budget can be started",
        (f"{TESTS}/test_account.py::test_a_refused_start_names_what_remains",),
    ),
    Fault(
        "storage/account_rules.py",
        "return (hour + 1) * HOUR + SKEW",
        "return hour * HOUR",
        "what was answered late in an hour is freed too early",
        ACCOUNT,
    ),
    Fault(
        "storage/account_rules.py",
        "split = [(one.slots & group, nano + one.cost_nano) for group, nano in sums.items()]",
        "split = [(one.slots & group, max(nano, one.cost_nano)) for group, nano in sums.items()]",
        "slots that overlap do not add up",
        (
            f"{TESTS}/test_account.py::test_slots_that_overlap_add_up",
            f"{TESTS}/test_account.py::test_a_layer_costs_what_every_slot_by_itself_says",
        ),
    ),
    Fault(
        "storage/account.py",
        "bitmap = earlier.slots | (0 if slots is None else slots_bitmap(slots))",
        "bitmap = 0 if slots is None else slots_bitmap(slots)",
        "the slots that an experiment had before are forgotten",
        equivalent="an experiment resumes with the slots that it had, and the chain adds them up",
    ),
    Fault(
        "storage/chain.py",
        '_erasable = Struct(">16s16shh").pack',
        '_erasable = Struct(">16s16sbh").pack',
        "the commitment has another form than the chain's",
        ("tests/storage/test_ledger.py::test_the_form_of_the_chain_stays",),
    ),
    Fault(
        "storage/ledger.py",
        "            if row.seq != place:\n"
        '                raise Broken(f"commitment {place} was removed", "commitments", place)',
        "            if False:\n"
        '                raise Broken(f"commitment {place} was removed", "commitments", place)',
        "a removed commitment is not named",
        (f"{TESTS}/test_ledger.py::test_a_removed_commitment_is_named",),
    ),
    Fault(
        "storage/ledger.py",
        "        _totals(connection, told, counted)\n    except",
        "    except",
        "counters may be anything",
        (f"{TESTS}/test_ledger.py::test_counters_must_be_what_rows_add_up_to",),
    ),
    Fault(
        "storage/ledger.py",
        "        _noted_heads(connection, noted)\n",
        "",
        "a rebuilt chain agrees with its noted head",
        (f"{TESTS}/test_ledger.py::test_a_rebuilt_chain_is_caught_by_a_noted_head",),
    ),
    Fault(
        "storage/erasure.py",
        'chosen = [e for e in known if e.status == "stopped" or (running and e.status != "draft")]',
        'chosen = [e for e in known if e.status != "draft"]',
        "a purge always reaches running experiments",
        (f"{TESTS}/test_erasure.py::test_the_age_and_the_status_decide",),
    ),
    Fault(
        "storage/erasure.py",
        "        decisions.c.decided_at < before,",
        "        decisions.c.decided_at > 0,",
        "a purge forgets everybody, however young",
        (f"{TESTS}/test_erasure.py::test_the_age_and_the_status_decide",),
    ),
    Fault(
        "storage/erasure.py",
        'return hmac.digest(derived, visitor_hash, "sha256")[:16]',
        'return hmac.digest(key, visitor_hash, "sha256")[:16]',
        "a tombstone is keyed like the visitor",
        (f"{TESTS}/test_erasure.py::test_a_tombstone_is_keyed_and_tells_nothing_of_the_visitor",),
    ),
    Fault(
        "storage/commitments.py",
        "return max(times.now(), connection.execute(_NEWEST).scalar() or 0)",
        "return times.now()",
        "the store's time can go back",
        (f"{TESTS}/test_account.py::test_time_does_not_go_back",),
    ),
    Fault(
        "storage/promises.py",
        "if promise.planned_visitors not in (NOT_SAID, experiment.planned_visitors):",
        "if False:",
        "planned visitors can be changed unnoticed",
        (f"{TAMPERING}::test_it_is_noticed_and_only_its_experiment_is_refused",),
    ),
    Fault(
        "storage/promise_entries.py",
        "if row.strategy != chained.strategy:",
        "if False:",
        "a stored table can be given another strategy unnoticed",
        (f"{TAMPERING}::test_it_is_noticed_and_only_its_experiment_is_refused",),
    ),
    Fault(
        "storage/promise_entries.py",
        "if chained.published_at not in (None, row.published_at):",
        "if False:",
        "the time of a table can be changed unnoticed",
        (f"{TAMPERING}::test_it_is_noticed_and_only_its_experiment_is_refused",),
    ),
    Fault(
        "storage/account.py",
        "row[1] if isinstance(row[1], int) else None",
        "row[1]",
        "a stop chains a last answer that is no hour",
        (f"{TAMPERING}::test_a_last_answer_that_is_no_hour_is_named_and_never_chained",),
    ),
    Fault(
        "storage/promises.py",
        'if detail["version"] != promise.version + 1:',
        'if detail["version"] > promise.version + 1:',
        "an arm is added without a new version",
        BELIEVED,
    ),
    Fault(
        "storage/promises.py",
        'one_band = promise.one_band and detail["grade"] == "across time"',
        "one_band = promise.one_band",
        "a new version is told to be across time with the old one",
        (f"{GROWING}::test_every_table_keeps_the_budget_and_every_audit_says_so[constant]",),
    ),
    Fault(
        "storage/promises.py",
        "or (last is not None and last.number != after):",
        "or (last is not None and last.number > after):",
        "a segment is listed after a table that does not exist",
        BELIEVED,
    ),
    Fault(
        "storage/promises.py",
        "if own is not None and own > promise.budget_nano:",
        "if own is not None and own > 2 * promise.budget_nano:",
        "an added arm may have more budget than was committed",
        (f"{GROWING}::test_an_own_budget_above_the_committed_one_is_not_believed",),
    ),
    Fault(
        "storage/experiments.py",
        "left = tuple(replace(one, active=one.active and one.key != arm)",
        "left = tuple(replace(one, active=one.key != arm)",
        "switching off an arm makes a table with those that were off before",
        ("tests/service/test_administration.py::test_a_change_returns_what_is_stored",),
    ),
    Fault(
        "storage/experiments.py",
        "CASE typeof({c}) WHEN 'blob' THEN quote({c}) ELSE {c} END",
        "{c}",
        "one changed row of arms keeps all experiments from being read",
        (f"{TAMPERING}::test_it_is_noticed_and_only_its_experiment_is_refused",),
    ),
    Fault(
        "storage/postgres.py",
        "if replaced or not error.connection_invalidated:",
        "if True:",
        "whoever reads notices that a connection was lost",
        ("tests/service/test_trouble.py::test_cut_connections_are_not_even_noticed",),
    ),
    Fault(
        "storage/experiments.py",
        "return change(connection, replace(experiment, segments=(*experiment.segments, name)))",
        "return by_key(connection, experiment.key)",
        "writers do not notice that a segment was added",
        (f"{GROWING}::test_a_new_segment_gets_the_zero_row_until_the_next_table",),
    ),
    Fault(
        "storage/promises.py",
        'return last == "discard" and set(before) <= DRAFTING',
        'return last == "discard"',
        "an experiment that ran can be removed like a draft",
        (
            "tests/service/test_drafting.py::test_a_started_experiment_cannot_be_removed_by_an_entry",
        ),
    ),
    Fault(
        "storage/listing.py",
        "named = func.lower(experiments.c.key).contains(text, autoescape=True)",
        "named = func.lower(experiments.c.key).contains(text)",
        "an underscore in a search finds any letter",
        ("tests/service/test_drafting.py::test_finding",),
    ),
    Fault(
        "storage/sums.py",
        "                    and last < changed\n",
        "",
        "rewards of a table that was replaced are remembered as they were",
        ("tests/storage/test_sums.py::test_they_are_the_sums_of_all_counters",),
    ),
)

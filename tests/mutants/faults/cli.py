"""Faults of the commands."""

from __future__ import annotations

from tests.mutants.fault import Fault

STORE = "tests/cli/test_store_commands.py"
PLAN = "tests/cli/test_plan.py"

FAULTS = (
    Fault(
        "cli/purge.py",
        "running=running, progress=partial",
        "running=True, progress=partial",
        "a purge always reaches running experiments",
        (f"{STORE}::test_a_purge_shows_its_progress_in_a_terminal",),
    ),
    Fault(
        "cli/audit.py",
        "found = service.audits.run(experiment, record=record)",
        "found = service.audits.run(experiment, record=False)",
        "--record is ignored",
        (f"{STORE}::test_an_audit_is_recorded_when_asked",),
    ),
    Fault(
        "cli/audit.py",
        "if not found.sound:\n        raise typer.Exit(BROKEN)\n\n\ndef audit_sections",
        "if not found.sound:\n        raise typer.Exit(0)\n\n\ndef audit_sections",
        "a broken promise exits with 0",
        (f"{STORE}::test_a_broken_promise_exits_with_1",),
    ),
    Fault(
        "cli/status.py",
        "firm.committed, firm.remaining, firm.starts_at",
        "firm.remaining, firm.committed, firm.starts_at",
        "what is committed is told as what remains",
        (f"{STORE}::test_the_status_has_its_figures_under_their_names",),
    ),
    Fault(
        "cli/plan.py",
        "prior = 0.2 if prior is None else prior",
        "prior = 0.5 if prior is None else prior",
        "the default prior is another one",
        (f"{PLAN}::test_prints_the_plan_for_a_person", f"{PLAN}::test_json_is_the_plan"),
    ),
    Fault(
        "cli/plan.py",
        "            given or kept.get(name)\n",
        "            kept.get(name) or given\n",
        "a file counts more than a flag",
        ("tests/cli/test_plan_files.py::test_flags_count_more_than_the_file",),
    ),
    Fault(
        "cli/plan.py",
        'if arms is not None and whole("arms", arms) != len(budgets):',
        "if False:",
        "budgets of another number of arms are accepted",
        (f"{PLAN}::test_a_mistake_is_one_line_and_status_2",),
    ),
    Fault(
        "cli/ledger.py",
        "        raise typer.Exit(BROKEN)",
        "        raise typer.Exit(0)",
        "a broken ledger exits with 0",
        (f"{STORE}::test_a_broken_ledger_exits_with_1",),
    ),
    Fault(
        "cli/ledger.py",
        'if not separator or not end.partition(":")[0].isdecimal():',
        "if False:",
        "a head that is none is accepted",
        (f"{STORE}::test_mistakes_are_told_in_one_line",),
    ),
    Fault(
        "cli/stores.py",
        "    if not exists(settings.store):\n",
        "    if False:\n",
        "any command makes a new store",
        (f"{STORE}::test_only_init_and_serve_make_a_store",),
    ),
    Fault(
        "cli/stores.py",
        "return path.is_file() and path.stat().st_size > 0",
        "return path.is_file()",
        "an empty file is taken for a store",
        (
            f"{STORE}::test_an_empty_store_where_there_was_one_is_asked_about",
            f"{STORE}::test_an_empty_file_is_no_store",
        ),
    ),
    Fault(
        "cli/restore.py",
        "    if exists(url):\n",
        "    if False:\n",
        "restoring overwrites the store that is there",
        equivalent="copying refuses to overwrite a file too, in the same words",
    ),
)

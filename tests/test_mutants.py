"""The list of planted faults is true, and the runner tells caught, survived, stale and slow apart."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.mutants.__main__ import main
from tests.mutants.fault import Fault, StaleFaultError, chosen, files_of
from tests.mutants.faults import FAULTS, LAYERS
from tests.mutants.runner import (
    BROKEN,
    CAUGHT,
    LATE,
    STALE,
    SURVIVED,
    Results,
    judged,
    planted,
    run,
)
from tests.patience import PATIENCE

ROOT = Path(__file__).parents[1]
ALL = [(layer, fault) for layer, faults in FAULTS.items() for fault in faults]


def test_every_fault_still_applies() -> None:
    """The text occurs exactly once; where code moved, the entry has to follow."""
    stale = []
    for _, fault in ALL:
        try:
            text = (ROOT / fault.path).read_text("utf-8")
            assert fault.applied(text) != text, fault
        except (StaleFaultError, FileNotFoundError) as reason:
            stale.append(str(reason))
    assert not stale, "\n".join(stale)


def test_every_fault_names_tests_that_exist() -> None:
    missing = []
    for _, fault in ALL:
        assert bool(fault.tests) != bool(fault.equivalent), fault
        assert len(fault.why.split()) > 1, fault
        for test in fault.tests:
            file, _, name = test.partition("::")
            function = name.partition("[")[0]
            text = (ROOT / file).read_text("utf-8") if (ROOT / file).exists() else ""
            if f"def {function}(" not in text if function else not text:
                missing.append(test)
    assert not missing


def test_all_layers_have_faults_and_no_fault_is_there_twice() -> None:
    assert set(FAULTS) == set(LAYERS) == {path.stem for path in _lists()}
    assert min(len(faults) for faults in FAULTS.values()) >= 5
    assert sum(not fault.equivalent for _, fault in ALL) >= 150
    places = [(fault.file, fault.old, fault.new) for _, fault in ALL]
    assert len(set(places)) == len(places)


def _lists() -> list[Path]:
    folder = ROOT / "tests" / "mutants" / "faults"
    return [path for path in folder.glob("*.py") if path.stem != "__init__"]


@pytest.mark.parametrize("only", ["storage", "sqlite_files", "kept for ever", "storage,http"])
def test_some_are_chosen(only: str) -> None:
    found = chosen(FAULTS, only.split(","))
    assert 0 < len(found) < len(ALL)
    if only in FAULTS:
        assert {layer for layer, _ in found} == {only}
    assert len(chosen(FAULTS, [""])) == len(ALL)


# -- a tiny project ----------------------------------------------------------------------------

ADDING = "def add(a: int, b: int) -> int:\n    return a + b\n"
TESTS = """
import time

from deniable.adding import add


def test_add():
    assert add(2, 2) == 4


def test_nothing():
    pass


def test_patience():
    while add(1, 1) != 2:
        time.sleep(0.01)
"""
FILE = "tests/test_adding.py"
MINUS = Fault("adding.py", "a + b", "a - b", "it subtracts", (f"{FILE}::test_add",))


@pytest.fixture
def project(tmp_path: Path) -> Path:
    root = tmp_path / "project"
    for file, text in {
        "src/deniable/__init__.py": "",
        "src/deniable/adding.py": ADDING,
        FILE: TESTS,
        "pyproject.toml": '[tool.pytest.ini_options]\naddopts = ["--import-mode=importlib"]\n',
    }.items():
        (root / file).parent.mkdir(parents=True, exist_ok=True)
        (root / file).write_text(text)
    return root


def outcomes(project: Path, *faults: Fault, limit: float = PATIENCE) -> dict[str, tuple[str, str]]:
    """Why -> state and what is told."""
    number = len(list(project.parent.iterdir()))
    results = Results(project.parent / "results.jsonl")
    listed = [("core", fault) for fault in faults]
    scratch = project.parent / f"scratch-{number}"
    found, left = run(project, listed, results, scratch, limit=limit, modules=())
    assert left == 0
    assert (project / "src/deniable/adding.py").read_text() == ADDING
    return {one.why: (one.state, one.told) for one in found}


def test_caught_survived_and_stale(project: Path) -> None:
    found = outcomes(
        project,
        MINUS,
        Fault("adding.py", "a + b", "a - b", "nobody looks", (f"{FILE}::test_nothing",)),
        Fault("adding.py", "a * b", "a - b", "not there", (FILE,)),
        Fault("adding.py", "a", "b", "there too often", (FILE,)),
        Fault("gone.py", "a", "b", "no file", (FILE,)),
        Fault("adding.py", "a + b", "b + a", "the same", equivalent="adding has no order"),
    )
    assert found["it subtracts"] == (CAUGHT, f"{FILE}::test_add")
    assert found["nobody looks"] == (SURVIVED, "all tests passed")
    assert found["not there"][0] == found["no file"][0] == STALE
    assert "occurs 0 times, not once" in found["not there"][1]
    assert found["there too often"][0] == STALE
    assert "the same" not in found


def test_a_time_limit_is_only_noticed_where_it_is_declared(project: Path) -> None:
    waits = (f"{FILE}::test_patience",)
    found = outcomes(
        project,
        Fault("adding.py", "a + b", "a - b", "hangs", waits, hangs=True),
        Fault("adding.py", "a + b", "a * b", "slow", waits),
        limit=2.0,  # whatever the machine does meanwhile, neither ends before
    )
    assert found == {"hangs": (CAUGHT, "the time limit"), "slow": (LATE, "the time limit")}


def test_tests_that_fail_anyway_or_are_not_there_notice_nothing(project: Path) -> None:
    (project / FILE).write_text(TESTS + "\n\ndef test_fails():\n    assert False\n")
    fails = Fault("adding.py", "a + b", "a - b", "fails anyway", (f"{FILE}::test_fails",))
    absent = Fault("adding.py", "a + b", "a - b", "no test", (f"{FILE}::test_absent",))
    for fault in (fails, absent):
        state, told = outcomes(project, fault)[fault.why]
        assert state == BROKEN
        assert told.startswith("without a fault: ")


def test_what_was_caught_is_not_tried_again_until_something_changes(project: Path) -> None:
    key = MINUS.key(project)
    assert outcomes(project, MINUS)["it subtracts"][0] == CAUGHT
    known = Results(project.parent / "results.jsonl")
    assert list(known.known) == [key]
    kept = known.caught(key)
    assert kept is not None
    assert kept.seconds >= 0
    # Found in the file: without copying or running anything.
    found, _ = run(project, [("core", MINUS)], known, project.parent / "never made")
    assert [one.key for one in found] == [key]
    assert not (project.parent / "never made").exists()
    (project / FILE).write_text(TESTS + "\n# changed\n")
    assert MINUS.key(project) != key


def test_a_survivor_is_tried_again(project: Path) -> None:
    weak = Fault("adding.py", "a + b", "a - b", "weak", (f"{FILE}::test_nothing",))
    assert outcomes(project, weak)["weak"][0] == SURVIVED
    assert Results(project.parent / "results.jsonl").caught(weak.key(project)) is None


def test_a_planted_fault_is_taken_out_again(project: Path) -> None:
    file = project / "src/deniable/adding.py"

    def fail() -> None:
        with planted(MINUS, project):
            assert "a - b" in file.read_text()
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fail()
    assert (project / "src/deniable/adding.py").read_text() == ADDING


@pytest.mark.parametrize(
    ("code", "output", "hangs", "state"),
    [
        (0, "1 passed", True, SURVIVED),
        (1, "FAILED tests/a.py::test_b - assert", False, CAUGHT),
        (1, "ERROR tests/a.py::test_b", False, CAUGHT),
        (2, "collection failed", False, BROKEN),
        (5, "no tests ran", False, BROKEN),
        (None, "", False, LATE),
        (None, "", True, CAUGHT),
    ],
)
def test_states(code: int | None, output: str, hangs: bool, state: str) -> None:
    assert judged(code, output, hangs)[0] == state


def test_files_of_tests() -> None:
    assert files_of(("tests/a.py::test_b[c]", "tests/a.py", "tests/d.py")) == {
        "tests/a.py",
        "tests/d.py",
    }


def test_the_command_lists_and_refuses(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--list", "--only", "storage"]) == 0
    assert "storage: storage/sqlite.py" in capsys.readouterr().out
    assert main(["--only", "no such layer"]) == 2
    assert "no fault" in capsys.readouterr().out

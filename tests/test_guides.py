"""The commands of README.md and docs/*.md run as a reader would type them, page by page, in order.

Blocks of kind `sh`, `bash` and `console` are commands, and so are `text` blocks that begin with `$`.
In a block with `$`, what is not a command is its output, compared word by word; `...` stands for
anything. Scripts in Python and JavaScript between them run too. What cannot run is in `NOT_RUN`, with
its reason; an entry that matches nothing is an error. Exported variables last until the page ends.
"""

from __future__ import annotations

import doctest
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path

import polars as pl
import pytest
from tests.leak.test_contexts import log as visits_by_device
from tests.patience import PATIENCE
from tests.service.http.process import serving

from deniable.cli import COMMANDS, main
from deniable.datasets import data_folder
from deniable.service.service import open as open_service
from deniable.web.planner_setting import Setting, toml

ROOT = Path(__file__).parents[1]
PAGES = sorted(
    [*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md"), *(ROOT / "research").glob("*.md")]
)
OUTPUT = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE

NOT_RUN = {
    "README.md": {
        "make run": "runs until it is stopped; tests/service/http/test_server.py starts the demo",
        "make test": "it is what runs this test",
    },
    "CONTRIBUTING.md": {
        "make ": "each of these runs all tests, benchmarks or linters",
        ".venv/bin/": "a developer's own environment",
    },
    "docs/audit.md": {
        "deniable audit log firm.parquet --head": "heads of another store; tests/audit/test_log.py",
    },
    "docs/index.md": {
        "pip install": "needs a package registry",
        "python examples/tracker.py": "draws anew each time; tests/test_examples.py runs it",
    },
    "docs/leak.md": {
        "pip install": "needs a package registry",
        "deniable leak hillstrom": "public data, run where there is some; tests/leak/test_worth.py",
    },
    "docs/tutorial.md": {"pip install": "needs a package registry"},
    "docs/operate.md": {
        "useradd": "needs root, and changes the machine",
        "python3 -m venv /opt": "needs root and a package registry",
        "install ": "needs root, and changes the machine",
        "deniable_here()": "names the service's user; the commands that use it are run",
        "systemctl": "needs systemd as its first process",
        "docker": "needs a container engine and a registry",
        "kubectl": "needs a cluster; tests/test_service_docs.py checks the manifests",
    },
    "research/README.md": {
        "python -m research surface": "hours; research/tests/test_surface.py runs a little",
    },
}
"""Page -> beginnings of command lines that are not run, each with the reason."""

DATA = data_folder()
if DATA is not None:
    del NOT_RUN["docs/leak.md"]["deniable leak hillstrom"]

SPELLED = {"docs/operate.md": {"deniable_here ": "deniable "}}
"""Page -> beginnings that stand for others."""

COPIED = {
    "docs/allocate.md": ("csv", "portfolio.csv"),
    "docs/apply.md": ("toml", "firm.toml"),
}
"""Page -> the kind of its block that readers are asked to save, and the file's name."""


@dataclass
class Block:
    """Commands with what they print, or a script.

    Attributes:
        kind: `commands`, or the language of a script.
        commands: each with the output that the page shows; None where it shows none.
        code: of a script.
    """

    kind: str
    commands: list[tuple[str, str | None]] = field(default_factory=list)
    code: str = ""


def blocks(page: Path) -> list[Block]:
    """The blocks of a page that run, in order."""
    found = []
    text = page.read_text("utf-8")
    for kind, code in re.findall(r"^```(\w+)\n(.*?)^```", text, re.M | re.S):
        shown = re.search(r"^\$ ", code, re.M) is not None
        if kind in ("sh", "bash", "console") or (kind == "text" and code.startswith("$ ")):
            found.append(Block("commands", _with_output(code) if shown else _lines(code)))
        elif kind == "js" or (kind == "python" and ">>>" not in code):
            found.append(Block(kind, code=code))
    return found


def _lines(code: str) -> list[tuple[str, str | None]]:
    lines = code.replace("\\\n", " ").splitlines()
    stripped = (re.sub(r"\s+#\s.*$", "", line).strip() for line in lines)
    return [(line, None) for line in stripped if line and not line.startswith("#")]


def _with_output(code: str) -> list[tuple[str, str | None]]:
    found: list[tuple[str, str | None]] = []
    for part in re.split(r"^\$ ", code.replace("\\\n", " "), flags=re.M)[1:]:
        line, _, output = part.partition("\n")
        found.append((line.strip(), output if output.strip() else None))
    return found


def reason_not_to_run(page: str, line: str) -> str | None:
    reasons = NOT_RUN.get(page, {})
    return next((why for start, why in reasons.items() if line.startswith(start)), None)


class Reader:
    """Somebody who follows a page in a folder of their own."""

    def __init__(
        self, folder: Path, patch: pytest.MonkeyPatch, capture: pytest.CaptureFixture[str]
    ) -> None:
        self.folder = folder
        self._patch = patch
        self._capture = capture
        self._services = ExitStack()
        patch.chdir(folder)
        patch.setenv("PATH", f"{Path(sys.executable).parent}:{os.environ['PATH']}")
        for name in [name for name in os.environ if name.startswith("DENIABLE_")]:
            patch.delenv(name)

    def follow(self, page: str, todo: list[Block]) -> None:
        """Run the blocks; the service lives on while what follows asks for its address."""
        with self._services:
            for place, block in enumerate(todo):
                if block.kind == "commands":
                    wanted = [
                        (_spelled(page, line), output)
                        for line, output in block.commands
                        if reason_not_to_run(page, line) is None
                    ]
                    self._commands(wanted, keep_service="DENIABLE_URL" in str(todo[place + 1 :]))
                elif block.kind == "python":
                    self._run([sys.executable, "-W", "error", "-c", block.code])
                else:
                    self._run(
                        ["node", "--input-type=module", "-e", block.code], ROOT / "clients" / "js"
                    )

    def serve(self, words: list[str]) -> str:
        """Start a service on a free port; returns its address."""
        store = os.environ.get("DENIABLE_STORE", "sqlite:///deniable.db")
        if "--store" in words:
            store = words[words.index("--store") + 1]
        return self._services.enter_context(serving(self.folder, store=store)).url

    def _commands(self, lines: list[tuple[str, str | None]], *, keep_service: bool) -> None:
        """In order; a shell runs those that need one, and what it exports is known to those after it."""
        for plain, found in groupby(lines, lambda line: _is_plain(line[0])):
            part = list(found)
            if plain:
                for line, output in part:
                    self._plain(shlex.split(line)[1:], output, keep_service)
                continue
            told = self._bash("\n".join(line for line, _ in part))
            for _, output in part:
                if output is not None:
                    check(output, told)

    def _plain(self, words: list[str], output: str | None, keep_service: bool) -> None:
        """A command of ours without a shell: in this process, which is quick."""
        assert words[0] in COMMANDS, words
        if words[0] == "serve":
            self._patch.setenv("DENIABLE_URL", self.serve(words))
            if not keep_service:
                self._services.close()
            return
        self._capture.readouterr()
        status = main(words)
        told = self._capture.readouterr()
        assert status == 0, (words, told.err)
        if output is not None:
            check(output, told.out)

    def _bash(self, code: str) -> str:
        """What a shell prints; variables that it exports are kept."""
        kept = self.folder / ".exported"
        told = self._run(["bash", "-euo", "pipefail", "-c", f"{code}\nenv -0 > {kept}"])
        for pair in kept.read_text("utf-8").split("\0"):
            name, _, value = pair.partition("=")
            if name.startswith("DENIABLE_"):
                self._patch.setenv(name, value)
        return told

    def _run(self, command: list[str], folder: Path | None = None) -> str:
        done = subprocess.run(
            command, cwd=folder or self.folder, capture_output=True, text=True, timeout=PATIENCE
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout


def _is_plain(line: str) -> bool:
    return line.startswith("deniable ") and not re.search(r"[|&;<>$`()]", line)


def _spelled(page: str, line: str) -> str:
    for start, stands_for in SPELLED.get(page, {}).items():
        if line.startswith(start):
            return stands_for + line.removeprefix(start)
    return line


def check(output: str, told: str) -> None:
    """The output of a page against what was printed."""
    wanted = output.strip() + "\n"
    checker = doctest.OutputChecker()
    if not checker.check_output(wanted, told.strip() + "\n", OUTPUT):
        example = doctest.Example("", wanted)
        raise AssertionError(checker.output_difference(example, told, OUTPUT))


# -- what a reader has before a page begins ----------------------------------------------------


def _shop(reader: Reader) -> str:
    """The store of a shop whose experiment runs; returns the secret of a key."""
    with open_service("sqlite:///deniable.db") as service:
        service.firm.set(budget=3.0)
        service.experiments.create(
            "checkout", arms=["grey", "green"], segments=["new", "returning"], budget=1.0
        )
        service.experiments.start("checkout")
        visitors = [(f"customer-{n}", ("new", "returning")[n % 2]) for n in range(200)]
        found = service.decide_batch("checkout", visitors)
        service.reward_batch([(one.id, n % 3 == 0) for n, one in enumerate(found)])
        return service.keys.create("shop", ["decide", "reward"])[0]


def _firm(reader: Reader) -> None:
    with open_service("sqlite:///deniable.db") as service:
        service.firm.set(budget=3.0)


def _served_shop(reader: Reader) -> None:
    reader._patch.setenv("DENIABLE_API_KEY", _shop(reader))
    reader._patch.setenv("DENIABLE_URL", reader.serve([]))


def _served_reader(reader: Reader) -> None:
    with open_service("sqlite:///deniable.db") as service:
        reader._patch.setenv("DENIABLE_API_KEY", service.keys.create("plans", ["read"])[0])
    reader._patch.setenv("DENIABLE_URL", reader.serve([]))


def _exposures(reader: Reader) -> None:
    log = pl.read_csv(ROOT / "docs" / "examples" / "exposures.csv")
    log.write_parquet(reader.folder / "exposures.parquet")
    visits_by_device(beyond=0.5).write_csv(reader.folder / "visits.csv")
    if DATA is not None:
        shutil.copy(DATA / "hillstrom" / "hillstrom.csv.gz", reader.folder)


def _plan_file(reader: Reader) -> None:
    (reader.folder / "plan.toml").write_text(toml(Setting(budget=1.0)), "utf-8")


def _repository(reader: Reader) -> None:
    """As from its root: `research` is not installed."""
    reader._patch.setenv("PYTHONPATH", str(ROOT))


PREPARED: dict[str, Callable[[Reader], object]] = {
    "docs/audit.md": _shop,
    "docs/pages.md": _plan_file,
    "docs/clients.md": _served_shop,
    "docs/leak.md": _exposures,
    "docs/operate.md": _shop,
    "docs/plan.md": _served_reader,
    "docs/storage.md": _shop,
    "research/README.md": _repository,
}
"""Page -> what its reader did before."""


GUIDES = {str(page.relative_to(ROOT)): found for page in PAGES if (found := blocks(page))}
"""Page -> its blocks, where it has any."""


@pytest.fixture
def reader(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Reader:
    shutil.copytree(ROOT / "docs" / "examples", tmp_path / "docs" / "examples")
    return Reader(tmp_path, monkeypatch, capsys)


@pytest.mark.parametrize("page", GUIDES)
def test_a_page_can_be_followed(page: str, reader: Reader) -> None:
    text = (ROOT / page).read_text("utf-8")
    needed = [name for name in ("curl", "jq") if re.search(rf"\b{name} ", text)]
    needed += ["node"] if any(block.kind == "js" for block in GUIDES[page]) else []
    missing = [name for name in needed if shutil.which(name) is None]
    if missing:
        pytest.skip(f"NOT RUN: {', '.join(missing)} not installed, which {page} needs")
    if page in COPIED:
        kind, name = COPIED[page]
        (saved,) = re.findall(rf"^```{kind}\n(.*?)^```", text, re.M | re.S)
        (reader.folder / name).write_text(saved, "utf-8")
    if page in PREPARED:
        PREPARED[page](reader)
    reader.follow(page, GUIDES[page])


def test_what_is_not_run_is_there_and_has_a_reason() -> None:
    for page, reasons in NOT_RUN.items():
        lines = [line for block in GUIDES[page] for line, _ in block.commands]
        for start, why in reasons.items():
            assert any(line.startswith(start) for line in lines), (page, start)
            assert len(why.split()) > 2


def test_a_deniable_command_is_only_left_out_where_another_test_runs_it() -> None:
    """Also within blocks that cannot run as a whole."""
    for page, found in GUIDES.items():
        for block in found:
            for line, _ in block.commands:
                why = reason_not_to_run(page, line)
                if why is not None and _spelled(page, line).startswith("deniable "):
                    (file,) = re.findall(r"tests/\S+\.py", why)
                    assert (ROOT / file).exists(), (page, line)


def test_pages_of_the_tables_exist() -> None:
    assert set(NOT_RUN) | set(SPELLED) | set(COPIED) | set(PREPARED) <= set(GUIDES)


def test_the_mechanism_notices(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(
        "```console\n$ deniable x \\\n  --y\none 1\n...\nlast\n$ true\n```\n"
        "```bash\n# why\ndeniable z  # because\n\n```\n```python\n>>> 1\n```\n```js\n1\n```\n"
    )
    first, second, script = blocks(page)
    assert first.commands == [("deniable x    --y", "one 1\n...\nlast\n"), ("true", None)]
    assert second.commands == [("deniable z", None)]
    assert (script.kind, script.code) == ("js", "1\n")
    check("one 1\n...\nlast\n", "one   1\nanything\nlast\n\n")
    for other in ("one 2\nlast", "one 1", ""):
        with pytest.raises(AssertionError):
            check("one 1\n...\nlast\n", other)

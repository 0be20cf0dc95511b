"""What a planted fault is, and how it is put into a copy of the project."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

SOURCE = "src/deniable"


class StaleFaultError(Exception):
    """The text to replace does not occur exactly once: the code has moved, the entry must follow."""


@dataclass(frozen=True)
class Fault:
    """One small mistake that somebody could make.

    Attributes:
        file: the file that has it: within `src/deniable`, or `research/...`.
        old: the text to replace; it occurs exactly once in the file.
        new: what stands there instead.
        why: what is wrong then, in words.
        tests: what must notice: pytest files or node ids, which run in under a minute together.
        hangs: whether running into the time limit counts as noticed.
        equivalent: the reason why no test can notice; such a fault is listed and not run.
    """

    file: str
    old: str
    new: str
    why: str
    tests: tuple[str, ...] = ()
    hangs: bool = False
    equivalent: str = ""

    @property
    def path(self) -> str:
        """The file within the project."""
        return self.file if self.file.startswith("research/") else f"{SOURCE}/{self.file}"

    def applied(self, text: str) -> str:
        """The file's text with the fault in it."""
        count = text.count(self.old)
        if count != 1:
            raise StaleFaultError(
                f"{self.file}: the text occurs {count} times, not once: {self.old!r}"
            )
        return text.replace(self.old, self.new)

    def key(self, root: Path) -> str:
        """A hash of the fault, the file it touches and its tests: the same hash, the same result."""
        digest = hashlib.sha256(repr((self.file, self.old, self.new, self.tests)).encode())
        for path in [self.path, *sorted(files_of(self.tests))]:
            digest.update(path.encode() + b"\0" + (root / path).read_bytes())
        return digest.hexdigest()[:32]


def files_of(tests: Iterable[str]) -> set[str]:
    """The files that these node ids are in."""
    return {test.partition("::")[0] for test in tests}


def chosen(faults: dict[str, tuple[Fault, ...]], only: Iterable[str]) -> list[tuple[str, Fault]]:
    """Layer and fault of those named: by layer, else by a part of the file's name or of the words."""
    names = [name for name in only if name]
    return [
        (layer, fault)
        for layer, entries in faults.items()
        for fault in entries
        if not names
        or any(
            name == layer if name in faults else name in fault.file or name in fault.why
            for name in names
        )
    ]

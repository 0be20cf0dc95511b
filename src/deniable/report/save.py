"""Saves pages as HTML, or as PDF printed with Chromium."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path

from deniable.errors import InvalidArgumentError, WrongStateError

FORMATS = (".html", ".pdf")
BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
LONGEST_SECONDS = 300
"""Timeout for printing."""

_DATES = re.compile(rb"(?<=Date \(D:)\d{14}(?=[+-])")
_NO_BROWSER = "a PDF needs Chromium, which was not found; write an .html file and print it"
_NO_PDF = "Chromium could not make the PDF; write an .html file and print it"


def check_report_path(path: str | Path, formats: Sequence[str] = FORMATS) -> Path:
    """Validate the file's extension and folder, and that a PDF can be printed."""
    target = Path(path)
    if target.suffix.lower() not in formats:
        raise InvalidArgumentError("out", str(path), f"a file that ends in {' or '.join(formats)}")
    if not target.parent.is_dir():
        raise InvalidArgumentError("out", str(path), "a file in a folder that exists")
    if target.suffix.lower() == ".pdf" and not can_print():
        raise WrongStateError(_NO_BROWSER)
    return target


def save_report(page: str, path: str | Path) -> Path:
    """Write a page in the format of the file's extension and return its path."""
    target = check_report_path(path)
    if target.suffix.lower() == ".html":
        target.write_text(page, encoding="utf-8", newline="\n")
    else:
        target.write_bytes(printed(page))
    return target


def can_print() -> bool:
    """Whether there is a browser that can print PDFs."""
    return _browser() is not None


def printed(page: str, *, dated: datetime | None = None) -> bytes:
    """Print a page as PDF.

    Args:
        page: self-contained HTML.
        dated: creation time in the file; defaults to the current time. With a fixed time, the same
            page gives the same bytes as long as Chromium and the fonts stay the same.

    Raises:
        WrongStateError: Chromium is missing or failed.
    """
    browser = _browser()
    if browser is None:
        raise WrongStateError(_NO_BROWSER)
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        source, target = Path(folder) / "report.html", Path(folder) / "report.pdf"
        source.write_text(page, encoding="utf-8")
        command = [
            browser,
            "--headless",
            "--disable-gpu",
            "--no-pdf-header-footer",
            f"--user-data-dir={folder}/profile",
            f"--print-to-pdf={target}",
            source.as_uri(),
        ]
        if os.geteuid() == 0:  # Chromium's sandbox refuses to run as root
            command.insert(1, "--no-sandbox")
        try:
            done = subprocess.run(
                command, capture_output=True, check=False, timeout=LONGEST_SECONDS
            )
        except subprocess.TimeoutExpired:
            raise WrongStateError(_NO_PDF) from None
        if done.returncode or not target.is_file():
            raise WrongStateError(_NO_PDF)
        made = target.read_bytes()
    return made if dated is None else _DATES.sub(f"{dated:%Y%m%d%H%M%S}".encode(), made)


def _browser() -> str | None:
    return next(filter(None, map(shutil.which, BROWSERS)), None)

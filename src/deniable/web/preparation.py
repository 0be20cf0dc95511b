"""What first visits would wait for, done in a thread once the service is ready and nobody looks.

A visit that comes sooner does its own part: specifications of charts and compiled templates are in the
cache folder since the first start, so that part is small.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from functools import partial
from importlib import import_module

from deniable.charts.experiments import spending_chart
from deniable.charts.kept import specification
from deniable.charts.planning import PANELS
from deniable.charts.portfolio_page import CHARTS
from deniable.portfolio.table import csv_rows
from deniable.web import (
    allocation_view,
    answers,
    live_charts,
    planner,
    planner_setting,
    portfolio,
    result_charts,
    static,
)

FIRST_SECONDS = 10.0
"""After the start; whoever comes first is answered first."""
QUIET_SECONDS = 1.0
"""Without a visit, before the next part is done: a visit meanwhile would take twice as long."""


def _templates() -> None:
    for name in answers.environment().list_templates():
        answers.environment().get_template(name)


def _charts() -> None:
    for make in (*(panel.make for panel in PANELS.values()), *CHARTS.values(), spending_chart):
        specification(make)
    live_charts.prepare()
    result_charts.prepare()


def _plan() -> None:
    planner.view(planner_setting.Setting())


def _allocation() -> None:
    rows = allocation_view.checked_rows(csv_rows(portfolio.EXAMPLE))
    solver = allocation_view.allocator(allocation_view.question(rows, "", {}), "flexible")
    allocation_view.view(solver.allocate(portfolio.USUAL_BUDGET, **allocation_view.QUICK))


PARTS: tuple[Callable[[], object], ...] = (
    _templates,
    _charts,
    _plan,
    _allocation,
    partial(import_module, "numpy.random"),  # chances of arms
    partial(import_module, "scipy.special"),  # p-values of audits
    partial(import_module, "altair"),  # charts with arms that were never drawn
)
"""In the order in which they are done."""


class Preparation(threading.Thread):
    """Does every part once, while nobody looks at a page.

    Args:
        seen_at: the monotonic time of the last visit.
    """

    def __init__(self, seen_at: Callable[[], float]) -> None:
        super().__init__(name="deniable-preparation", daemon=True)
        self._seen_at = seen_at
        self._ended = threading.Event()

    def run(self) -> None:
        """See threading.Thread."""
        static.vega_bundle()  # a file, but for the first start ever: then it takes seconds elsewhere
        self._ended.wait(FIRST_SECONDS)
        for part in PARTS:
            while not self._ended.is_set() and self._quiet_in() > 0:
                self._ended.wait(self._quiet_in())
            if self._ended.is_set():
                return
            part()

    def end(self) -> None:
        """Do no further part; the present one may outlive this."""
        self._ended.set()

    def _quiet_in(self) -> float:
        return self._seen_at() + QUIET_SECONDS - time.monotonic()

"""Exact simulation of policies that publish one table per epoch, with a few multinomial draws each.

Within an epoch every visitor is drawn independently from the same table, so the counts of the epoch
are multinomial by segment, then by arm, then binomial in clicks. A run needs as many draws as there
are epochs, that is, log T. The step kernel draws visitor by visitor from the same tables. The
tables are made by the same functions as in the service.

The loop over epochs is Python: compiling it together with everything that it calls would take a
minute.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from deniable.privacy.epochs import Epochs, due_at
from deniable.simulation.kernels.run import Setting, enter_phase, record_of, serve
from deniable.simulation.kernels.state import FloatArray, IntArray

NextTable = Callable[[IntArray, IntArray], FloatArray]
"""Makes a table from shows and clicks, (J, K) each."""


def run_epochs(
    leap: bool, epochs: Epochs, next_table: NextTable, setting: Setting
) -> tuple[IntArray, IntArray]:
    """Run one repetition, like the entry points of `run.py`.

    Args:
        leap: whether an epoch is a few multinomial draws.
        epochs: distance from table to table; in the first epoch all arms are equally likely.
        next_table: makes a table from the counts before it.
        setting: the experiment.
    """
    shape = setting.rates.shape
    record = record_of(setting)
    parts = np.empty(sum(shape), np.int64)
    rows = np.cumsum(np.full(shape, 1 / shape[1]), axis=1)
    done, due = 0, due_at(0, epochs)
    for i, point in enumerate(setting.checkpoints.tolist()):
        enter_phase(setting, i)
        while done < point:
            if done == due:
                table = next_table(record.shows, record.clicks)
                np.cumsum(table, axis=1, out=rows)
                due = due_at(done, epochs)
            visitors = min(due, point) - done
            serve(leap, visitors, rows, setting, parts, record)
            done += visitors
        record.all_shows[i] = record.shows
        record.all_clicks[i] = record.clicks
    return record.all_shows, record.all_clicks

"""Worker processes that end with the program that started them, however it ends."""

from __future__ import annotations

import os
from collections.abc import Iterator
from concurrent.futures import Executor, ProcessPoolExecutor
from contextlib import contextmanager
from multiprocessing import get_context, parent_process
from threading import Thread


@contextmanager
def worker_processes(count: int) -> Iterator[Executor]:
    """An executor on `count` processes; they start with the first task and end with the block."""
    # Spawned, not forked: a fork of a process with threads (Polars, Numba) can hang.
    spawned = get_context("spawn")
    with ProcessPoolExecutor(count, spawned, initializer=_end_with_parent) as pool:
        try:
            yield pool
        finally:
            pool.shutdown(wait=True, cancel_futures=True)


def _end_with_parent() -> None:
    """Without this, workers of a program that was killed would wait for tasks for ever."""
    Thread(target=_wait_and_end, daemon=True).start()


def _wait_and_end() -> None:
    parent = parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)

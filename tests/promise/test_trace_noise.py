"""Noise that is really drawn for a trace budget: its size, its source, and faults that are caught."""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from itertools import pairwise

import numpy as np
import pytest
from tests.promise.trace_support import (
    ETA,
    Noise,
    counts_of,
    create,
    flat,
    replaced,
)
from tests.service.support import serving

from deniable.privacy import noise
from deniable.privacy.noise import discrete_laplace
from deniable.storage.records import MICRO


def surprise(noise_of: Noise | None) -> tuple[float, float]:
    """Noise of a publication over many cells: how far its mean size is off, in standard errors.

    |X| has mean 2r/(1 - r^2) with r = e^(-1/scale). Shows and rewards.
    """
    arms = [f"arm{i}" for i in range(20)]
    drawn: tuple[list[int], list[int]] = ([], [])
    with replaced(noise_of or discrete_laplace), serving("memory:") as service:
        create(service, arms=arms, segments=[f"s{i}" for i in range(20)])
        for _ in range(3):
            service.experiments.publish("e")
        published = counts_of(service)
        for before, after in pairwise(published):
            for kind, name in enumerate(("shows", "rewards")):
                drawn[kind].extend(
                    new - old
                    for new, old in zip(flat(after[name]), flat(before[name]), strict=True)
                )
    off = []
    for sample, scale in zip(drawn, (4 / ETA, 4 * MICRO / ETA), strict=True):
        ratio = np.exp(-1 / scale)
        mean = 2 * ratio / (1 - ratio * ratio)
        second = 2 * ratio / (1 - ratio) ** 2
        error = np.sqrt((second - mean * mean) / len(sample))
        off.append(abs(np.mean(np.abs(sample)) - mean) / error)
    assert len(drawn[0]) == len(drawn[1]) == 3 * 400
    return float(off[0]), float(off[1])


def test_the_published_noise_has_the_promised_size() -> None:
    assert max(surprise(None)) < 7  # p < 1e-9 in each tail, by the exponential tails of 1,200 draws


@pytest.mark.parametrize(
    "fault",
    [
        lambda _n, _d: 0,
        lambda n, d: discrete_laplace(n, 2 * d),
        lambda n, d: discrete_laplace(2 * n, d),
    ],
    ids=["no noise", "half the scale", "twice the scale"],
)
def test_wrong_noise_is_caught(fault: Noise) -> None:
    assert min(surprise(fault)) > 10


def published_noise(entropy: Callable[[int], bytes] | None) -> list[int]:
    """The noise of one publication, drawn while os.urandom is replaced."""
    with pytest.MonkeyPatch.context() as patch, serving("memory:") as service:
        create(service)
        if entropy is not None:
            patch.setattr(os, "urandom", entropy)
        service.experiments.publish("e")
        last = counts_of(service)[-1]
    return flat(last["shows"]) + flat(last["rewards"])


def test_a_seeded_generator_is_caught() -> None:
    """Two runs never have the same noise: eight numbers, four of them of a scale of millions."""
    assert published_noise(None) != published_noise(None)
    # The sampler's source is the system's own function, bound when the module is loaded, so that
    # replacing os.urandom later changes nothing ...
    assert noise.discrete_laplace.__defaults__ == (os.urandom,)
    assert published_noise(random.Random(1).randbytes) != published_noise(
        random.Random(1).randbytes
    )
    # ... while a sampler with a seed repeats itself, which this test would see.
    runs = []
    for _ in range(2):
        seeded = random.Random(1).randbytes
        with replaced(lambda n, d, seeded=seeded: discrete_laplace(n, d, entropy=seeded)):  # type: ignore[misc]
            runs.append(published_noise(None))
    assert runs[0] == runs[1]

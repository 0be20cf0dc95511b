"""Fitting networks of a few hundred weights to the rows of a surface: Adam, in small parts."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from deniable._validation import FloatArray
from deniable.expectations.curves import Network

Link: TypeAlias = Callable[[NDArray[np.int64], FloatArray], tuple[FloatArray, FloatArray]]
"""From places of rows and the networks' values there to shares, and their derivatives."""

_BATCH = 1024
_FAST, _SLOW = 6e-3, 2e-5
"""Adam's step at the beginning and at the end."""

_MEAN, _SQUARE, _SMALL = 0.9, 0.999, 1e-8
_DECAY = 1e-8
"""Of the weights' squares, in units of the mean square that is missed. It only holds weights that
nothing else does: with 1e-6 bends cost more than they explain, and shares are off by 1%."""


def blank_network(
    names: Sequence[str],
    low: FloatArray,
    high: FloatArray,
    hidden: Sequence[int],
    seed: int,
    networks: int = 1,
) -> Network:
    """Random weights, so small that nothing bends yet."""
    rng = np.random.default_rng(seed)
    sizes = (len(names), *hidden, 1)
    layers = []
    for inputs, outputs in itertools.pairwise(sizes):
        weights = rng.standard_normal((networks, inputs + 1, outputs)) / math.sqrt(inputs)
        weights[:, -1] = 0.5 * rng.standard_normal((networks, outputs)) * (outputs > 1)
        layers.append(weights)
    return Network(tuple(names), low, high, tuple(layers))


def fit_network(
    begun: Network,
    points: FloatArray,
    wanted: FloatArray,
    precision: FloatArray,
    link: Link,
    *,
    passes: int,
    rng: np.random.Generator,
) -> Network:
    """Networks of which each has shares near the wanted ones, by weighted least squares.

    Args:
        begun: where to begin.
        points: scaled coordinates of the rows, (rows, coordinates).
        wanted: shares.
        precision: of the rows, 1 on average.
        link: from the networks' values to shares.
        passes: over all rows.
        rng: for the order of the rows.
    """
    layers = [layer.copy() for layer in begun.layers]
    means = [np.zeros_like(layer) for layer in layers]
    squares = [np.zeros_like(layer) for layer in layers]
    rows = np.arange(wanted.size, dtype=np.int64)
    batches = math.ceil(rows.size / _BATCH)
    for step in range(1, passes * batches + 1):
        if step % batches == 1 or batches == 1:
            rng.shuffle(rows)
        place = (step - 1) % batches * _BATCH
        some = rows[place : place + _BATCH]
        slopes = _slopes(layers, points[some], wanted[some], precision[some], some, link)
        done = step / (passes * batches)
        speed = _SLOW + (_FAST - _SLOW) * (1 + math.cos(math.pi * done)) / 2
        for layer, mean, square, slope in zip(layers, means, squares, slopes, strict=True):
            mean += (1 - _MEAN) * (slope - mean)
            square += (1 - _SQUARE) * (slope**2 - square)
            size = np.sqrt(square / (1 - _SQUARE**step)) + _SMALL
            layer -= speed * mean / (1 - _MEAN**step) / size
    return replace(begun, layers=tuple(layers))


def _slopes(
    layers: Sequence[FloatArray],
    points: FloatArray,
    wanted: FloatArray,
    precision: FloatArray,
    some: NDArray[np.int64],
    link: Link,
) -> list[FloatArray]:
    """Derivatives of the mean square by every weight."""
    passed = [points]
    for layer in layers[:-1]:
        passed.append(np.tanh(passed[-1] @ layer[:, :-1] + layer[:, -1:]))
    value = (passed[-1] @ layers[-1][:, :-1] + layers[-1][:, -1:])[..., 0]
    share, slope = link(some, value)
    back = (2 / wanted.size * precision * (share - wanted) * slope)[..., None]
    found: list[FloatArray] = []
    for place in range(len(layers) - 1, -1, -1):
        below, layer = passed[place], layers[place]
        sums = below.swapaxes(-1, -2) @ back, back.sum(axis=-2, keepdims=True)
        by_weight = np.concatenate(sums, axis=-2)
        by_weight[:, :-1] += 2 * _DECAY * layer[:, :-1]
        found.append(by_weight)
        back = back @ layer[:, :-1].swapaxes(-1, -2) * (1 - below**2)
    return found[::-1]

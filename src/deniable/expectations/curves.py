"""Smooth functions of some coordinates, small enough to be stored: what surfaces are made of."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from deniable._blocks import BLOCK
from deniable._types import JsonObject
from deniable._validation import FloatArray


@dataclass(frozen=True)
class Curve(ABC):
    """A function of coordinates that are scaled to [-1, 1].

    Attributes:
        names: of the coordinates.
        low: where each begins.
        high: where each ends; outside, the value at the edge holds.
    """

    names: tuple[str, ...]
    low: FloatArray
    high: FloatArray

    @property
    @abstractmethod
    def width(self) -> int:
        """Numbers by point, at most, that a value needs on the way."""

    @abstractmethod
    def values(self, coordinates: Mapping[str, FloatArray]) -> FloatArray:
        """The value at every point, flat."""

    @abstractmethod
    def stored(self) -> JsonObject:
        """Plain lists, for JSON."""

    def scaled(self, coordinates: Mapping[str, FloatArray]) -> FloatArray:
        """Every point, (points, coordinates), from -1 to 1."""
        points = np.stack([coordinates[name].ravel() for name in self.names], axis=1)
        middle, half = (self.high + self.low) / 2, (self.high - self.low) / 2
        return np.clip((points - middle) / half, -1, 1)

    def __call__(self, coordinates: Mapping[str, FloatArray]) -> FloatArray:
        """The value at every point, in the points' shape."""
        shape = coordinates[self.names[0]].shape
        flat = {name: coordinates[name].ravel() for name in self.names}
        size = flat[self.names[0]].size
        step = max(1, 8 * BLOCK // self.width)
        parts = [
            self.values({name: flat[name][start : start + step] for name in self.names})
            for start in range(0, size, step)
        ]
        return np.concatenate(parts or [np.empty(0)]).reshape(shape)

    def inside(
        self, coordinates: Mapping[str, FloatArray], slack: float = 1e-6
    ) -> NDArray[np.bool_]:
        """Whether each point lies where the curve was fitted."""
        good = np.ones(coordinates[self.names[0]].shape, bool)
        for name, low, high in zip(self.names, self.low, self.high, strict=True):
            good &= (coordinates[name] >= low - slack) & (coordinates[name] <= high + slack)
        return good

    def domain(self) -> JsonObject:
        """The coordinates, for JSON."""
        return {
            "names": list(self.names),
            "low": [round(value, 6) for value in self.low.tolist()],
            "high": [round(value, 6) for value in self.high.tolist()],
        }


@dataclass(frozen=True)
class Polynomial(Curve):
    """A polynomial in scaled coordinates, as products of Legendre polynomials.

    Attributes:
        degrees: of each term in each coordinate, (terms, coordinates).
        weights: of the terms.
    """

    degrees: NDArray[np.int64]
    weights: FloatArray

    @classmethod
    def read(cls, stored: JsonObject) -> Polynomial:
        """From what `stored` returned."""
        return cls(
            tuple(stored["names"]),
            np.array(stored["low"], np.float64),
            np.array(stored["high"], np.float64),
            np.array(stored["degrees"], np.int64),
            np.array(stored["weights"], np.float64),
        )

    def stored(self) -> JsonObject:
        """Plain lists, for JSON."""
        return {
            **self.domain(),
            "degrees": self.degrees.tolist(),
            "weights": _rounded(self.weights),
        }

    def terms(self, coordinates: Mapping[str, FloatArray]) -> FloatArray:
        """Every term at every point, (points, terms)."""
        scaled = self.scaled(coordinates)
        product = np.ones((len(scaled), len(self.degrees)))
        for place in range(len(self.names)):
            most = int(self.degrees[:, place].max())
            powers = np.polynomial.legendre.legvander(scaled[:, place], most)
            product *= powers[:, self.degrees[:, place]]
        return product

    @property
    def width(self) -> int:
        """The number of terms."""
        return len(self.degrees)

    def values(self, coordinates: Mapping[str, FloatArray]) -> FloatArray:
        """The terms' sum at every point."""
        return np.asarray(self.terms(coordinates) @ self.weights)


@dataclass(frozen=True)
class Network(Curve):
    """The mean of a few small networks: layers of tanh of linear combinations, the last linear.

    A network bends where a polynomial swings. Each begins at other weights, so that their mean misses
    less than one of them.

    Attributes:
        layers: weights, (networks, inputs + 1, outputs), of each; the last row is added.
    """

    layers: tuple[FloatArray, ...]

    @classmethod
    def read(cls, stored: JsonObject) -> Network:
        """From what `stored` returned."""
        return cls(
            tuple(stored["names"]),
            np.array(stored["low"], np.float64),
            np.array(stored["high"], np.float64),
            tuple(np.array(layer, np.float64, ndmin=3) for layer in stored["layers"]),
        )

    def stored(self) -> JsonObject:
        """Plain lists, for JSON."""
        return {
            **self.domain(),
            "layers": [[[_rounded(row) for row in one] for one in layer] for layer in self.layers],
        }

    @property
    def width(self) -> int:
        """The inputs and outputs of the widest layer of all networks."""
        return max(len(layer) * sum(layer.shape[1:]) for layer in self.layers)

    def values(self, coordinates: Mapping[str, FloatArray]) -> FloatArray:
        """The last layer at every point."""
        return self.values_at(self.scaled(coordinates))

    def values_at(self, found: FloatArray) -> FloatArray:
        """The same at scaled coordinates, (points, coordinates)."""
        for layer in self.layers[:-1]:
            found = np.tanh(found @ layer[:, :-1] + layer[:, -1:])
        last = self.layers[-1]
        return np.asarray((found @ last[:, :-1] + last[:, -1:]).mean(axis=0)[:, 0])


def read_curve(stored: JsonObject) -> Curve:
    """Either, from what `stored` returned."""
    return Network.read(stored) if "layers" in stored else Polynomial.read(stored)


def _rounded(values: FloatArray) -> list[float]:
    return [float(f"{value:.6g}") for value in values.tolist()]

"""Vectors of items: how they are stored, and how those of many items are held and compared.

A stored vector is that of the embedder, in single precision. A held one has a whole number from -127 to 127 and a scale
for each of its numbers, and how far it is from the stored one. So the cosine of each with a question is known within
bounds, and only those are compared exactly that the bounds leave in question.
"""

from __future__ import annotations

from array import array
from base64 import b64decode, b64encode
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import fsum, isfinite, sqrt
from sys import byteorder
from typing import Any

from locus.errors import EmbeddingError
from locus.extras import require

EXTRA = "vectors"
MOST_DIMENSIONS = 16_384
_GROWTH = 1_024
_BLOCK = 1_024
"""The number of held vectors that are compared at a time: so many stay in the cache of a processor."""
_UNIT = 2.0**-24
"""The largest relative error of one operation in single precision."""


@dataclass(frozen=True)
class Vectors:
    """The vectors of an item, and who has made them."""

    model: str
    dimension: int
    rows: tuple[bytes, ...]
    """Numbers in single precision, the least significant byte first."""

    def floats(self) -> list[array[float]]:
        return [_floats(row) for row in self.rows]

    def similarity(self, asked: Sequence[float]) -> float:
        """The cosine with a vector; of several, the greatest. It is rounded once, and so the same everywhere."""
        return max(cosine(row, asked) for row in self.floats())


@dataclass
class Model:
    """A model of embeddings. Its dimension is that of its first vector."""

    name: str
    dimension: int | None = None

    def made(self, vectors: Vectors) -> bool:
        """Whether vectors are of this model."""
        return vectors.model == self.name and self.dimension in (None, vectors.dimension)


def vectors_of(model: str, dimension: int, vectors: Sequence[Sequence[float]]) -> Vectors:
    return Vectors(model, dimension, tuple(_bytes(array("f", vector)) for vector in vectors))


def stored_vectors(vectors: Vectors) -> dict[str, Any]:
    """Vectors, as they stand in the payload of an item."""
    rows = [b64encode(row).decode() for row in vectors.rows]
    return {"model": vectors.model, "dimension": vectors.dimension, "rows": rows}


def read_vectors(data: Mapping[str, Any] | None) -> Vectors | None:
    """The vectors in a payload. Raises ValueError, TypeError or KeyError if they are none."""
    if data is None:
        return None
    vectors = Vectors(data["model"], data["dimension"], tuple(b64decode(row, validate=True) for row in data["rows"]))
    if not isinstance(vectors.model, str) or not vectors.rows:
        raise ValueError("no vectors")
    if any(len(row) != 4 * vectors.dimension or not all(map(isfinite, _floats(row))) for row in vectors.rows):
        raise ValueError("a vector of another dimension")
    return vectors


def checked_vector(vector: Any, dimension: int | None = None) -> list[float]:
    """Check a vector that an embedder or a caller has given: finite numbers, in single precision."""
    try:
        numbers = list(array("f", [float(number) for number in vector]))
    except (TypeError, ValueError, OverflowError):
        raise EmbeddingError(f"a vector is a list of numbers, got {type(vector).__name__}") from None
    if not numbers or len(numbers) > MOST_DIMENSIONS or not all(map(isfinite, numbers)):
        raise EmbeddingError(f"a vector has 1 to {MOST_DIMENSIONS:,} finite numbers, and this one has not")
    if dimension is not None and len(numbers) != dimension:
        raise EmbeddingError(f"a vector of {dimension} numbers is wanted, and this one has {len(numbers)}")
    return numbers


def cosine(left: Sequence[float], right: Sequence[float]) -> float:
    """The cosine of two vectors; 0 if one of them has no length."""
    lengths = sqrt(fsum(a * a for a in left)) * sqrt(fsum(b * b for b in right))
    return fsum(a * b for a, b in zip(left, right, strict=True)) / lengths if lengths else 0.0


class HeldVectors:
    """The vectors of many rows, as whole numbers. One row may have several."""

    def __init__(self, dimension: int) -> None:
        self._numpy = require("numpy", EXTRA)
        self.dimension = dimension
        self.count = 0
        np = self._numpy
        self._numbers = np.empty((0, dimension), np.int8)
        self._scales = np.empty(0, np.float32)
        self._errors = np.empty(0, np.float32)
        self._rows = np.empty(0, np.int64)

    @property
    def size(self) -> int:
        """How many bytes this holds."""
        return len(self._rows) * (self.dimension + 16)

    def add(self, row: int, vectors: Vectors) -> None:
        np = self._numpy
        for data in vectors.rows:
            exact = np.frombuffer(data, "<f4").astype(np.float64)
            length = sqrt(float(exact @ exact))
            unit = exact / length if length else exact
            scale = np.float32(np.abs(unit).max() / 127) if length else np.float32(0)
            numbers = np.rint(unit / np.float64(scale)) if scale else np.zeros(self.dimension)
            numbers = np.clip(numbers, -127, 127)
            error = unit - numbers * np.float64(scale)
            self._reserve(self.count + 1)
            at = self.count
            self._numbers[at], self._scales[at], self._rows[at] = numbers, scale, row
            self._errors[at] = sqrt(float(error @ error)) * (1 + 1e-6)
            self.count = at + 1

    def bounds(self, asked: Sequence[float], rows: int) -> tuple[Any, Any]:
        """The cosines of rows with a vector, and how far the true ones may be from these; -inf for rows without.

        A cosine is that of the held vector, plus that of its error, which is at most as long as itself. What is
        computed in single precision is off by at most so many roundings as there are numbers, whatever their order.
        """
        np = self._numpy
        exact = np.asarray(asked, np.float64)
        length = sqrt(float(exact @ exact))
        unit = (exact / length if length else exact).astype(np.float32)
        dots = np.empty(self.count, np.float32)
        block = np.empty((_BLOCK, self.dimension), np.float32)
        for start in range(0, self.count, _BLOCK):
            end = min(start + _BLOCK, self.count)
            some = block[: end - start]
            some[...] = self._numbers[start:end]
            np.dot(some, unit, out=dots[start:end])
        dots *= self._scales[: self.count]
        rounding = 2 * (self.dimension + 8) * _UNIT * (1 + 2 * self._errors[: self.count])
        bounds = self._errors[: self.count] * (1 + 1e-6) + rounding
        near, far = np.full(rows, -np.inf), np.zeros(rows)
        own = self._rows[: self.count]
        if self.count and (np.diff(own) > 0).all():
            near[own], far[own] = dots, bounds
        else:
            np.maximum.at(near, own, dots)
            np.maximum.at(far, own, bounds)
        return near, far

    def _reserve(self, count: int) -> None:
        if count <= len(self._rows):
            return
        np, more = self._numpy, max(_GROWTH, len(self._rows) // 4)
        self._numbers = np.concatenate([self._numbers, np.zeros((more, self.dimension), np.int8)])
        self._scales, self._errors = (
            np.concatenate([old, np.zeros(more, np.float32)]) for old in (self._scales, self._errors)
        )
        self._rows = np.concatenate([self._rows, np.zeros(more, np.int64)])


def _floats(data: bytes) -> array[float]:
    floats = array("f", data)
    if byteorder == "big":
        floats.byteswap()
    return floats


def _bytes(floats: array[float]) -> bytes:
    if byteorder == "big":
        floats.byteswap()
    return floats.tobytes()

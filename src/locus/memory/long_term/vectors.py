"""Vectors of items: how they are stored, and how those of many items are held and compared.

Only the direction of a vector counts for a cosine, so a stored one has whole numbers in proportion to those of the
embedder: from -127 to 127, with one byte each. If the largest is more than a quarter of the length of the vector, they
go from -32767 to 32767, with two bytes each. Every number is off by half at most. So with one byte no cosine is off by
more than sqrt(dimension) / 1,016, and if the roundings have nothing to do with the question, by 0.0006 in the mean.

A held vector has one byte for each number, and how far it is from the stored one: nothing, if that has bytes, too. So
the cosine of each with a question is known within bounds, and only those are compared exactly that the bounds leave in
question.
"""

from __future__ import annotations

from array import array
from base64 import b85decode, b85encode
from collections.abc import Sequence
from dataclasses import dataclass
from math import fsum, isfinite, sqrt
from sys import byteorder
from typing import Any

from locus.errors import EmbeddingError
from locus.extras import require

EXTRA = "vectors"
MOST_DIMENSIONS = 16_384
_MOST, _MOST_WIDE = 127, 32_767
_PEAK = 0.25
"""How large a number of a vector of length 1 may be for all of them to have one byte."""
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
    """Whole numbers with a sign, of one byte each or of two, the less significant one first."""

    def numbers(self) -> list[array[int]]:
        return [_numbers(row, self.dimension) for row in self.rows]

    def similarity(self, asked: Sequence[float]) -> float:
        """The cosine with a vector; of several, the greatest. It is rounded once, and so the same everywhere."""
        return max(cosine(row, asked) for row in self.numbers())


@dataclass
class Model:
    """A model of embeddings. Its dimension is that of its first vector."""

    name: str
    dimension: int | None = None

    def made(self, vectors: Vectors) -> bool:
        """Whether vectors are of this model."""
        return vectors.model == self.name and self.dimension in (None, vectors.dimension)


def vectors_of(model: str, dimension: int, vectors: Sequence[Sequence[float]]) -> Vectors:
    """The vectors of an embedder, as they are stored."""
    return Vectors(model, dimension, tuple(map(_whole, vectors)))


def stored_vectors(vectors: Vectors) -> list[Any]:
    """Vectors, as they stand in the payload of an item. JSON holds no bytes, so they are in base 85 (of `base64`)."""
    return [vectors.model, vectors.dimension, *(b85encode(row).decode() for row in vectors.rows)]


def read_vectors(data: Sequence[Any] | None) -> Vectors | None:
    """The vectors in a payload. Raises ValueError or TypeError if they are none."""
    if data is None:
        return None
    model, dimension, *texts = data
    rows = tuple(b85decode(text) for text in texts)
    if not isinstance(model, str) or type(dimension) is not int or dimension < 1 or not rows:
        raise ValueError("no vectors")
    if any(len(row) not in (dimension, 2 * dimension) for row in rows):
        raise ValueError("a vector of another dimension")
    return Vectors(model, dimension, rows)


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
            exact = np.frombuffer(data, np.int8 if len(data) == self.dimension else "<i2").astype(np.float64)
            length, largest = sqrt(float(exact @ exact)), float(np.abs(exact).max())
            step = largest / _MOST if largest > _MOST else 1.0
            numbers = np.rint(exact / step)
            error = exact - numbers * step
            self._reserve(self.count + 1)
            at = self.count
            self._numbers[at], self._scales[at], self._rows[at] = numbers, step / length if length else 0, row
            self._errors[at] = sqrt(float(error @ error)) / length * (1 + 1e-6) if length else 0
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


def _whole(vector: Sequence[float]) -> bytes:
    """A vector as whole numbers in proportion to its own."""
    largest = max(map(abs, vector))
    if not largest:
        return bytes(len(vector))
    is_narrow = largest <= _PEAK * sqrt(fsum(number * number for number in vector))
    scale = (_MOST if is_narrow else _MOST_WIDE) / largest
    numbers = array("b" if is_narrow else "h", [round(number * scale) for number in vector])
    if byteorder == "big":
        numbers.byteswap()
    return numbers.tobytes()


def _numbers(data: bytes, dimension: int) -> array[int]:
    numbers = array("b" if len(data) == dimension else "h", data)
    if byteorder == "big":
        numbers.byteswap()
    return numbers

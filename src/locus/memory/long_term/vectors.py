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

import re
from array import array
from base64 import b85decode, b85encode
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from math import fsum, isfinite, sqrt
from operator import mul
from sys import byteorder
from typing import Any

from locus.errors import EmbeddingError
from locus.extras import require

EXTRA = "vectors"
MOST_DIMENSIONS = 16_384
_MOST, _MOST_WIDE = 127, 32_767
_PEAK = 0.25
"""How large a number of a vector of length 1 may be for all of them to have one byte."""
_BLOCK = 1_024
"""The number of held vectors that are compared at a time: so many stay in the cache of a processor."""
_UNIT = 2.0**-24
"""The largest relative error of one operation in single precision."""
_DIGITS = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz!#$%&()*+-;<=>?@^_`{|}~"
_FIRST, _ANY = (f"[{re.escape(digits)}]" for digits in (_DIGITS[:82], _DIGITS))
_CERTAIN = re.compile(f"(?:{_FIRST}{_ANY}{{4}}|\\|[0-9A-M]{_ANY}{{3}})*{_FIRST}?{_ANY}{{0,3}}")
"""Most of the texts in base 85. Of the others, decoding tells."""


@dataclass(frozen=True)
class Vectors:
    """The vectors of an item, and who has made them."""

    model: str
    dimension: int
    texts: tuple[str, ...]
    """Whole numbers with a sign, of one byte each or of two, the less significant one first. JSON holds no bytes, so
    they are in base 85 (of `base64`)."""

    @cached_property
    def numbers(self) -> list[array[int]]:
        return [_numbers(b85decode(text), self.dimension) for text in self.texts]

    def similarity(self, asked: Sequence[float]) -> float:
        """The cosine with a vector; of several, the greatest. It is the same everywhere."""
        return max(cosine(row, asked) for row in self.numbers)


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
    return Vectors(model, dimension, tuple(b85encode(_whole(vector)).decode() for vector in vectors))


def stored_vectors(vectors: Vectors) -> list[Any]:
    """Vectors, as they stand in the payload of an item."""
    return [vectors.model, vectors.dimension, *vectors.texts]


def read_vectors(data: Sequence[Any] | None) -> Vectors | None:
    """The vectors in a payload. Raises ValueError or TypeError if they are none."""
    if data is None:
        return None
    model, dimension, *texts = data
    if not isinstance(model, str) or type(dimension) is not int or dimension < 1 or not texts:
        raise ValueError("no vectors")
    lengths = _length(dimension), _length(2 * dimension)
    for text in texts:
        if len(text) not in lengths:
            raise ValueError("a vector of another dimension")
        if not _CERTAIN.fullmatch(text):
            b85decode(text)
    return Vectors(model, dimension, tuple(texts))


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
    lengths = sqrt(fsum(map(mul, left, left))) * sqrt(fsum(map(mul, right, right)))
    return fsum(map(mul, left, right)) / lengths if lengths else 0.0


class HeldVectors:
    """The vectors of many rows, a byte for each number. One row may have several."""

    def __init__(self, dimension: int) -> None:
        self._numpy = np = require("numpy", EXTRA)
        self.dimension = dimension
        self._blocks: list[tuple[Any, Any, Any, Any]] = []
        """The numbers of some vectors, what they are multiplied by, how far their cosines may be from the stored ones,
        and their rows."""
        self._has_several = False
        """Whether a row has several vectors."""
        self._waiting: dict[bool, list[tuple[int, str]]] = {True: [], False: []}
        """Rows and texts of vectors of one byte a number, and of two, until there are enough to decode at once."""
        self._count = 0
        self._digits = np.zeros(256, np.uint64)
        self._digits[np.frombuffer(_DIGITS.encode(), np.uint8)] = np.arange(len(_DIGITS))

    @property
    def size(self) -> int:
        """About how many bytes this holds."""
        return self._count * (self.dimension + 12)

    def add(self, row: int, vectors: Vectors) -> None:
        self._has_several = self._has_several or len(vectors.texts) > 1
        for text in vectors.texts:
            is_narrow = len(text) == _length(self.dimension)
            self._waiting[is_narrow].append((row, text))
            self._count += 1
            if len(self._waiting[is_narrow]) == _BLOCK:
                self._take_in(is_narrow)

    def _take_in(self, is_narrow: bool) -> None:
        """Hold the vectors that are waiting."""
        waiting, np = self._waiting[is_narrow], self._numpy
        if not waiting:
            return
        exact = self._decoded([text for _, text in waiting], is_narrow)
        lengths, largest = np.sqrt(np.einsum("ij,ij->i", exact, exact)), np.abs(exact).max(axis=1)
        steps = np.where(largest > _MOST, largest / _MOST, 1.0)
        numbers = np.rint(exact / steps[:, None])
        errors = exact - numbers * steps[:, None]
        per_length = np.divide(1.0, lengths, out=np.zeros_like(lengths), where=lengths > 0)
        # What is computed in single precision is off by a rounding for each number at most, whatever their order.
        errors = np.sqrt(np.einsum("ij,ij->i", errors, errors)) * per_length * (1 + 1e-6)
        far = errors + 2 * (self.dimension + 8) * _UNIT * (1 + 2 * errors)
        rows = np.array([row for row, _ in waiting], np.int32)
        block = numbers.astype(np.int8), (steps * per_length).astype(np.float32), far.astype(np.float32), rows
        if self._blocks and len(self._blocks[-1][0]) + len(waiting) <= _BLOCK:
            block = tuple(map(np.concatenate, zip(self._blocks.pop(), block, strict=True)))
        self._blocks.append(block)
        waiting.clear()

    def _decoded(self, texts: Sequence[str], is_narrow: bool) -> Any:
        np, size = self._numpy, self.dimension if is_narrow else 2 * self.dimension
        full = -(-size // 4) * 5
        text = "".join([text.ljust(full, "~") for text in texts])
        digits = self._digits[np.frombuffer(text.encode(), np.uint8)].reshape(len(texts), full // 5, 5)
        fours = digits[:, :, 0]
        for at in range(1, 5):
            fours = fours * 85 + digits[:, :, at]
        data = np.ascontiguousarray(fours.astype(">u4")).view(np.uint8)[:, :size]
        return np.ascontiguousarray(data).view("i1" if is_narrow else "<i2").astype(np.float64)

    def bounds(self, asked: Sequence[float], rows: int) -> tuple[Any, Any]:
        """The cosines of rows with a vector, and how far the true ones may be from these; -inf for rows without.

        A cosine is that of the held vector, plus that of its error, which is at most as long as itself.
        """
        np = self._numpy
        for is_narrow in self._waiting:
            self._take_in(is_narrow)
        exact = np.asarray(asked, np.float64)
        length = sqrt(float(exact @ exact))
        unit = (exact / length if length else exact).astype(np.float32)
        near, far = np.full(rows, -np.inf), np.zeros(rows)
        space = np.empty((_BLOCK, self.dimension), np.float32)
        for numbers, scales, bounds, own in self._blocks:
            some = space[: len(numbers)]
            some[...] = numbers
            dots = (some @ unit) * scales
            if self._has_several:
                np.maximum.at(near, own, dots)
                np.maximum.at(far, own, bounds)
            else:
                near[own], far[own] = dots, bounds
        return near, far


def _length(size: int) -> int:
    """How many characters so many bytes have in base 85."""
    return size // 4 * 5 + (size % 4 + 1 if size % 4 else 0)


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

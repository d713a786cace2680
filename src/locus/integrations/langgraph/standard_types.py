"""How values of the standard library's types and of numpy's arrays and numbers are written in a checkpoint."""

from __future__ import annotations

import datetime
import ipaddress
import re
import sys
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from decimal import Decimal
from fractions import Fraction
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import Any
from uuid import UUID
from zoneinfo import ZoneInfo

from locus.errors import CorruptCheckpointError, SerializationError
from locus.integrations.langgraph.codec import (
    ReadValue,
    RefusedError,
    TypedCodec,
    WriteValue,
    bytes_text,
    text_bytes,
    text_of,
)

Kind = tuple[str, Iterable[type], WriteValue, ReadValue]

_FACTORIES: Mapping[str, type] = {kind.__name__: kind for kind in (bool, dict, float, int, list, set, str, tuple)}
MOST_EXPONENT = 6_144
"""That of the largest standard type (decimal128). A few digits can name a number that takes minutes to write out."""
MOST_EFFORT = 100_000
"""Of a regular expression, in characters of plain text: so many are compiled in about a quarter of a second."""
MOST_TOGETHER = 1_000_000
"""Of all different regular expressions of one load, or of one save."""
_STEPS, _SETS = re.compile(r"[*+?{(]"), re.compile(r"\[[^\[]*")
_FAR = re.compile(r"-(?:[^\x00-\xff]|\\[uUN])")
_ZONE_KEY = re.compile(r"[\w+-]{1,50}(/[\w+-]{1,50}){0,3}", re.ASCII)
_DTYPE = re.compile(r"[<>|=][biufcSUMm]\d{1,9}(\[\w{1,20}\])?", re.ASCII)
_counted: ContextVar[_Patterns | None] = ContextVar("the patterns of this load", default=None)
_ADDRESSES = (
    ipaddress.IPv4Address,
    ipaddress.IPv4Interface,
    ipaddress.IPv4Network,
    ipaddress.IPv6Address,
    ipaddress.IPv6Interface,
    ipaddress.IPv6Network,
)


def standard_kinds(codec: TypedCodec) -> Iterator[Kind]:
    yield from _numbers()
    yield from _texts()
    yield from _times(codec)
    yield from _containers(codec)


def _by_text(kind: type, make: Callable[[str], Any] | None = None, text: Callable[[Any], str] = str) -> Kind:
    made = make or kind
    return kind.__name__, (kind,), lambda value: {"value": text(value)}, lambda stored: made(text_of(stored["value"]))


def _numbers() -> Iterator[Kind]:
    yield (
        "complex",
        (complex,),
        lambda value: {"value": [repr(value.real), repr(value.imag)]},
        lambda stored: complex(*(float(text_of(part)) for part in stored["value"])),
    )
    yield _by_text(Decimal, _read_decimal, _decimal_text)
    yield _by_text(Fraction, _read_fraction, _fraction_text)
    yield "range", (range,), _write_range, _read_range


def _decimal_text(value: Decimal) -> str:
    if abs(value.adjusted()) > MOST_EXPONENT:
        raise RefusedError(f"is a Decimal with an exponent beyond {MOST_EXPONENT}, which cannot be kept")
    return str(value)


def _read_decimal(text: str) -> Decimal:
    value = Decimal(text)
    if abs(value.adjusted()) > MOST_EXPONENT:
        raise ValueError("the exponent is too large")
    return value


def _fraction_text(value: Fraction) -> str:
    try:
        return str(value)
    except ValueError as error:  # Python's limit for the digits of an integer
        raise RefusedError("is a Fraction with too many digits to be kept") from error


def _read_fraction(text: str) -> Fraction:
    """Read a fraction. `Fraction` itself would accept an exponent, and compute a huge power."""
    numerator, slash, denominator = text.partition("/")
    return Fraction(int(numerator), int(denominator) if slash else 1)


def _write_range(value: range) -> dict[str, Any]:
    if not _has_length(value):
        raise RefusedError("is a range with too many numbers to be counted, which cannot be kept")
    return {"value": [value.start, value.stop, value.step]}


def _read_range(stored: Mapping[str, Any]) -> range:
    start, stop, step = map(_whole, stored["value"])
    value = range(start, stop, step)
    if not _has_length(value):
        raise ValueError("the range is too long")
    return value


def _has_length(value: range) -> bool:
    try:
        len(value)
    except OverflowError:
        return False
    return True


def _whole(value: Any) -> int:
    if type(value) is not int:
        raise TypeError(f"a whole number was expected, not {type(value).__name__}")
    return value


def _texts() -> Iterator[Kind]:
    yield "bytes", (bytes,), lambda value: {"value": bytes_text(value)}, lambda stored: text_bytes(stored["value"])
    yield (
        "bytearray",
        (bytearray,),
        lambda value: {"value": bytes_text(value)},
        lambda stored: bytearray(text_bytes(stored["value"])),
    )
    yield _by_text(UUID)
    yield "Path", (type(Path()),), lambda value: {"value": str(value)}, lambda stored: Path(text_of(stored["value"]))
    # `PurePath()` returns one of these two, depending on the system.
    yield from map(_by_text, (PurePosixPath, PureWindowsPath))
    yield from map(_by_text, _ADDRESSES)
    yield _by_text(ZoneInfo, _read_zone, _zone_key)
    yield "Pattern", (re.Pattern,), _write_pattern, _read_pattern


def _zone_key(zone: ZoneInfo) -> str:
    if zone.key is None:
        raise RefusedError("is a ZoneInfo that was read from a file, and has no name to be kept by")
    return zone.key


def _read_zone(key: str) -> ZoneInfo:
    if not _ZONE_KEY.fullmatch(key):  # it is looked for in folders and in a package
        raise ValueError("this is no name of a time zone")
    return ZoneInfo(key)


class _Patterns:
    """The regular expressions of one load or save. Each is compiled once, however often it is stored."""

    def __init__(self) -> None:
        self.compiled: dict[tuple[str | bytes, int], re.Pattern[Any]] = {}
        self.effort = 0


@contextmanager
def patterns_counted() -> Iterator[None]:
    """Count the regular expressions that are written or read in here together."""
    if _counted.get() is not None:
        yield
        return
    outside = _counted.set(_Patterns())
    try:
        yield
    finally:
        _counted.reset(outside)


def _check_effort(pattern: str | bytes, together: _Patterns, kind: type[Exception]) -> None:
    """Refuse a pattern that takes too long to be compiled, alone or with the others."""
    effort = _effort(pattern)
    together.effort += effort
    if effort > MOST_EFFORT:
        raise RefusedError(
            f"is a regular expression that takes as long to compile as {MOST_EFFORT:,} characters, and cannot be kept: "
            "keep its text, or take it apart",
            kind,
        )
    if together.effort > MOST_TOGETHER:
        raise RefusedError(
            "is one of many regular expressions, which together take as long to compile as "
            f"{MOST_TOGETHER:,} characters, and cannot be kept: keep their texts",
            kind,
        )


def _write_pattern(value: re.Pattern[Any]) -> dict[str, Any]:
    together, key = _counted.get() or _Patterns(), (value.pattern, value.flags)
    if key not in together.compiled:
        _check_effort(value.pattern, together, SerializationError)
        together.compiled[key] = value
    if isinstance(value.pattern, bytes):
        return {"bytes": bytes_text(value.pattern), "flags": value.flags}
    return {"value": value.pattern, "flags": value.flags}


def _effort(pattern: str | bytes) -> int:
    """About how long a pattern takes to be compiled.

    The most expensive part is a set with a range of many characters: five characters take as long as a thousand.
    """
    text = pattern if isinstance(pattern, str) else pattern.decode("latin-1")
    sets = _SETS.findall(text)
    far = sum(1 for part in sets if _FAR.search(part))
    return len(text) + 10 * len(_STEPS.findall(text)) + 150 * len(sets) + 1_600 * far


def _read_pattern(stored: Mapping[str, Any]) -> re.Pattern[Any]:
    pattern = text_bytes(stored["bytes"]) if "bytes" in stored else text_of(stored["value"])
    flags = _whole(stored["flags"]) & ~re.DEBUG  # which would print
    together = _counted.get() or _Patterns()
    if (pattern, flags) not in together.compiled:
        _check_effort(pattern, together, CorruptCheckpointError)
        together.compiled[pattern, flags] = re.compile(pattern, flags)
    return together.compiled[pattern, flags]


def _times(codec: TypedCodec) -> Iterator[Kind]:
    def write(value: datetime.datetime | datetime.time) -> dict[str, Any]:
        zone = value.tzinfo
        # An offset is part of the text; a named zone is not.
        named = zone is not None and (type(zone) is not datetime.timezone or _own_name(zone) is not None)
        written: dict[str, Any] = {"value": (value.replace(tzinfo=None) if named else value).isoformat()}
        if named:
            written["zone"] = codec.write(zone)
        if value.fold:
            written["fold"] = 1
        return written

    def reading(kind: type[datetime.datetime] | type[datetime.time]) -> ReadValue:
        def read(stored: Mapping[str, Any]) -> datetime.datetime | datetime.time:
            value = kind.fromisoformat(stored["value"]).replace(fold=stored.get("fold", 0))
            return value.replace(tzinfo=codec.read(stored["zone"])) if "zone" in stored else value

        return read

    yield "datetime", (datetime.datetime,), write, reading(datetime.datetime)
    yield "time", (datetime.time,), write, reading(datetime.time)
    yield _by_text(datetime.date, datetime.date.fromisoformat)
    yield (
        "timedelta",
        (datetime.timedelta,),
        lambda value: {"value": [value.days, value.seconds, value.microseconds]},
        lambda stored: _read_delta(stored["value"]),
    )
    yield "timezone", (datetime.timezone,), _write_timezone, _read_timezone


def _read_delta(parts: Any) -> datetime.timedelta:
    days, seconds, microseconds = map(_whole, parts)
    return datetime.timedelta(days, seconds, microseconds)


def _own_name(zone: datetime.timezone) -> str | None:
    """The name of a time zone with a fixed offset, if it was given one."""
    name = zone.tzname(None)
    return None if name == datetime.timezone(zone.utcoffset(None)).tzname(None) else name


def _write_timezone(value: datetime.timezone) -> dict[str, Any]:
    offset = value.utcoffset(None)
    written: dict[str, Any] = {"value": [offset.days, offset.seconds, offset.microseconds]}
    name = _own_name(value)
    return written if name is None else written | {"name": name}


def _read_timezone(stored: Mapping[str, Any]) -> datetime.timezone:
    offset = _read_delta(stored["value"])
    if "name" in stored:
        return datetime.timezone(offset, text_of(stored["name"]))
    return datetime.UTC if not offset else datetime.timezone(offset)


def _containers(codec: TypedCodec) -> Iterator[Kind]:
    yield "tuple", (tuple,), lambda v: {"value": codec.write_all(v)}, lambda s: tuple(codec.read_all(s["value"]))
    yield "set", (set,), lambda v: {"value": codec.ordered(v)}, lambda s: set(codec.read_keys(s["value"]))
    yield (
        "frozenset",
        (frozenset,),
        lambda v: {"value": codec.ordered(v)},
        lambda s: frozenset(codec.read_keys(s["value"])),
    )
    yield (
        "deque",
        (deque,),
        lambda v: {"value": codec.write_all(v)} | ({} if v.maxlen is None else {"maxlen": v.maxlen}),
        lambda s: deque(codec.read_all(s["value"]), s.get("maxlen")),
    )
    for kind in (OrderedDict, Counter):
        yield kind.__name__, (kind,), codec.write_pairs, _pairs_reader(codec, kind)
    yield (
        "defaultdict",
        (defaultdict,),
        lambda v: {"factory": factory_name(v), **codec.write_pairs(v)},
        lambda s: defaultdict(factory_of(s["factory"]), codec.read_pairs(s)),
    )


def _pairs_reader(codec: TypedCodec, kind: Callable[[Any], Any]) -> ReadValue:
    return lambda stored: kind(dict(codec.read_pairs(stored)))


def factory_name(value: defaultdict[Any, Any]) -> str | None:
    """The stored name of a defaultdict's factory."""
    factory = value.default_factory
    if factory is None:
        return None
    name = getattr(factory, "__name__", "")
    if _FACTORIES.get(name) is not factory:
        raise RefusedError(
            f"is a defaultdict whose default_factory cannot be kept ({factory!r:.80}): make it a dict, or use one of "
            + ", ".join(_FACTORIES)
        )
    return name


def factory_of(name: str | None) -> type | None:
    return None if name is None else _FACTORIES[name]


_ARRAY_KINDS = frozenset("biufcSUMm")
"""The kinds of dtypes that are plain bytes, without objects."""


def add_numpy(codec: TypedCodec) -> None:
    """Add numpy's types, without importing numpy: a value can only be one of them if numpy is imported."""
    codec.add("ndarray", (), _write_array, _read_array)
    codec.add("numpy", (), _write_array, lambda stored: _read_array(stored)[()])
    codec.add_found(_numpy_tag, _write_array)


def _numpy_tag(value: Any) -> str | None:
    """The tag of a numpy array or number; None for anything else."""
    numpy = sys.modules.get("numpy")
    if numpy is None:
        return None
    if type(value) is numpy.ndarray:
        return "ndarray"
    return "numpy" if isinstance(value, numpy.generic) else None


def _write_array(value: Any) -> dict[str, Any]:
    if value.dtype.kind not in _ARRAY_KINDS or value.dtype.hasobject:
        raise RefusedError(
            f"is an array of {value.dtype}, which cannot be kept: only numbers, texts, bytes and times can"
        )
    return {"dtype": value.dtype.str, "shape": list(value.shape), "value": bytes_text(value.tobytes())}


def _read_array(stored: Mapping[str, Any]) -> Any:
    import numpy

    name = text_of(stored["dtype"])
    if not _DTYPE.fullmatch(name):
        raise RefusedError(
            f"is damaged: it is an array of {name:.40}, and arrays of objects are not read",
            CorruptCheckpointError,
        )
    dtype = numpy.dtype(name)
    return numpy.frombuffer(text_bytes(stored["value"]), dtype).reshape(stored["shape"]).copy()

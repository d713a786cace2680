"""JSON in and out: strict, exact, and the same on every database.

`encode` refuses what JSON cannot hold, and names its path: NaN, bytes, sets, objects, keys that are no
text. Tuples are written as lists; everything else comes back as it went in.

Databases with a JSON type of their own change some values: jsonb turns 1e22 into an integer and -0.0 into
0, MySQL loses integers past 64 bits, Oracle makes 1.0 an integer, none of them keeps NUL. Their engines declare
a `Dialect`, and `to_native` replaces exactly those values by a tag, `{"$locus:float": "1e+22"}`. A dict in the user's
data that looks like a tag is wrapped in one, so the two are never confused.

Where text comes back byte for byte, it is stored with a checksum: of the texts as they are kept, and of the numbers
that say where they belong. What an older version has stored has none, and is accepted.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final
from zlib import crc32

from pydantic_core import from_json, to_json

from locus.encryption.data_key import MARK
from locus.errors import CorruptCheckpointError, EncryptionKeyError, SerializationError

_LONGEST_NUMBER_READ = 4300
"""In digits. Python neither writes nor reads longer integers, unless a program asks for it."""

MAX_DEPTH = 90
"""MySQL keeps 100 levels; some are needed for what a value is wrapped in."""

_NEVER_ODD = frozenset({str, int, bool, type(None)})
"""Types whose values JSON has, but for lone surrogates and very long integers. A float may be NaN or infinite."""
_TEXT = frozenset({str})
# As tuples, because `list | tuple` makes a new object each time, and this runs for every value of every message.
_LISTS = (list, tuple)
_PLAIN = (str, int)


def _parse(text: str | bytes) -> Any:
    try:
        return json.loads(text)
    except RecursionError:
        raise ValueError("JSON is nested too deeply") from None


parse: Callable[[str | bytes], Any] = from_json if from_json('"\\u00e9"') == "\u00e9" else _parse
"""Pydantic's parser takes half as long as the standard library's. Old ones misread escapes: not these."""


_write_sorted: Callable[[Any], str] = json.JSONEncoder(
    ensure_ascii=False, allow_nan=False, separators=(",", ":"), sort_keys=True
).encode


def path_text(path: tuple[str | int, ...]) -> str:
    """`messages[3].metadata.x`"""
    text = ""
    for step in path:
        if isinstance(step, int):
            text += f"[{step}]"
        elif step.isidentifier():
            text += f".{step}" if text else step
        else:
            text += f"[{step!r}]"
    return text


def check(value: Any, path: tuple[str | int, ...] = (), depth: int = MAX_DEPTH) -> None:
    """Raise `SerializationError` if the value has a shape, a key or a type that JSON does not have."""
    if type(value) not in _NEVER_ODD and not _keepable(value, depth):
        _explain(value, path, depth)


def encode(value: Any, path: tuple[str | int, ...] = (), *, sort_keys: bool = False, depth: int = MAX_DEPTH) -> str:
    """The value as compact JSON text. `path` is where it stands in the state, for the error."""
    if type(value) not in _NEVER_ODD and not _keepable(value, depth):
        _explain(value, path, depth)
    try:
        # Pydantic's writer is four times as fast as the standard library's.
        text = _write_sorted(value) if sort_keys else to_json(value, inf_nan_mode="constants").decode()
        if sort_keys and not text.isascii():
            text.encode()
    except (TypeError, ValueError, RecursionError) as error:
        _explain(value, path, depth)
        raise SerializationError(f"{path_text(path) or 'the value'} cannot be written: {error}") from error
    if _may_hold_long_number(text):
        _explain(value, path, depth)  # raises, unless it stands in a text
    return text


def encode_each(
    values: Sequence[Any], path: tuple[str | int, ...], first: int = 0, *, sort_keys: bool = False
) -> list[str]:
    """The texts of neighbouring items of the list at `path`, as `encode` writes each; the first has the index `first`.

    They are checked together. Each goes alone only if one of them has to be refused, or looked at.
    """
    if _keepable(values, MAX_DEPTH + 1):
        try:
            if sort_keys:
                texts = [_write_sorted(value) for value in values]
            else:
                texts = [to_json(value, inf_nan_mode="constants").decode() for value in values]
            together = "".join(texts)
            if sort_keys and not together.isascii():
                together.encode()
        except (TypeError, ValueError, RecursionError):
            texts, together = [], ""
        if together and not (len(together) > _LONGEST_NUMBER_READ and any(map(_may_hold_long_number, texts))):
            return texts
    return [encode(value, (*path, at), sort_keys=sort_keys) for at, value in enumerate(values, first)]


def _may_hold_long_number(text: str) -> bool:
    return len(text) > _LONGEST_NUMBER_READ and has_digits(text, _LONGEST_NUMBER_READ + 1)


def canonical(value: Any, path: tuple[str | int, ...] = ()) -> str:
    """The JSON of a value, with keys sorted: equal values have equal texts."""
    return encode(value, path, sort_keys=True)


def encode_trusted(value: Any) -> str:
    """The JSON of a value that Locus itself has made, and that needs no check."""
    return to_json(value, inf_nan_mode="constants").decode()


def decode(text: str | bytes) -> Any:
    """The value of a stored text; damage is a `CorruptCheckpointError`."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        where = f" at character {error.pos}" if isinstance(error, json.JSONDecodeError) else ""
        raise CorruptCheckpointError(f"stored JSON cannot be read ({type(error).__name__}{where})") from error


SEALED: Final = "~"
"""The key of a stored head, and of stored metadata, under which a store with keys has put the sealed text."""
SEALED_BEGINNING: Final = f'"{SEALED}":"{MARK}'
"""Stands in every sealed head. A head that is saved in clear must not have it."""


def decode_head(head: str) -> Any:
    """The value of a stored head; raises `EncryptionKeyError` if it is sealed, and whoever reads it has no keys."""
    value = decode(head)
    if isinstance(value, dict) and SEALED in value:
        check_open(value)
    return value


def check_open(head: Mapping[str, Any]) -> None:
    """Raise if a decoded head, which has the key `SEALED`, is that of a sealed checkpoint."""
    if is_sealed(head[SEALED]):
        raise EncryptionKeyError(
            "this is sealed: open the store with its keys (keys=Keyring.from_file(…), or LOCUS_KEYS)"
        )


def looks_sealed() -> SerializationError:
    """The error for a head that is saved in clear and would be taken for a sealed one."""
    return SerializationError(f"under the key {SEALED!r} no text may begin with {MARK!r}: that marks what is sealed")


def is_sealed(value: object) -> bool:
    """Whether a stored value has the form of a sealed text."""
    return isinstance(value, str) and value.startswith(MARK)


def _keepable(value: Any, depth: int) -> bool:
    """A quick check: True if a value can surely be written. Long integers and surrogates are checked later."""
    if isinstance(value, dict):
        items: Iterable[Any] = value.values()
        if not _TEXT.issuperset(map(type, value)) and not all(isinstance(key, str) for key in value):
            return False
    elif isinstance(value, _LISTS):
        items = value
    elif isinstance(value, float):
        return math.isfinite(value)
    else:
        return isinstance(value, _PLAIN)
    if depth <= 0:
        return False
    if _NEVER_ODD.issuperset(map(type, items)):  # in C, which most values never leave
        return True
    for item in items:  # not `all`: a generator takes half as long again
        kind = type(item)
        if kind is float:
            if not math.isfinite(item):
                return False
        elif kind not in _NEVER_ODD and not _keepable(item, depth - 1):
            return False
    return True


def _explain(value: Any, path: tuple[str | int, ...], depth: int = MAX_DEPTH) -> None:
    """Raise the error for the first thing in `value` that cannot be kept, if there is one."""
    here = path_text(path) or "the value"
    if depth <= 0 and isinstance(value, dict | list | tuple):
        raise SerializationError(f"{here} is nested more than {MAX_DEPTH} levels deep", path_text(path))
    if isinstance(value, dict):
        for key, item in value.items():
            if not isinstance(key, str):
                raise SerializationError(
                    f"{here} has a key of type {type(key).__name__} ({key!r:.40}): JSON keys are text",
                    path_text(path),
                )
            _explain(key, path)
            _explain(item, (*path, key), depth - 1)
    elif isinstance(value, list | tuple):
        for index, item in enumerate(value):
            _explain(item, (*path, index), depth - 1)
    elif isinstance(value, str):
        try:
            value.encode()  # in C: a tool may answer with millions of digits, which all come here
        except UnicodeEncodeError:
            raise SerializationError(
                f"{here} holds a lone surrogate, which is no Unicode text", path_text(path)
            ) from None
    elif isinstance(value, float):
        if not math.isfinite(value):
            raise SerializationError(f"{here} is {value}, which JSON does not have", path_text(path))
    elif isinstance(value, int):
        try:
            str(value)
        except ValueError as error:
            raise SerializationError(f"{here} is an integer too long to write: {error}", path_text(path)) from error
    elif value is not None:
        raise SerializationError(
            f"{here} is of type {type(value).__name__}, which JSON cannot hold: "
            "convert it to text, a number, a list or a dict first",
            path_text(path),
        )


@dataclass(frozen=True)
class Dialect:
    """The JSON values that a database's own JSON type keeps. By default all of them: the text is stored as text."""

    exact: bool = True
    nul: bool = True
    negative_zero: bool = True
    float_exponents: bool = True
    integer_bits: int | None = None
    integer_digits: int | None = None
    fractions_only: bool = False
    """Numbers are decimals of limited size: of the floats, those with a plain fraction come back as they were."""
    longest_key: int | None = None
    """In bytes; a limit of that kind goes along with doubts about the empty key."""


EXACT = Dialect()

TAG = "$locus:"
"""What tags begin with. A text without it is the same in a database."""
# All digits are made one, and both signs, so that looking for a plain piece of text finds a number of any value.
_SHAPES = bytes.maketrans(b"0123456789+-", b"0000000000++")
_BEFORE_NUMBER = b"[:, \n"
_LONGEST_NUMBER = 64
"""Longer ones are taken for whatever one is looking for."""


def _may_change(text: str, dialect: Dialect) -> bool:
    """Whether a text has to be looked at more closely. A fast check, because every save calls it."""
    # One character is found many times as fast as several.
    if "$" in text and TAG in text:
        return True
    if not dialect.nul and "\\" in text and "\\u0000" in text:
        return True
    if not dialect.negative_zero and "-" in text and "-0.0" in text:
        return True
    if not dialect.float_exponents and _has_exponent(text):
        return True
    if dialect.fractions_only and (_has_whole_float(text) or _has_exponent(text)):
        return True
    if dialect.longest_key is not None and _has_odd_key(text, dialect.longest_key):
        return True
    limited = dialect.integer_bits is not None or dialect.integer_digits is not None
    return limited and has_digits(text, 15)


def has_digits(text: str, count: int) -> bool:
    """Whether a text has so many digits in a row."""
    return b"0" * count in text.encode().translate(_SHAPES)


def _has_exponent(text: str) -> bool:
    """Whether a text may have a number with an exponent. In names, too, a digit may stand before an e."""
    shape = text.encode().translate(_SHAPES)
    at = shape.find(b"0e")
    while at >= 0:
        if shape[at + 2 : at + 3] in (b"0", b"+"):
            before = shape[max(0, at - _LONGEST_NUMBER) : at].rstrip(b"0.").removesuffix(b"+")
            if not before or before[-1] in _BEFORE_NUMBER:
                return True
        at = shape.find(b"0e", at + 2)
    return False


def _has_whole_float(text: str) -> bool:
    """Whether a text may have a float without a fraction: a `.0` between a digit and something else."""
    at = text.find(".0")
    while at >= 0:
        if text[at - 1].isdigit() and not text[at + 2 : at + 3].isdigit():
            return True
        at = text.find(".0", at + 1)
    return False


def _has_odd_key(text: str, longest: int) -> bool:
    """Whether a text may have a key that is empty, or longer than so many bytes."""
    if '"":' in text:
        return True
    at = text.find('":')
    while at >= 0:
        if text.rfind('"', max(0, at - longest // 4), at) < 0:
            return True
        at = text.find('":', at + 2)
    return False


def to_native(text: str, dialect: Dialect) -> str:
    """JSON text in which every value that the database would change is tagged."""
    if dialect.exact or not _may_change(text, dialect):
        return text
    return encode_trusted(_tagged(json.loads(text), dialect))


def from_native(text: str) -> str:
    """The JSON text that `to_native` was given, up to the order of keys."""
    if TAG not in text:
        return text
    try:
        return encode_trusted(_untagged(decode(text)))
    except (ValueError, RecursionError) as error:  # a lone surrogate, or nested deeper than anything that is written
        raise CorruptCheckpointError(f"stored JSON cannot be read ({type(error).__name__})") from None


def _tagged(value: Any, dialect: Dialect) -> Any:
    if isinstance(value, dict):
        if not all(_keeps_key(key, dialect) for key in value) or (
            len(value) == 1 and next(iter(value)).startswith(TAG)
        ):
            pairs = [[_tagged(key, dialect), _tagged(item, dialect)] for key, item in value.items()]
            return {f"{TAG}dict": pairs}
        return {key: _tagged(item, dialect) for key, item in value.items()}
    if isinstance(value, list):
        return [_tagged(item, dialect) for item in value]
    if isinstance(value, str):
        # Escaped once more, the NUL is six ordinary characters.
        return {f"{TAG}str": encode_trusted(value)} if not dialect.nul and "\0" in value else value
    if isinstance(value, float):
        return value if _keeps_float(value, dialect) else {f"{TAG}float": repr(value)}
    if isinstance(value, int) and not isinstance(value, bool) and not _keeps_int(value, dialect):
        return {f"{TAG}int": str(value)}
    return value


def _keeps_key(key: str, dialect: Dialect) -> bool:
    if not dialect.nul and "\0" in key:
        return False
    return dialect.longest_key is None or 0 < len(key.encode()) <= dialect.longest_key


def _keeps_float(value: float, dialect: Dialect) -> bool:
    if dialect.fractions_only:
        return not value.is_integer() and "e" not in repr(value)
    if value == 0 and math.copysign(1, value) < 0:
        return dialect.negative_zero
    return dialect.float_exponents or not ("e" in repr(value) and value.is_integer())


def _keeps_int(value: int, dialect: Dialect) -> bool:
    if dialect.integer_bits is not None and value.bit_length() >= dialect.integer_bits:
        return False
    return dialect.integer_digits is None or len(str(abs(value))) <= dialect.integer_digits


def _untagged_float(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError("JSON has no such number")
    return value


def _untagged_text(text: str) -> str:
    value = json.loads(text)
    if not isinstance(value, str):
        raise TypeError("no text")
    return value


def _untagged_dict(pairs: list[list[Any]]) -> dict[str, Any]:
    value = {_untagged(key): _untagged(item) for key, item in pairs}
    if not _TEXT.issuperset(map(type, value)):
        raise TypeError("a key is no text")
    return value


_UNTAG: dict[str, Callable[[Any], Any]] = {
    f"{TAG}float": _untagged_float,
    f"{TAG}int": int,
    f"{TAG}str": _untagged_text,
    f"{TAG}dict": _untagged_dict,
}


def _untagged(value: Any) -> Any:
    if isinstance(value, list):
        return [_untagged(item) for item in value]
    if not isinstance(value, dict):
        return value
    if len(value) == 1:
        key, item = next(iter(value.items()))
        if key.startswith(TAG):
            try:
                return _UNTAG[key](item)
            except (KeyError, TypeError, ValueError, OverflowError):
                raise CorruptCheckpointError("stored JSON has a tag that is not understood") from None
    return {key: _untagged(item) for key, item in value.items()}


def texts_in(value: Any) -> list[str]:
    """Every text in a JSON value, except for keys, and for what is sealed."""
    if isinstance(value, str):
        return [value]
    texts: list[str] = []
    _add_texts(value, texts)
    return texts


def _add_texts(value: Any, texts: list[str]) -> None:
    for item in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        if isinstance(item, str):
            if not item.startswith(MARK):
                texts.append(item)
        elif item:
            _add_texts(item, texts)


def checksum(*parts: object) -> int:
    """The CRC-32 of these texts and numbers."""
    return crc32("\n".join(map(str, parts)).encode())


def run_checksum(branch: str, number: int, start: int, length: int, items: str, before: str | None) -> int:
    """The checksum of a run. A load passes here for every run, and this is twice as fast as joining the parts."""
    return crc32(f"{branch}\n{number}\n{start}\n{length}\n{before}\n{items}".encode())


def check_sum(stored: object, what: str, *parts: object) -> None:
    """Refuse texts and numbers that do not fit their checksum. None means that none was made."""
    if stored is not None and stored != checksum(*parts):
        raise CorruptCheckpointError(f"{what} does not fit its checksum: the stored data was changed or is damaged")

"""Python values as plain JSON with explicit tags, and back.

Values that JSON has are written as they are, so that a database can query them. Anything else is an object with a
`$type`:

    {"$type": "datetime", "value": "2026-07-01T12:00:00+00:00"}
    {"$type": "HumanMessage", "content": "Hello", "id": "7f…"}
    {"$type": "my_app.models.Ticket", "number": 7}

A dict of the user that has such a key, or keys that are not text, is written as pairs, so it cannot be mistaken for
such an object. Tags are looked up in a table of the types that were added: those of `standard_types` and `classes`, and
those that the user allows. Everything else is refused when it is saved and when it is loaded. Nothing is imported by
name, and nothing else is called.

A stored row may come from anyone who can write to the database. So a reader takes values of the expected types only,
and the time and memory that it needs follow from the length of the row, not from a number in it.
"""

from __future__ import annotations

import math
from base64 import b64decode, b64encode
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from operator import eq
from typing import Any

from locus.errors import ConfigurationError, CorruptCheckpointError, SerializationError
from locus.threads import DecodedList
from locus.threads.json import canonical, path_text

TAG = "$type"

WriteValue = Callable[[Any], dict[str, Any]]
"""Returns the object for a value, without its tag."""
ReadValue = Callable[[Mapping[str, Any]], Any]
"""Returns the value of an object."""

MOST_COLLISIONS = 1_000
"""How many keys of a set or dict may have the same hash: each is compared with all others, and anyone can find more
integers of one hash. A class of the user may have a poor `__hash__`, so some are fine."""

_PLAIN = frozenset({str, int, bool, type(None)})
_ALWAYS = _PLAIN | {float, list, dict}
_TEXT = frozenset({str})


MOST_NAMED = 20
"""How many types an error names."""


class NotAllowedError(SerializationError):
    """A value is of a type that is not allowed. `types` has the names of all such types that have been found."""

    def __init__(self, where: str, types: Sequence[str], *, loading: bool) -> None:
        first, *others = [f"{name:.200}" for name in types[:MOST_NAMED]]
        it, one = ("them", "ones that are") if others else ("it", "one that is")
        neither = f" Neither {'are' if others[1:] else 'is'} {', '.join(others)}." if others else ""
        # Functions, generators and the like are no data, and those built-in types that are need no permission.
        allowable = [name for name in (first, *others) if not name.startswith("builtins.")]
        shown = ", ".join(name.rpartition(".")[2] for name in allowable)
        if loading:
            what = "they are classes" if others else "it is a class"
            short = first.rpartition(".")[2]
            text = (
                f"here, so it was not loaded.{neither} If {what} of yours and the store is to be trusted, allow {it} "
                "with LocusSaver(…, allowed_types=[…]). The stored name must be that of the class; a class that has "
                f"moved or was renamed is given with its stored name: allowed_types={{{first!r}: {short}}}"
            )
        else:
            advice = f"Allow {it} with LocusSaver(…, allowed_types=[{shown}]), or convert" if shown else "Convert"
            text = f"in a checkpoint, so nothing was written.{neither} {advice} {it} to {one}"
        super().__init__(f"{where or 'the value'} is of type {first}, which is not allowed {text}", where)
        self.types = tuple(types)
        self._loading = loading

    def naming(self, types: Iterable[str]) -> NotAllowedError:
        """This error, extended by more types, so that a user learns all of them at once."""
        return NotAllowedError(self.path, [*dict.fromkeys([*self.types, *types])], loading=self._loading)


class RefusedError(Exception):
    """A value cannot be written or read. Each container that it lies in adds its key to `path` as the error passes."""

    def __init__(self, reason: str, kind: type[Exception] = SerializationError) -> None:
        super().__init__(reason)
        self.reason = reason
        self.kind = kind
        self.path: list[str | int] = []

    def inside(self, step: str | int) -> RefusedError:
        self.path.append(step)
        return self

    def error(self, path: tuple[str | int, ...]) -> Exception:
        where = path_text((*path, *reversed(self.path)))
        text = f"{where or 'the value'} {self.reason}"
        return SerializationError(text, where) if self.kind is SerializationError else self.kind(text)


class RefusedTypeError(RefusedError):
    """A value is of a type that is not allowed."""

    def __init__(self, name: str, *, loading: bool) -> None:
        super().__init__(f"is of type {name:.200}, which is not allowed")
        self._name = name
        self._loading = loading

    def error(self, path: tuple[str | int, ...]) -> Exception:
        return NotAllowedError(path_text((*path, *reversed(self.path))), [self._name], loading=self._loading)


class TypedCodec:
    """Writes values as JSON and reads them back: JSON's own types, and those that were added."""

    def __init__(self) -> None:
        self._writers: dict[type, tuple[str, WriteValue]] = {}
        self._readers: dict[str, ReadValue] = {"dict": self._read_pairs, "float": _read_float}
        self._other_types: list[tuple[Callable[[Any], str | None], WriteValue]] = []
        self._declared: dict[str, type] = {}
        self._aliases: dict[str, str] = {}
        """By another name under which instances of a class are stored: the tag of the class."""
        self.changes = 0
        """How often types were added: the same text may be another value since."""

    def add(self, name: str, types: Iterable[type], write: WriteValue, read: ReadValue) -> None:
        """Write values of exactly these types with this tag, and read values with this tag."""
        if name in self._readers:
            raise ConfigurationError(f"two of the allowed types have the name {name!r}: rename one of them")
        self._readers[name] = read
        self.changes += 1
        for kind in types:
            self._writers[kind] = (name, write)

    def add_declared(self, name: str, kind: type, write: WriteValue, read: ReadValue) -> None:
        """Add a class that a graph declares. A later one of the same name, as of a notebook's cell, takes its place."""
        if name in self._readers and name not in self._declared:
            return
        self._writers.pop(self._declared.get(name, kind), None)
        self._declared[name] = kind
        self.changes += 1
        self._readers[name] = read
        self._writers[kind] = (name, write)

    def add_alias(self, name: str, kind: type) -> None:
        """Also read values with this tag as instances of a class that was added. They are written with its own tag."""
        if name in self._readers:
            raise ConfigurationError(f"two of the allowed types have the name {name!r:.200}: rename one of them")
        if kind not in self._writers:
            raise ConfigurationError(f"{class_name(kind)} is stored without a name, and needs no other")
        self._aliases[name] = self._writers[kind][0]
        self.changes += 1

    def reads(self, name: str) -> bool:
        return self._reader(name) is not None

    def _reader(self, name: str) -> ReadValue | None:
        found = self._readers.get(name)
        return self._readers.get(self._aliases.get(name, "")) if found is None else found

    def declares(self, name: str) -> bool:
        return name in self._declared

    @property
    def types(self) -> list[type]:
        """The types that were added."""
        return list(self._writers)

    def unknown(self, value: Any) -> Iterator[str]:
        """The tags in a stored value that this codec does not know."""
        waiting = [value]
        while waiting:
            found = waiting.pop()
            if isinstance(found, dict):
                if TAG in found and not (isinstance(found[TAG], str) and self.reads(found[TAG])):
                    yield str(found[TAG])
                waiting += found.values()
            elif isinstance(found, list):
                waiting += found

    def add_found(self, name: Callable[[Any], str | None], write: WriteValue) -> None:
        """Also write values of other types, if `name` returns a tag for them."""
        self._other_types.append((name, write))

    def knows(self, kind: type) -> bool:
        return kind in self._writers or kind in _ALWAYS

    def encode(self, value: Any, path: tuple[str | int, ...] = ()) -> Any:
        """The value as JSON. `path` is its place, for errors."""
        try:
            return self.write(value)
        except RefusedError as refused:
            raise refused.error(path) from None
        except RecursionError as error:
            raise SerializationError(f"{path_text(path)} is nested too deep, or holds itself") from error

    def decode(self, value: Any, path: tuple[str | int, ...] = ()) -> Any:
        """The value that `encode` has written."""
        try:
            return self.read(value)
        except RefusedError as refused:
            raise refused.error(path) from refused.__cause__
        except RecursionError as error:
            raise CorruptCheckpointError(f"{path_text(path)} is nested too deep to be read") from error

    def write(self, value: Any) -> Any:
        kind = type(value)
        if kind in _PLAIN:
            return value
        if kind is list:
            return self.write_all(value)
        if kind is dict:
            return self._write_dict(value)
        if kind is float:
            return value if math.isfinite(value) else {TAG: "float", "value": repr(value)}
        found = self._writers.get(kind)
        if found is None:
            return self._write_other(value)
        name, write = found
        return {TAG: name, **write(value)}

    def write_all(self, values: Iterable[Any]) -> list[Any]:
        written: list[Any] = []
        try:
            for value in values:
                written.append(self.write(value))
        except RefusedError as refused:
            raise refused.inside(len(written)) from refused.__cause__
        return written

    def write_fields(self, fields: Mapping[str, Any]) -> dict[str, Any]:
        written: dict[str, Any] = {}
        name = ""
        try:
            for name, value in fields.items():
                written[name] = value if type(value) is str else self.write(value)
        except RefusedError as refused:
            raise refused.inside(name) from refused.__cause__
        return written

    def _write_dict(self, value: dict[Any, Any]) -> dict[str, Any]:
        if TAG not in value and _TEXT.issuperset(map(type, value)):
            return self.write_fields(value)
        return {TAG: "dict", **self.write_pairs(value)}

    def write_pairs(self, value: Mapping[Any, Any]) -> dict[str, Any]:
        """A dict with keys of any type, as pairs."""
        return {"items": [[self.write(key), self.write(item)] for key, item in value.items()]}

    def _write_other(self, value: Any) -> Any:
        if isinstance(value, BaseException):
            # As LangGraph does it: an exception is stored as text, and never recreated.
            return repr(value)
        for naming, write in self._other_types:
            name = naming(value)
            if name is not None:
                return {TAG: name, **write(value)}
        raise RefusedTypeError(class_name(type(value)), loading=False)

    def read(self, value: Any) -> Any:
        if isinstance(value, dict):
            if TAG in value:
                return self._read_tagged(value)
            return self.read_fields(value)
        if isinstance(value, list):
            return self.read_all(value)
        return value

    def read_all(self, values: Iterable[Any]) -> list[Any]:
        if type(values) is DecodedList:
            return list(values)
        if type(values) is not list:
            raise TypeError(f"a list was expected, not {type(values).__name__}")
        found: list[Any] = []
        try:
            for value in values:
                found.append(self.read(value) if isinstance(value, dict | list) else value)
        except RefusedError as refused:
            raise refused.inside(len(found)) from refused.__cause__
        return found

    def read_fields(self, fields: Mapping[str, Any]) -> dict[str, Any]:
        values: dict[str, Any] = {}
        name = ""
        try:
            for name, value in fields.items():
                values[name] = self.read(value) if isinstance(value, dict | list) else value
        except RefusedError as refused:
            raise refused.inside(name) from refused.__cause__
        return values

    def _read_tagged(self, value: Mapping[str, Any]) -> Any:
        name = value[TAG]
        read = self._reader(name) if isinstance(name, str) else None
        if read is None:
            raise RefusedTypeError(str(name), loading=True)
        try:
            return read(value)
        except (RefusedError, RecursionError):
            raise
        except Exception as error:  # whatever the type finds wrong with it
            raise RefusedError(
                # The text of the error may quote what is stored.
                f"is damaged: it cannot be read as {name} ({type(error).__name__})",
                CorruptCheckpointError,
            ) from error

    def read_pairs(self, value: Mapping[str, Any]) -> list[tuple[Any, Any]]:
        pairs = [(self.read(key), self.read(item)) for key, item in value["items"]]
        check_hashes([key for key, _ in pairs])
        return pairs

    def read_keys(self, values: Any) -> list[Any]:
        """Read the stored items of a set."""
        found = self.read_all(values)
        check_hashes(found)
        return found

    def _read_pairs(self, value: Mapping[str, Any]) -> dict[Any, Any]:
        return dict(self.read_pairs(value))

    def ordered(self, values: Iterable[Any]) -> list[Any]:
        """The items of a set, in an order that is the same in every process."""
        return sorted(self.write_all(values), key=canonical)


def check_hashes(keys: list[Any]) -> None:
    """Refuse keys of which so many have the same hash that a set or dict of them takes quadratic time."""
    if len(keys) <= MOST_COLLISIONS:
        return
    hashes = sorted(map(hash, keys))
    if any(map(eq, hashes, islice(hashes, MOST_COLLISIONS, None))):
        raise ValueError(f"more than {MOST_COLLISIONS} keys have the same hash")


def _read_float(stored: Mapping[str, Any]) -> float:
    return float(text_of(stored["value"]))


def text_of(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(f"text was expected, not {type(value).__name__}")
    return value


def class_name(kind: type) -> str:
    return f"{kind.__module__}.{kind.__qualname__}"


def missing_field(kind: type, names: str) -> RefusedError:
    return RefusedError(f"is a {class_name(kind)} that was kept without {names}: give the new field a default")


def bytes_text(value: bytes | bytearray | memoryview) -> str:
    return b64encode(value).decode()


def text_bytes(text: str) -> bytes:
    return b64decode(text, validate=True)

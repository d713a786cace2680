"""Makes checkpointers from names: `"memory"`, `"file:./dir"`, `"sqlite:agents.db"`, `"sqlite:///agents.db"`.

A built-in backend has a line in `_BUILT_IN` for each of its schemes. `register_checkpointer` adds others, and so does a
package that declares an entry point in the group `locus.checkpointers`. The entry point has the name of the backend. It
leads to a function `factory(location, **options)`, where `location` is the text after the colon, or "". A factory for
locus-sdk, `factory(config_hint=None, **options)`, works as well.

`as_checkpointer` accepts checkpointers, storage backends, names and URLs, and returns a checkpointer.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from pathlib import PurePath
from typing import Any, TypeVar, cast
from urllib.parse import quote

from locus.encryption.keyring import Keyring
from locus.errors import ConfigurationError
from locus.hints import did_you_mean
from locus.memory.checkpointer import BaseCheckpointer, Checkpointer, StoreVerbs
from locus.memory.runtime.url import path_of as path_of
from locus.memory.runtime.url import refuse_address

ENTRY_POINTS = "locus.checkpointers"

Factory = Callable[..., BaseCheckpointer]
V = TypeVar("V", bound=StoreVerbs)

_BUILT_IN = {
    "http": "locus.memory.backends.http:from_http",
    "https": "locus.memory.backends.http:from_https",
    "memory": "locus.memory.backends.memory:from_location",
    "file": "locus.memory.backends.file:from_location",
    "sqlite": "locus.memory.backends.sqlite:from_location",
    "opensearch": "locus.memory.backends.opensearch:from_location",
    "opensearchs": "locus.memory.backends.opensearch:from_secure_location",
    "postgresql": "locus.memory.backends.postgresql:from_location",
    "postgres": "locus.memory.backends.postgresql:from_location",
    "mysql": "locus.memory.backends.mysql:from_location",
    "oci": "locus.memory.backends.oci_bucket:from_location",
    "oracle": "locus.memory.backends.oracle:from_location",
    "s3": "locus.memory.backends.s3:from_location",
    "redis": "locus.memory.backends.redis:from_redis",
    "rediss": "locus.memory.backends.redis:from_rediss",
    "valkey": "locus.memory.backends.redis:from_valkey",
    "valkeys": "locus.memory.backends.redis:from_valkeys",
    "redis+sentinel": "locus.memory.backends.redis:from_redis_sentinel",
    "rediss+sentinel": "locus.memory.backends.redis:from_rediss_sentinel",
    "valkey+sentinel": "locus.memory.backends.redis:from_valkey_sentinel",
    "valkeys+sentinel": "locus.memory.backends.redis:from_valkeys_sentinel",
}
_DATABASE_ENDINGS = (".db", ".sqlite", ".sqlite3")
_FALLBACK = re.compile(r"([?&])fallback=none(&|$)")
_registered: dict[str, Factory] = {}


def register_checkpointer(name: str, factory: Factory) -> None:
    """Make `get_checkpointer(name)` and `get_checkpointer(name + ":location")` call `factory`.

    The factory is called as `factory(location, **options)`. If it has a parameter `config_hint`, or only `**options`,
    it is called as `factory(config_hint=location, **options)`. A name that is in use is replaced.
    """
    if not isinstance(name, str) or not name or ":" in name or name != name.strip():
        raise ConfigurationError(f"a backend name must be text without a colon, got {name!r}")
    if not callable(factory):
        raise ConfigurationError(f"the factory for {name!r} is not callable: {factory!r:.80}")
    _registered[name] = factory


def list_checkpointers() -> list[str]:
    """The names of all backends: built-in, registered, and from entry points."""
    return sorted({*_BUILT_IN, *_registered, *_plugins()})


def get_checkpointer(checkpointer_string: str | PurePath, **options: Any) -> Checkpointer:
    """Make the checkpointer that a name, a name with a location, or a URL stands for; or a `Path` of an SQLite file.

    Options are those of the backend: `get_checkpointer("sqlite:agents.db", durability="normal")`. All backends of Locus
    return a `Checkpointer`. A registered factory may return any `BaseCheckpointer`; its users know which.
    `fallback="none"`, or `?fallback=none` in a URL, is for all of them: a new store may begin where another framework
    keeps its threads, which otherwise raises.

    `keys` is a `Keyring` (see `locus.encryption`), with which everything is sealed before it is stored. Without it, the
    keys are those of the file that the variable `LOCUS_KEYS` names.
    """
    if isinstance(checkpointer_string, PurePath):
        checkpointer_string = _url_of(checkpointer_string)
    if not isinstance(checkpointer_string, str):
        raise ConfigurationError(f"a checkpointer must be a name or URL, got {type(checkpointer_string).__name__}")
    url, in_url = _FALLBACK.subn(lambda found: found[1] if found[2] else "", checkpointer_string)
    begins_beside = options.pop("fallback", None) if "fallback" in options else in_url or None
    if begins_beside not in (None, "none", 1):
        raise ConfigurationError('fallback of a store is "none"; LocusSaver(…, fallback=saver) takes one of LangGraph')
    keyring = checked_keyring(options.pop("keys", None))
    name, _, location = url.partition(":")
    opened = _call(_factory(name, url), location, options)
    if keyring is not None:
        if not isinstance(opened, StoreVerbs):
            raise ConfigurationError(f"{name} makes no checkpointer of Locus, which alone can take keys")
        sealed_checkpointer(opened, keyring)
    if begins_beside and isinstance(opened, StoreVerbs):
        opened.store.engine.begins_beside = True
    return cast(Checkpointer, opened)


def checked_keyring(keys: object) -> Keyring | None:
    """The keyring that a caller gave, or else that of the environment."""
    if keys is None:
        return Keyring.from_environment()
    if not isinstance(keys, Keyring):
        raise ConfigurationError(f"keys is a Keyring of locus.encryption, got {type(keys).__name__}")
    return keys


def sealed_checkpointer(handle: V, keyring: Keyring) -> V:
    """Let a handle that has not been used yet seal whatever it keeps."""
    from locus.memory.sealed.engine import sealed
    from locus.memory.store import CheckpointStore

    store = handle.store
    megabytes = store.cache.max_bytes / 1024**2
    handle.store = CheckpointStore(sealed(store.engine, keyring), ttl_seconds=store.ttl_seconds, cache_mb=megabytes)
    return handle


def _url_of(path: PurePath) -> str:
    """The URL of an SQLite file, by the ending of its name. Another path may be meant as a file, or as a folder."""
    refuse_address(path, "a path")
    if path.suffix.lower() not in _DATABASE_ENDINGS:
        raise ConfigurationError(
            f"a path alone does not say what is kept there: write 'sqlite:{path!s:.200}' for an SQLite file, or "
            f"'file:{path!s:.200}' for a folder of files"
        )
    return f"sqlite:////{quote(path.as_posix().lstrip('/'))}" if path.is_absolute() else f"sqlite:{path}"


def _call(factory: Factory, location: str, options: dict[str, Any]) -> BaseCheckpointer:
    """Call a factory for Locus, or one for locus-sdk, which takes the location as the keyword `config_hint`."""
    try:
        parameters = inspect.signature(factory).parameters
    except (TypeError, ValueError):  # a class of an extension, for instance, that has no signature
        return factory(location, **options)
    kinds = {parameter.kind for parameter in parameters.values()}
    if "config_hint" in parameters or kinds == {inspect.Parameter.VAR_KEYWORD}:
        return factory(**options, **({"config_hint": location} if location else {}))
    return factory(location, **options)


def _factory(name: str, given: str) -> Factory:
    if name in _registered:
        return _registered[name]
    if name in _BUILT_IN:
        module, _, attribute = _BUILT_IN[name].partition(":")
        built_in: Factory = getattr(import_module(module), attribute)
        return built_in
    plugin = _plugins().get(name)
    if plugin is not None:
        loaded: Factory = plugin.load()
        return loaded
    known = list_checkpointers()
    # Before an @ there may be a password, or a token, of a URL whose scheme was forgotten.
    shown = f"…@{name.rpartition('@')[2]}" if "@" in name else name
    raise ConfigurationError(
        f"unknown checkpointer {shown!r:.80}{_meant(name, given, known)}; known are: {', '.join(known)}. "
        "Add your own with register_checkpointer()"
    )


def _meant(name: str, given: str, known: list[str]) -> str:
    """A suggestion for an unknown name, such as a similar one. It never shows text that may be a URL."""
    if given == ":memory:":
        return " (did you mean 'memory', or 'sqlite::memory:'?)"
    scheme, slashes, _ = given.partition("//")
    if slashes and scheme in known:  # without its colon
        return f" (did you mean '{scheme}://…'?)"
    if "@" in name:
        return ""
    if "@" in given or "://" in given or (":" in given and len(name) > 1):
        return did_you_mean(name, known)
    if given.partition("?")[0].lower().endswith(_DATABASE_ENDINGS):
        return f" (did you mean 'sqlite:{given:.200}'?)"
    if "/" in given or "\\" in given or given.startswith((".", "~")):
        return f" (did you mean 'file:{given:.200}', or 'sqlite:{given:.200}'?)"
    return did_you_mean(name, known)


def _plugins() -> dict[str, EntryPoint]:
    return {point.name: point for point in entry_points(group=ENTRY_POINTS)}


def as_checkpointer(given: Any) -> BaseCheckpointer:
    """Make a checkpointer of a storage backend, a name or a URL. A checkpointer is returned unchanged."""
    if isinstance(given, BaseCheckpointer):
        return given
    if isinstance(given, str | PurePath):
        return get_checkpointer(given)
    if given is None:
        raise ConfigurationError('pass a checkpointer: an object, or a URL such as "sqlite:agents.db"')
    from locus.memory.backends.adapters import StorageBackendAdapter  # brings the databases along

    return StorageBackendAdapter(given)

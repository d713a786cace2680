"""The ids of items: the path of a namespace and a key, as the id of a thread.

A path is a row of labels, `users/123/`, each followed by a slash. In a label, a tilde is written `~0` and a slash `~1`,
and `~2` stands before a label that begins with a character up to `!`. The key follows the path and a `!`; its tildes
are written `~0`. So `("a", "b")` and `("a/b",)` are two, everything below `("us",)` begins with `us/`, and ids sort by
their paths first and then by their keys.

A thread's id has 255 characters at most. A longer one is cut, and `~#` and a digest of all of it take the place of the
rest: no other id has these two characters. Its path and key are in the item itself.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from functools import lru_cache

from locus.errors import ConfigurationError, InvalidIdError
from locus.memory.model.ids import MAX_ID_LENGTH, check_text

Namespace = tuple[str, ...]

LONGEST = 1_024
"""The most bytes of a path, and of a key."""
_DIGEST = 64
PREFIX = MAX_ID_LENGTH - _DIGEST - 2
"""The number of characters that a cut id keeps."""


def checked_namespace(namespace: Iterable[str], what: str = "a namespace") -> Namespace:
    """Check a namespace: a tuple or list of texts."""
    if isinstance(namespace, str) or not isinstance(namespace, Iterable):
        raise ConfigurationError(f"{what} is a tuple of texts, such as ('users', '123'), got {namespace!r:.60}")
    labels = tuple(namespace)
    for label in labels:
        if not isinstance(label, str):
            raise InvalidIdError(f"a label of {what} is text, got {type(label).__name__}: {label!r:.40}")
    return labels


def path_of(namespace: Iterable[str], what: str = "a namespace") -> str:
    """The path of a namespace. It begins with the path of each of its parents."""
    return _measured(_joined(checked_namespace(namespace, what)), what)


def namespace_from(path: str) -> Namespace:
    """The namespace of a path, as `path_of` makes it. The slash at its end may be left out."""
    if not path:
        return ()
    return tuple(map(_unwritten, (path.removesuffix("/")).split("/")))


def checked_key(key: str) -> str:
    if not isinstance(key, str):
        raise InvalidIdError(f"a key is text, got {type(key).__name__}: {key!r:.40}")
    return _measured(key, "a key")


def item_id(namespace: Iterable[str], key: str) -> str:
    """The id of the thread that an item is."""
    name = whole_name(namespace, key)
    if len(name) <= MAX_ID_LENGTH:
        return name
    return f"{name[:PREFIX]}~#{hashlib.sha256(name.encode()).hexdigest()}"


def place_of(name: str) -> tuple[Namespace, str] | None:
    """The namespace and the key that an id stands for; None if it was cut. Raises ValueError if it is no such id."""
    if "~#" in name:
        return None
    path, separator, written = ("", "!", name[1:]) if name.startswith("!") else name.partition("/!")
    key = written.replace("~0", "~")
    if not separator or key.replace("~", "~0") != written:
        raise ValueError("it is no id of an item")
    return _labels(f"{path}/" if path or separator == "/!" else ""), key


def whole_name(namespace: Iterable[str], key: str) -> str:
    """The id of an item before it is cut."""
    path_of(namespace)
    return joined_name(tuple(namespace), checked_key(key))


def joined_name(namespace: Namespace, key: str) -> str:
    """The `whole_name` of an item whose namespace and key were checked."""
    return f"{_joined(namespace)}!{key.replace('~', '~0')}"


def keys_of(namespace: Iterable[str]) -> str:
    """What the names of a namespace's own items begin with, and those of the namespaces below it do not."""
    return f"{path_of(namespace)}!"


def tenant_paths(prefix: str) -> set[str]:
    """What the names of a tenant's items begin with, if the ids of the tenant's threads begin with `prefix`.

    A namespace may have one label for what an id parts with slashes or colons: `user:42/` and `user:42:` are both
    ("user", "42") and ("user:42",).
    """
    texts = (prefix, prefix.replace(":", "/"), f"{prefix[:-1]}/" if prefix.endswith(":") else prefix)
    return {path_of(text.split("/"))[:-1] for text in texts}


def within(path: str) -> str:
    """What the ids of all items begin with whose whole names begin so. If it is long, others may begin with it, too."""
    return path[:PREFIX]


def behind_keys(path: str) -> str:
    """A text that follows the ids of a namespace's own items, and precedes those of the namespaces below it."""
    return f'{path}"'


@lru_cache(maxsize=1_024)
def _joined(labels: Namespace) -> str:
    return "".join(f"{_label(label)}/" for label in labels)


@lru_cache(maxsize=1_024)
def _labels(path: str) -> Namespace:
    written = path.split("/")[:-1]
    labels = tuple(part.removeprefix("~2").replace("~1", "/").replace("~0", "~") for part in written)
    if _joined(labels) != path:
        raise ValueError("it is no id of an item")
    return labels


def _label(label: str) -> str:
    written = label.replace("~", "~0").replace("/", "~1")
    return f"~2{written}" if written and written[0] <= "!" else written


def _unwritten(label: str) -> str:
    return label.removeprefix("~2").replace("~1", "/").replace("~0", "~")


def _measured(text: str, what: str) -> str:
    check_text(text, what)
    if len(text.encode()) > LONGEST:
        raise InvalidIdError(f"{what} may have {LONGEST:,} bytes, and this one has more: {text!r:.60}")
    return text

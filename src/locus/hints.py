"""Suggestions in errors about names that do not exist: the existing name that was most likely meant."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from locus.errors import ConfigurationError


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """The suggestion that follows a wrong name, ` (did you mean 'model'?)`; empty if no known name is similar."""
    from difflib import get_close_matches  # only errors need it

    near = get_close_matches(name[:80], list(known), n=1)
    return f" (did you mean {near[0]!r}?)" if near else ""


class UnknownOptionError(ConfigurationError):
    """A keyword option does not exist."""

    def __init__(self, owner: str, name: str, known: Iterable[str]) -> None:
        self.owner = owner
        self.name = name
        self.known = list(known)
        super().__init__(
            f"{owner} has no option {name!r:.80}{did_you_mean(name, self.known)}; the options are: "
            f"{', '.join(self.known)}"
        )

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.owner, self.name, self.known)


def check_options(
    options: Mapping[str, Any], taker: Callable[..., Any], owner: str, *, but: Container[str] = ()
) -> None:
    """Raise if `taker` has no parameter for an option. Its parameters `but` do not count: they come from a URL."""
    if not options:
        return
    from inspect import signature

    known = [name for name in signature(taker).parameters if name not in but]
    for name in options:
        if name not in known:
            raise UnknownOptionError(owner, name, known)


@contextmanager
def with_own_options(owner: str, own: Iterable[str]) -> Iterator[None]:
    """Add the options of `owner` to errors about unknown options that it has passed on to a store."""
    try:
        yield
    except UnknownOptionError as error:
        raise UnknownOptionError(owner, error.name, [*own, *error.known]) from None


def options_of_open_store(options: Iterable[str], own: Iterable[str]) -> ConfigurationError:
    """The error for options that come with an open store. It suggests one of the owner's own, if that is similar."""
    meant, own = "", list(own)
    for name in options:
        meant = meant or did_you_mean(name, own)
    return ConfigurationError(
        f"options ({', '.join(options):.200}) only work with a name or URL; this store is already open{meant}"
    )

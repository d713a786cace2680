"""The name that somebody most likely meant, for errors about names that do not exist."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from locus.errors import ConfigurationError


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """` (did you mean 'model'?)`, to follow the wrong name in an error; nothing where no known name is near."""
    from difflib import get_close_matches  # only errors need it

    near = get_close_matches(name[:80], list(known), n=1)
    return f" (did you mean {near[0]!r}?)" if near else ""


class UnknownOptionError(ConfigurationError):
    """An option by keyword that does not exist."""

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
    """Refuse options that `taker` has no parameters for. The parameters `but` are no options: a URL says them."""
    if not options:
        return
    from inspect import signature

    known = [name for name in signature(taker).parameters if name not in but]
    for name in options:
        if name not in known:
            raise UnknownOptionError(owner, name, known)


@contextmanager
def with_own_options(owner: str, own: Iterable[str]) -> Iterator[None]:
    """Name the options of `owner`, too, where it hands on options to a store that has none of that name."""
    try:
        yield
    except UnknownOptionError as error:
        raise UnknownOptionError(owner, error.name, [*own, *error.known]) from None


def options_of_open_store(options: Iterable[str], own: Iterable[str]) -> ConfigurationError:
    """The error for options with a store that is open already. Perhaps one of the owner's own is meant."""
    meant, own = "", list(own)
    for name in options:
        meant = meant or did_you_mean(name, own)
    return ConfigurationError(
        f"options ({', '.join(options):.200}) only work with a name or URL; this store is already open{meant}"
    )

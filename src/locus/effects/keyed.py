"""`Effects.keyed`: a function of which each call is an effect."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from functools import wraps
from string import Formatter
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from pydantic_core import to_jsonable_python

from locus.effects.terms import Terms
from locus.errors import ConfigurationError, SerializationError

if TYPE_CHECKING:
    from locus.effects.effects import Effects

KEY = "idempotency_key"


class _Quoted(Formatter):
    """Writes values into a key so that no two rows of values make the same one."""

    def format_field(self, value: Any, format_spec: str) -> str:
        return quote(format(value, format_spec), safe=" @:.-_")


def key_from(key: str, arguments: Mapping[str, Any]) -> str:
    """The key of a call with these arguments."""
    try:
        return _Quoted().vformat(key, (), arguments)
    except (LookupError, AttributeError) as error:
        raise ConfigurationError(f"the key {key!r:.80} names an argument that this call does not have") from error


def keyed(effects: Effects, key: str | Callable[..., str], terms: Terms, function: Callable[..., Any]) -> Any:
    """The function with its calls made through a ledger."""
    signature = inspect.signature(function)
    shown = signature.replace(parameters=[each for name, each in signature.parameters.items() if name != KEY])
    if isinstance(key, str):
        names = {_first(name) for _, name, _, _ in Formatter().parse(key) if name is not None}
        if not names or not names <= set(shown.parameters):
            raise ConfigurationError(
                f"the key of {function.__name__} names some of its parameters in braces, as in 'charge/{{order_id}}', "
                f"got {key!r:.80}"
            )

    def parts(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> tuple[str, Callable[..., Any], Any]:
        bound = shown.bind(*args, **kwargs)
        given = dict(bound.arguments)
        bound.apply_defaults()
        name = key_from(key, bound.arguments) if isinstance(key, str) else key(*args, **kwargs)

        def call(**more: Any) -> Any:
            return function(*args, **kwargs, **more)

        call.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
            [each.replace(kind=each.KEYWORD_ONLY) for name, each in signature.parameters.items() if name == KEY]
        )
        try:
            return name, call, to_jsonable_python(given)
        except ValueError as error:
            raise SerializationError(f"the arguments of {function.__name__} are no JSON ({error})", "args") from error

    if inspect.iscoroutinefunction(function):

        @wraps(function)
        async def made(*args: Any, **kwargs: Any) -> Any:
            name, call, given = parts(args, kwargs)
            return await effects.once(name, call, args=given, **terms)

    else:

        @wraps(function)
        def made(*args: Any, **kwargs: Any) -> Any:
            name, call, given = parts(args, kwargs)
            return effects.sync.once(name, call, args=given, **terms)

    made.__signature__ = shown  # type: ignore[attr-defined]
    made.__annotations__ = {name: kind for name, kind in function.__annotations__.items() if name != KEY}
    return made


def _first(name: str) -> str:
    """The parameter that a name in a key begins with: `args` of `args[order_id]`."""
    return name.partition("[")[0].partition(".")[0]

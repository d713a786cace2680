"""The `@tool` decorator, and the `Tool` that it makes of a function."""

from __future__ import annotations

import asyncio
import functools
import inspect
import re
import sys
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Generic, ParamSpec, TypeVar, overload

from locus.core.frozen import freeze
from locus.errors import ConfigurationError, SerializationError
from locus.memory.model.codec import encode
from locus.tools.os_threads import in_thread
from locus.tools.results import ToolOutcome, as_text, explained, failure
from locus.tools.schema import Arguments, ArgumentsError, documentation_of

P = ParamSpec("P")
R = TypeVar("R")

# Names that every provider accepts.
_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}\Z")


class Tool(Generic[P, R]):
    """A function that a model may call. Your code can call it like the function itself.

    `parameters` is the JSON schema of its arguments. `idempotent` says that running it twice does no harm, so that an
    interrupted call is simply run again. `timeout` is in seconds.
    """

    def __init__(
        self,
        function: Callable[P, R],
        *,
        name: str | None = None,
        description: str | None = None,
        idempotent: bool = False,
        timeout: float | None = None,
        names: Mapping[str, Any] | None = None,
    ) -> None:
        if not callable(function):
            raise ConfigurationError(f"a tool is made of a function, got {function!r:.80}")
        functools.update_wrapper(self, function)
        docs = documentation_of(function)
        self.function = function
        self.name = name if name is not None else getattr(function, "__name__", type(function).__name__)
        if not isinstance(self.name, str) or not _NAME.match(self.name):
            raise ConfigurationError(
                f"{self.name!r} cannot be the name of a tool: letters, digits, _ and - only, 64 at most; "
                "tool(name=…) gives another one"
            )
        if timeout is not None and not timeout > 0:
            raise ConfigurationError(f"the timeout of the tool {self.name} is not above zero: {timeout!r}")
        self.description = docs.description if description is None else description
        self.idempotent = idempotent
        self.timeout = timeout
        self._arguments = Arguments(self.name, function, docs.arguments, names or {})
        self.parameters: dict[str, Any] = freeze(self._arguments.json_schema)

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        return self.function(*args, **kwargs)

    def __repr__(self) -> str:
        return f"Tool({self.name})"

    async def run(self, arguments: Mapping[str, Any], *, timeout: float | None = None) -> ToolOutcome:
        """Check the arguments, run the function, and turn its result or its error into text for the model.

        Only cancellation is raised. `timeout` is for tools that have none of their own. A sync function that runs out
        of time goes on in its thread, since nothing can stop it.
        """
        try:
            values = self._arguments.validate(arguments)
        except ArgumentsError as error:
            return failure(f"invalid arguments for {self.name}: {error}. Expected: {encode(self.parameters)}")
        except Exception as error:  # noqa: BLE001 - a custom validator may raise anything
            return failure(f"invalid arguments for {self.name}: {explained(error)}")
        return await self._within(self.timeout if self.timeout is not None else timeout, values)

    async def _within(self, timeout: float | None, values: dict[str, Any]) -> ToolOutcome:
        try:
            async with asyncio.timeout(timeout) as limit:
                return ToolOutcome(as_text(await self._called(values)))
        except SerializationError as error:
            return failure(f"{self.name} returned what cannot be passed on: {error}")
        except (Exception, SystemExit) as error:  # noqa: BLE001 - the model hears of it, and the agent goes on
            if limit.expired() and isinstance(error, TimeoutError):
                return failure(f"{self.name} did not finish within {timeout:g} seconds")
            return failure(explained(error))
        except asyncio.CancelledError as error:
            if _being_cancelled():
                raise
            return failure(f"{self.name} was cancelled from within ({explained(error)})")

    async def _called(self, values: dict[str, Any]) -> Any:
        function: Callable[..., Any] = self.function
        if inspect.iscoroutinefunction(function):
            return await function(**values)
        result = await in_thread(functools.partial(function, **values))
        return await result if isinstance(result, Awaitable) else result


def _being_cancelled() -> bool:
    """Whether the current task is being cancelled. If not, a `CancelledError` comes from within the tool."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


@overload
def tool(function: Callable[P, R], /) -> Tool[P, R]: ...
@overload
def tool(
    *,
    name: str | None = None,
    description: str | None = None,
    idempotent: bool = False,
    timeout: float | None = None,
) -> Callable[[Callable[P, R]], Tool[P, R]]: ...
def tool(function: Callable[..., Any] | None = None, /, **options: Any) -> Any:
    """Make a tool of a function: `@tool`, or `@tool(name=…, description=…, idempotent=True, timeout=30)`.

    The JSON schema comes from the type hints and the docstring (Google style: `Args:`). `Annotated` with a text or a
    pydantic `Field` adds to it. Async functions run in the event loop, others in threads.
    """
    if function is not None:
        return Tool(function, names=_names_at(2), **options)
    return lambda decorated: Tool(decorated, names=_names_at(2), **options)


def _names_at(depth: int) -> dict[str, Any]:
    """The local names in the frame `depth` calls up. The annotations of a decorated function may refer to them."""
    return dict(sys._getframe(depth).f_locals)

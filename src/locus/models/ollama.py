"""Models that an Ollama server runs. Needs the extra `ollama`.

`max_retries` is how often a request is sent again after 408, 409, 429, 5xx and connection errors.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import TYPE_CHECKING, Any

from pydantic import SecretStr

from locus.core.messages import Message
from locus.extras import require
from locus.memory.runtime.per_loop import PerLoop
from locus.models import ollama_wire as wire
from locus.models.base import ModelChunk, ModelResponse, ToolSpec
from locus.models.errors import ModelError, ModelUnavailableError, error_for_status, may_pass, translated
from locus.models.provider import Provider, retry_after, secret, with_retries
from locus.models.stainless import is_transport_error

if TYPE_CHECKING:
    from ollama import AsyncClient

# Parameters that stand beside `options` in a request. All others are options of the model.
_BESIDE_OPTIONS = frozenset({"format", "keep_alive", "think", "logprobs", "top_logprobs"})


class _Refused(Exception):
    """The server answered with an error status. The client's own error lacks the header that says when to retry."""

    def __init__(self, status: int, text: str, wait: float | None) -> None:
        super().__init__(text)
        self.status = status
        self.wait = wait


class OllamaModel(Provider):
    """A model that Ollama serves, at `OLLAMA_HOST` or on this machine unless `base_url` is given.

    Options that are not named here (`temperature`, `num_ctx`, …) go into every request.
    """

    provider = "ollama"

    def __init__(
        self,
        model: str,
        *,
        api_key: str | SecretStr | None = None,
        base_url: str | None = None,
        max_tokens: int | None = None,
        max_retries: int = 2,
        timeout: float = 600.0,
        **parameters: Any,
    ) -> None:
        super().__init__(model)
        self._library = require("ollama", "ollama")
        self._api_key = secret(api_key, "OLLAMA_API_KEY")
        self._base_url, self._timeout, self._max_retries = base_url, timeout, max_retries
        self._parameters = {"max_tokens": max_tokens, **parameters}
        self._clients: PerLoop[AsyncClient] = PerLoop(self._client, _close)

    def _client(self) -> AsyncClient:
        key = self._api_key
        client: AsyncClient = self._library.AsyncClient(
            self._base_url,
            timeout=self._timeout,
            headers={"Authorization": f"Bearer {key.get_secret_value()}"} if key is not None else None,
            event_hooks={"response": [_refuse]},
        )
        return client

    def _request(self, messages: Sequence[Message], tools: Sequence[ToolSpec] | None, given: Any) -> dict[str, Any]:
        parameters = {key: value for key, value in {**self._parameters, **given}.items() if value is not None}
        beside = {key: parameters.pop(key) for key in _BESIDE_OPTIONS & parameters.keys()}
        options = {**parameters.pop("options", {}), **parameters}
        if "max_tokens" in options:
            options["num_predict"] = options.pop("max_tokens")
        request = {"model": self.model, "messages": wire.to_messages(messages), "options": options or None, **beside}
        return {**request, "tools": wire.to_tools(tools)} if tools else request

    async def complete(
        self, messages: Sequence[Message], tools: Sequence[ToolSpec] | None = None, **kwargs: Any
    ) -> ModelResponse:
        answer = wire.OllamaAnswer()
        with translated(_translate, self._api_key):
            request = self._request(messages, tools, kwargs)
            chat = self._clients.current().chat
            part = await with_retries(lambda: chat(**request), _wait_after, self._max_retries)
            answer.add(part.model_dump())
            response = answer.finished()
        if response is None:
            raise ModelError("ollama: the answer is not complete")
        return response

    async def stream(
        self, messages: Sequence[Message], tools: Sequence[ToolSpec] | None = None, **kwargs: Any
    ) -> AsyncIterator[ModelChunk]:
        answer = wire.OllamaAnswer()
        with translated(_translate, self._api_key):
            request = self._request(messages, tools, kwargs)
            parts, part = await with_retries(lambda: self._opened(request), _wait_after, self._max_retries)
            while part is not None:
                if text := answer.add(part.model_dump()):
                    yield ModelChunk(text=text)
                part = await anext(parts, None)
            response = answer.finished()
        if response is None:
            raise ModelUnavailableError("ollama: the stream ended before the answer was complete")
        yield ModelChunk(response=response)

    async def _opened(self, request: dict[str, Any]) -> tuple[AsyncIterator[Any], Any]:
        """Open a stream, and read its first part, because the client only then sends the request."""
        parts = await self._clients.current().chat(**request, stream=True)
        return parts, await anext(parts, None)

    async def close(self) -> None:
        await self._clients.close_here()


async def _close(client: AsyncClient) -> None:
    await client.close()  # type: ignore[no-untyped-call]


async def _refuse(response: Any) -> None:
    if response.status_code >= 400:
        await response.aread()
        raise _Refused(response.status_code, response.text, retry_after(response.headers.get("retry-after")))


def _wait_after(error: Exception) -> float | None:
    if isinstance(error, _Refused):
        return error.wait or 0.0 if may_pass(error.status) else None
    return 0.0 if is_transport_error(error) else None


def _translate(error: Exception) -> ModelError:
    if isinstance(error, _Refused):
        return error_for_status(error.status, f"ollama: {error} (status {error.status})")
    if is_transport_error(error):
        return ModelUnavailableError(f"ollama: {error} ({type(error).__name__})")
    return ModelError(f"ollama: {type(error).__name__}: {error}")

"""The errors of the OpenAI and Anthropic clients, which are built alike: what they mean, and which may pass.

The clients could retry themselves, but how long they are ready to wait differs with their versions, up to weeks.
So they are told not to, and `locus.models.provider` does it, the same for every provider.
"""

from __future__ import annotations

from types import ModuleType

from locus.models.errors import (
    ModelError,
    ModelRequestError,
    ModelUnavailableError,
    Translation,
    error_for_status,
    may_pass,
)
from locus.models.provider import Wish, retry_after

# A stream that breaks off raises the HTTP library's errors bare; which library it is depends on the client's version.
_TRANSPORTS = frozenset({"httpx", "httpx2", "httpcore", "httpcore2", "anyio", "ssl"})


def translation(client: ModuleType, provider: str) -> Translation:
    """How errors raised by that client library become ours."""

    def translate(error: Exception) -> ModelError:
        text = f"{provider}: {error}"
        if isinstance(error, client.APIResponseValidationError):
            return ModelError(f"{provider} answered with something that cannot be read: {error}")
        if isinstance(error, client.APIStatusError) and error.status_code >= 400:
            return error_for_status(error.status_code, text)
        if isinstance(error, client.APIConnectionError) or is_transport_error(error):
            return ModelUnavailableError(f"{text} ({type(error).__name__})")
        if isinstance(error, client.APIError):
            return _error_in_stream(error, text)
        return ModelError(f"{provider}: {type(error).__name__}: {error}")

    return translate


def patience(client: ModuleType) -> Wish:
    """How long to wait after an error of that client library, if waiting may help."""

    def wait_after(error: Exception) -> float | None:
        if isinstance(error, client.APIStatusError):
            headers = error.response.headers
            hopeless = headers.get("x-should-retry") == "false" or not may_pass(error.status_code)
            return None if hopeless else retry_after(headers.get("retry-after")) or 0.0
        return 0.0 if isinstance(error, client.APIConnectionError) or is_transport_error(error) else None

    return wait_after


def is_transport_error(error: Exception) -> bool:
    return isinstance(error, OSError) or type(error).__module__.partition(".")[0] in _TRANSPORTS


def _error_in_stream(error: Exception, text: str) -> ModelError:
    """An error event inside a stream that began well. Its type says what HTTP would have said by a status."""
    body = getattr(error, "body", None)
    inner = body.get("error", body) if isinstance(body, dict) else None
    kind = str(inner.get("type") or inner.get("code") or "") if isinstance(inner, dict) else ""
    if "invalid" in kind:
        return ModelRequestError(text)
    return ModelUnavailableError(text)

"""The errors that a model raises.

::

    LocusError
    └── ModelError                    the model could not answer, or its answer cannot be read
        ├── ModelUnavailableError     not reached, overloaded, rate-limited or cut off: trying later may help
        ├── ModelAuthenticationError  the credentials were refused
        └── ModelRequestError         the request was refused: trying again will not help
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from pydantic import SecretStr

from locus.errors import LocusError


class ModelError(LocusError):
    """The model could not answer, or its answer cannot be read. `status` is the HTTP status, if there was one."""

    def __init__(self, message: str, *, status: int | None = None) -> None:
        super().__init__(message)
        self.status = status


class ModelUnavailableError(ModelError):
    """The model was not reached, is overloaded, or broke off. Trying later may help."""


class ModelAuthenticationError(ModelError):
    """The credentials are missing, wrong, or lack the permission."""


class ModelRequestError(ModelError):
    """The provider refuses this request; the text says why. Trying again will not help."""


Translation = Callable[[Exception], ModelError]


def may_pass(status: int) -> bool:
    """Whether an HTTP status means a failure that may be over in a moment."""
    return status in (408, 409, 429) or status >= 500


def error_for_status(status: int, text: str) -> ModelError:
    """The error to raise for an HTTP status."""
    if status in (401, 403):
        return ModelAuthenticationError(text, status=status)
    if may_pass(status):
        return ModelUnavailableError(text, status=status)
    return ModelRequestError(text, status=status)


@contextmanager
def translated(translate: Translation, secret: SecretStr | None = None) -> Iterator[None]:
    """Raise a `ModelError` in place of any error of the client library, which becomes its cause.

    A provider may repeat the API key in its message. Then the key is masked, and the cause, which contains it, dropped.
    """
    try:
        yield
    except LocusError:
        raise
    except Exception as error:
        translation = translate(error)
        key = secret.get_secret_value() if secret is not None else ""
        if key and (key in str(translation) or key in str(error)):
            translation.args = (str(translation).replace(key, "***"),)
            raise translation from None
        raise translation from error

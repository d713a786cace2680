"""Every error that Locus raises, in one tree.

::

    LocusError
    ├── ConfigurationError              a name, path, URL or option that cannot work (also a ValueError)
    │   └── MissingDependencyError      an extra is not installed (also an ImportError)
    └── CheckpointError
        ├── InvalidIdError              an id that no backend accepts (also a ValueError)
        ├── SerializationError          a value that JSON cannot hold; `.path` says where (also a ValueError)
        ├── ConflictError               another writer was faster; nothing was written
        │   ├── ThreadBusyError         another run is under way in the thread, and this one was not begun
        │   └── ThreadTakenOverError    another worker has taken the thread over from this run
        ├── WindowError                 a window of a state that cannot be saved there (also a ValueError)
        ├── CheckpointNotFoundError     an operation names a checkpoint that is not there (also a LookupError)
        ├── CapabilityError             this backend cannot do that (also a NotImplementedError)
        ├── CorruptCheckpointError      what is stored cannot be read back
        │   └── UnsupportedFormatError  it was written by a newer version of Locus
        └── BackendUnavailableError     the store could not be reached, or did not answer

`None` and `False` always mean "not there". Whatever could not be found out is raised.
"""

from __future__ import annotations

from locus._other_distribution import refuse_mixture

# `locus/__init__.py` asks this too, but if the other distribution was installed last, it is theirs.
refuse_mixture()


class LocusError(Exception):
    """The root of all errors of this library."""


class ConfigurationError(LocusError, ValueError):
    """A backend name, a path, a URL or an option that cannot work. The text says what to change."""


class MissingDependencyError(ConfigurationError, ImportError):
    """A driver is not installed. The text names the `pip install` line that is missing."""


class CheckpointError(LocusError):
    """Something went wrong with saving or reading a checkpoint."""


class InvalidIdError(CheckpointError, ValueError):
    """An id is empty, too long, not text, or holds characters that no encoding has."""


class SerializationError(CheckpointError, ValueError):
    """A value inside a state cannot be kept as JSON. Nothing was written."""

    def __init__(self, message: str, path: str = "") -> None:
        super().__init__(message)
        self.path = path


class ConflictError(CheckpointError):
    """Another writer was faster. Nothing was written.

    `expected` is what the save asked for and `latest` what it found (`None`: no checkpoint).
    """

    def __init__(self, message: str, *, expected: str | None = None, latest: str | None = None) -> None:
        super().__init__(message)
        self.expected = expected
        self.latest = latest


class ThreadBusyError(ConflictError):
    """Another run is under way in the thread, and this one was not begun. Nothing was written.

    `retry_after` is the time in seconds after which the thread is free if that run's worker is gone; a run that is
    alive may take longer. `None` if that is not known.
    """

    def __init__(
        self,
        message: str,
        *,
        expected: str | None = None,
        latest: str | None = None,
        retry_after: float | None = None,
    ) -> None:
        super().__init__(message, expected=expected, latest=latest)
        self.retry_after = retry_after


class ThreadTakenOverError(ConflictError):
    """Another worker has taken the thread over, and this run cannot go on. What it has saved before stays."""


class WindowError(CheckpointError, ValueError):
    """A state that was loaded with `last` does not know what it left out, so it cannot be saved there, or compared.

    Nothing was written. Load the thread whole, or let the omitted items go with `state.without_omitted()`.
    """


class CheckpointNotFoundError(CheckpointError, LookupError):
    """An operation names a checkpoint (a parent, one side of a diff) that is not there."""


class CapabilityError(CheckpointError, NotImplementedError):
    """The backend does not have this capability; `checkpointer.capabilities` tells beforehand."""


class CorruptCheckpointError(CheckpointError):
    """What is stored is damaged or incomplete. It is never reported as "not there"."""


class UnsupportedFormatError(CorruptCheckpointError):
    """The stored format is newer than this version of Locus understands: upgrade `locus-state`."""


class BackendUnavailableError(CheckpointError):
    """The store could not be reached or did not answer. Whether a thread exists is unknown.

    If a server said that it is too early, `retry_after` is the time in seconds after which to try again, and `code` is
    the server's word for the reason: `"quota_exceeded"` for a quota that was used up, where nothing was saved.
    """

    code: str | None = None
    retry_after: float | None = None


class DamagedThreadsWarning(UserWarning):
    """A list of many threads lacks some that are damaged. Whoever loads one of them gets the error."""

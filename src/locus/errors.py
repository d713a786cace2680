"""Every error that Locus raises, in one tree.

::

    LocusError
    ├── ConfigurationError              a name, path, URL or option that cannot work (also a ValueError)
    │   └── MissingDependencyError      an extra is not installed (also an ImportError)
    ├── EffectError                     an effect was not made now; `.effect` is what its ledger has of it
    │   ├── EffectBusyError             another caller is making it; `.retry_after` says how long that may last
    │   ├── UnknownEffectError          nobody knows whether it was made: its process died in between
    │   ├── EffectFailedError           its call has raised an error before
    │   ├── EffectMismatchError         its key stands for other arguments (also a ValueError)
    │   └── EffectResultError           it was made, and its result could not be kept
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
        ├── EncryptionKeyError          what is stored is sealed, and its key is not at hand
        ├── EmbeddingError              an embedder failed, or made something else than vectors
        │   └── EmbeddingMismatchError  stored vectors are of another model; `.count` says how many
        └── BackendUnavailableError     the store could not be reached, or did not answer

A method that returns `None` or `False` knows that something does not exist. If it could not find out, it raises.
"""

from __future__ import annotations

from typing import Any

from locus._other_distribution import refuse_mixture

# `locus/__init__.py` calls this, too, but the other distribution replaces that file if it was installed last.
refuse_mixture()


class LocusError(Exception):
    """The root of all errors of this library."""


class ConfigurationError(LocusError, ValueError):
    """A backend name, a path, a URL or an option that cannot work. The text says what to change."""


class MissingDependencyError(ConfigurationError, ImportError):
    """A driver is not installed. The text names the `pip install` line that is missing."""


class EffectError(LocusError):
    """An effect was not made now. `effect` is what its ledger has of it (see `locus.effects.Effect`), if anything."""

    def __init__(self, message: str, effect: Any = None) -> None:
        super().__init__(message)
        self.effect = effect


class EffectBusyError(EffectError):
    """Another caller is making this effect. `retry_after` is when that caller's lease ends, in seconds from now."""

    def __init__(self, message: str, effect: Any = None, retry_after: float | None = None) -> None:
        super().__init__(message, effect)
        self.retry_after = retry_after


class UnknownEffectError(EffectError):
    """An effect was begun, and nobody knows whether it was made: its process died, or was cut off, in between.

    Ask the receiver, and record the answer with `Effects.settle`.
    """


class EffectFailedError(EffectError):
    """The call of this effect has raised an error before, which may have come after it took effect."""


class EffectMismatchError(EffectError, ValueError):
    """The key of an effect is in use for other arguments. Nothing was done."""


class EffectResultError(EffectError):
    """An effect was made, and its result could not be kept: it is no JSON, or too large."""


class CheckpointError(LocusError):
    """Something went wrong with saving or reading a checkpoint."""


class InvalidIdError(CheckpointError, ValueError):
    """An id is empty, too long, not text, or holds characters that UTF-8 cannot encode."""


class SerializationError(CheckpointError, ValueError):
    """A value inside a state cannot be kept as JSON. Nothing was written."""

    def __init__(self, message: str, path: str = "") -> None:
        super().__init__(message)
        self.path = path


class ConflictError(CheckpointError):
    """Another writer was faster. Nothing was written.

    `expected` is the checkpoint that the save named as the latest, and `latest` the one it found (`None`: no
    checkpoint).
    """

    def __init__(self, message: str, *, expected: str | None = None, latest: str | None = None) -> None:
        super().__init__(message)
        self.expected = expected
        self.latest = latest


class ThreadBusyError(ConflictError):
    """Another run is under way in the thread, and this one was not begun. Nothing was written.

    `retry_after` is the time in seconds after which it makes sense to try again: soon while that run's worker gives
    signs of life; when none came in time, the thread is free by then. `None` if that is not known.
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
    """A state that was loaded with `last` lacks the omitted items, so it cannot be saved there, or compared.

    Nothing was written. Load the thread whole, or drop the omitted items with `state.without_omitted()`.
    """


class CheckpointNotFoundError(CheckpointError, LookupError):
    """An operation names a checkpoint (a parent, one side of a diff) that is not there."""


class CapabilityError(CheckpointError, NotImplementedError):
    """The backend does not have this capability. `checkpointer.capabilities` says which it has."""


class CorruptCheckpointError(CheckpointError):
    """Stored data is damaged or incomplete. This is never reported as "not there"."""


class UnsupportedFormatError(CorruptCheckpointError):
    """The stored format is newer than this version of Locus understands: upgrade `locus-state`."""


class EncryptionKeyError(CheckpointError):
    """What is stored is sealed, and the key that opens it is not at hand: the message names the key by its id."""


class EmbeddingError(CheckpointError):
    """An embedder failed, or made something else than the vectors that it was asked for."""


class EmbeddingMismatchError(EmbeddingError):
    """Vectors of items are of another model than the memory's. `count` says of how many; `reindex()` mends it."""

    def __init__(self, message: str, count: int = 0) -> None:
        super().__init__(message)
        self.count = count


class BackendUnavailableError(CheckpointError):
    """The store could not be reached or did not answer. Whether a thread exists is unknown.

    If a server asks to wait, `retry_after` is how many seconds, and `code` is the server's name for the reason.
    `"quota_exceeded"` means that a quota is used up, and that nothing was saved.
    """

    code: str | None = None
    retry_after: float | None = None


class OwedVectorsWarning(UserWarning):
    """An embedder failed while items were put. They are saved, and found by words; `reindex()` makes their vectors."""


class DamagedThreadsWarning(UserWarning):
    """A list of threads leaves out some that are damaged. Loading one of them raises the error."""

"""What Redis and its driver say, as errors of ours that tell what to do."""

from __future__ import annotations

from redis.exceptions import (
    AskError,
    AuthenticationError,
    AuthorizationError,
    BusyLoadingError,
    ClusterCrossSlotError,
    ClusterDownError,
    MovedError,
    NoPermissionError,
    OutOfMemoryError,
    ReadOnlyError,
)
from redis.exceptions import TimeoutError as RedisTimeoutError

from locus.errors import (
    BackendUnavailableError,
    CapabilityError,
    CheckpointError,
    CorruptCheckpointError,
    SerializationError,
)

_BY_CLASS: tuple[tuple[type[BaseException], str], ...] = (
    (OutOfMemoryError, "Redis is out of memory, and nothing was written: raise maxmemory, or delete threads"),
    (ReadOnlyError, "this Redis server is a read-only replica: connect to the primary"),
    (BusyLoadingError, "Redis is loading its data: try again in a while"),
    (AuthenticationError, "Redis refuses the user name or the password: check username and password"),
    (AuthorizationError, "Redis refuses this user: check username and password"),
    (NoPermissionError, "the Redis user may not do this: see the page on Redis for the rights that are needed"),
    (ClusterCrossSlotError, "this is a Redis Cluster: open it with cluster=True"),
    (MovedError, "this is a Redis Cluster: open it with cluster=True"),
    (AskError, "this is a Redis Cluster: open it with cluster=True"),
    (ClusterDownError, "the Redis Cluster is down: not all of its slots are served"),
    (RedisTimeoutError, "Redis did not answer in time"),
    (TimeoutError, "Redis did not answer in time: `timeout` says how long to wait"),
)
_BY_WORD = {
    "MISCONF": "Redis cannot write to its disk, and refuses to change anything: see its log",
    "BUSY": "Redis is busy with a long script of somebody's: SCRIPT KILL ends it",
    "NOREPLICAS": "too few replicas of Redis are connected, and nothing was written (min-replicas-to-write)",
    "MASTERDOWN": "this Redis replica has lost its primary",
    "NOAUTH": "Redis asks for a password: give username and password",
    "OOM": _BY_CLASS[0][1],
    "READONLY": _BY_CLASS[1][1],
    "LOADING": _BY_CLASS[2][1],
}


def translated(error: BaseException) -> CheckpointError:
    """An error of ours for one of the driver's. The driver puts no secrets into its texts."""
    said = str(error) or type(error).__name__
    advice = _BY_WORD.get(said.partition(" ")[0])
    advice = advice or next((text for kind, text in _BY_CLASS if isinstance(error, kind)), None)
    if "unknown command" in said.lower() and "FT." in said:
        return CapabilityError("this Redis server has no Search module: Redis 8 and Redis Stack have it")
    if advice is not None:
        return BackendUnavailableError(f"{advice} ({said})")
    if said.startswith("WRONGTYPE") or "user_script:" in said:
        return CorruptCheckpointError(f"what Redis has under our keys is not what was written there: {said}")
    if "exceeds" in said and "bulk" in said:
        return SerializationError(f"a value is larger than Redis can hold (proto-max-bulk-len): {said}")
    return BackendUnavailableError(f"Redis cannot be used now: {said}")

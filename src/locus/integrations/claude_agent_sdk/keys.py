"""Where the sessions of the Claude Agent SDK are kept: a thread for each session, a namespace for each transcript.

    project_key "-srv-app", session_id "7c01…"       thread "-srv-app/7c01…", namespace "claude-agent-sdk"
    the same with subpath "subagents/agent-1"        the same thread, "claude-agent-sdk/subagents/agent-1"

So the sessions of a project are the threads whose ids start with its name and a slash, a session and its subagents are
one thread, and a prefix for all thread ids keeps tenants apart. In names of projects and sessions, `%` and `/` are
escaped: no two keys have the same thread, and a project finds its own sessions only.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from locus.errors import InvalidIdError
from locus.threads.ids import MAX_ID_LENGTH, check_id, check_prefix, digest, joined, parted

NAMESPACE = "claude-agent-sdk"
"""The namespace of main transcripts. For a store without namespaces, pass `namespace="default"`."""

_LONGEST_PROJECT = 120
_KEPT_OF_LONG = 80
"""How much is left of a longer project. The SDK makes its name of a path, and the session and a prefix need room."""


class TranscriptPlace(NamedTuple):
    """The thread and the namespace that keep a transcript."""

    thread_id: str
    namespace: str


class TranscriptPlaces:
    """The names of threads and namespaces for all transcripts of a store."""

    def __init__(self, prefix: str, namespace: str) -> None:
        self.prefix = check_prefix(prefix)
        self.namespace = check_id(namespace, "namespace")

    def of(self, key: Mapping[str, Any]) -> TranscriptPlace:
        """The place of a session's main transcript, or, with a `subpath`, of a subagent's."""
        thread_id = self.within(key.get("project_key")) + joined(check_id(key.get("session_id"), "session_id"))
        if len(thread_id) > MAX_ID_LENGTH:
            raise InvalidIdError(
                f"project_key, session_id and the prefix have {len(thread_id)} characters together, and at most "
                f"{MAX_ID_LENGTH} are kept: use shorter ones"
            )
        subpath = key.get("subpath")
        if subpath is None:
            return TranscriptPlace(thread_id, self.namespace)
        namespace = f"{self.namespace}/{check_id(subpath, 'subpath')}"
        return TranscriptPlace(thread_id, check_id(namespace, "subpath, with the namespace before it,"))

    def within(self, project_key: object) -> str:
        """The prefix of the thread ids of a project's sessions."""
        project = joined(check_id(project_key, "project_key"))
        if len(project) > _LONGEST_PROJECT:
            # No escaped text has these two characters, so no other project has this name.
            project = f"{project[:_KEPT_OF_LONG]}%~{digest(project)}"
        return f"{self.prefix}{project}/"

    def session_id(self, thread_id: str, project_key: str) -> str | None:
        """The id of the session that a thread keeps; None if the thread keeps something else."""
        name = thread_id[len(self.within(project_key)) :]
        return parted(name)[0] if name and "/" not in name else None

    def subpath(self, namespace: str) -> str | None:
        """The subpath of the transcript in a namespace; None for the main one, and for foreign namespaces."""
        start = f"{self.namespace}/"
        return namespace[len(start) :] if namespace.startswith(start) else None

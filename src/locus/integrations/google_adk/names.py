"""The ids of threads: for the state of an app or a user, for sessions, and for artifacts.

    shop                            the state of the app
    shop/alice                      the state of a user
    shop/alice/7f3a…                a session
    shop/alice/7f3a…/report.pdf     an artifact of a session
    shop/alice//logo.png            an artifact of a user

A slash or a percent sign in a name is escaped, so every name is possible, and no two of them share a thread. `parted`
of such an id are its names: one of an app, two of a user, three of a session, four of an artifact.
"""

from __future__ import annotations

from locus.errors import InvalidIdError
from locus.threads.ids import MAX_ID_LENGTH, check_id, joined

_NAMES = ("app_name", "user_id", "session_id", "filename")


def thread_of(app_name: str, user_id: str | None = None, session_id: str | None = None) -> str:
    """The thread id of a session; without its id, of a user; without both, of an app."""
    return _checked(*(name for name in (app_name, user_id, session_id) if name is not None))


def artifact_thread(app_name: str, user_id: str, session_id: str | None, filename: str) -> str:
    """The thread id of an artifact: of a session, or of a user if no session is given."""
    return _checked(app_name, user_id, "" if session_id is None else check_id(session_id, "session_id"), filename)


def _checked(*names: str) -> str:
    for name, what in zip(names, _NAMES, strict=False):
        check_id(name, what, empty=what == "session_id" and len(names) == len(_NAMES))
    thread_id = joined(*names)
    if len(thread_id) > MAX_ID_LENGTH:
        raise InvalidIdError(
            f"{', '.join(_NAMES[: len(names)])} have {len(thread_id)} characters together, and at most "
            f"{MAX_ID_LENGTH} are kept: use shorter ones"
        )
    return thread_id

"""Sessions, agents and messages come back equal, whichever of their fields are missing, empty, or defaults."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from strands.types.session import Session, SessionAgent, SessionMessage

from locus.integrations.strands import LocusSessionRepository
from tests.integrations.every_field import FEW, objects


@FEW
@given(
    objects(Session, session_id=st.just("s")),
    objects(SessionAgent, agent_id=st.just("a")),
    st.lists(objects(SessionMessage), max_size=2, unique_by=lambda message: message.message_id),
)
def test_all_of_a_session_comes_back_equal(
    session: Session, agent: SessionAgent, messages: list[SessionMessage]
) -> None:
    repository = LocusSessionRepository("memory")
    messages.sort(key=lambda message: message.message_id)
    repository.create_session(session)
    repository.create_agent("s", agent)
    for message in messages:
        repository.create_message("s", "a", message)
    found = repository.read_agent("s", "a")
    assert found is not None
    assert found.to_dict() == SessionAgent.from_dict(agent.to_dict()).to_dict()
    assert [message.to_dict() for message in repository.list_messages("s", "a")] == [
        SessionMessage.from_dict(message.to_dict()).to_dict() for message in messages
    ]
    read = repository.read_session("s")
    assert read is not None
    assert read.to_dict() == Session.from_dict(session.to_dict()).to_dict()

"""An agent of Strands on a session of ours: kept in a file, forked, taken back; and its snapshots.

    python examples/strands_session.py [FOLDER]

It runs offline: the model is a script that plays a travel clerk. With `Agent()` in its place, and a key, the rest stays
as it is.
"""

import json
import sys
import tempfile
from collections.abc import AsyncGenerator, AsyncIterable
from pathlib import Path
from typing import Any

from strands import Agent, tool
from strands.models import Model
from strands.session import RepositorySessionManager, SnapshotSessionManager
from strands.types.exceptions import SessionException
from strands.types.streaming import StreamEvent

from locus.integrations.strands import LocusSessionRepository, LocusStorage


class ScriptedClerk(Model):
    """Looks a fare up for the last city that it was told of."""

    def update_config(self, **model_config: Any) -> None:
        raise NotImplementedError("this example has nothing to configure")

    def get_config(self) -> dict[str, Any]:
        return {}

    def structured_output(self, *_asked: Any, **_more: Any) -> AsyncGenerator[dict[str, Any], None]:
        raise NotImplementedError("this example has no structured output")

    async def stream(self, messages: Any, *_asked: Any, **_more: Any) -> AsyncIterable[StreamEvent]:
        last = messages[-1]["content"][0]
        yield {"messageStart": {"role": "assistant"}}
        if "toolResult" in last:
            yield {"contentBlockDelta": {"delta": {"text": f"That is {last['toolResult']['content'][0]['text']}."}}}
        else:
            city = last["text"].rstrip(".?!").split()[-1]
            call: Any = {"name": "look_up_fare", "toolUseId": f"call-{len(messages)}"}
            yield {"contentBlockStart": {"start": {"toolUse": call}}}
            yield {"contentBlockDelta": {"delta": {"toolUse": {"input": json.dumps({"city": city})}}}}
        yield {"contentBlockStop": {}}
        yield {"messageStop": {"stopReason": "end_turn" if "toolResult" in last else "tool_use"}}


@tool
def look_up_fare(city: str) -> str:
    """The fare to a city."""
    return f"{len(city) * 10} euros to {city}"


def clerk(session_manager: Any) -> Agent:
    return Agent(model=ScriptedClerk(), tools=[look_up_fare], session_manager=session_manager, callback_handler=None)


def ask(agent: Agent, name: str, text: str) -> None:
    print(f"{name}: {text}\n  -> {str(agent(text)).strip()}")


def main(folder: Path) -> None:
    with LocusSessionRepository(f"sqlite:{folder / 'agents.db'}") as sessions:
        alice = clerk(RepositorySessionManager("alice", sessions))
        ask(alice, "alice", "A ticket to Oslo.")
        after_oslo = sessions.history("alice", 1)[0]
        ask(alice, "alice", "And one more to Rome.")

        print("\nAnother line from the first answer on:")
        sessions.fork("alice", "alice-another-plan", after_oslo.checkpoint_id)
        ask(clerk(RepositorySessionManager("alice-another-plan", sessions)), "fork", "And one more to Lisbon.")

        print("\nBack to the first answer, in the same session:")
        sessions.rewind("alice", after_oslo.checkpoint_id)
        alice = clerk(RepositorySessionManager("alice", sessions))
        ask(alice, "alice", "And one more to Bern.")

        print("\nTwo agents with the same session:")
        other = clerk(RepositorySessionManager("alice", sessions))
        ask(alice, "alice", "And one more to Paris.")
        try:
            ask(other, "other", "And one more to Turin.")
        except SessionException as error:
            print(f"other: refused: {str(error).partition(':')[0]}")

    with LocusSessionRepository(f"sqlite:{folder / 'agents.db'}") as sessions:
        print(f"\nOpened again: {len(sessions.list_messages('alice', 'default'))} messages")

    storage = LocusStorage(f"sqlite:{folder / 'snapshots.db'}")
    bob = clerk(SnapshotSessionManager("bob", storage=storage))
    ask(bob, "bob", "A ticket to Vienna.")
    again = clerk(SnapshotSessionManager("bob", storage=LocusStorage(f"sqlite:{folder / 'snapshots.db'}")))
    print(f"A snapshot, read again: {len(again.messages)} messages")


if __name__ == "__main__":
    if sys.argv[1:]:
        main(Path(sys.argv[1]))
    else:
        with tempfile.TemporaryDirectory(prefix="locus-") as folder:
            main(Path(folder))

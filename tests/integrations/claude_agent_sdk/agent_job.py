"""A process that talks to an agent: `python agent_job.py URL FOLDER CLAUDE QUESTION…`. It says what it hears.

Each question goes on from the session that the one before it was asked in.
"""

from __future__ import annotations

import asyncio
import sys

from claude_agent_sdk import AssistantMessage, ClaudeAgentOptions, ResultMessage, TextBlock, query

from locus.integrations.claude_agent_sdk import LocusSessionStore


def say(*words: str) -> None:
    sys.stdout.write(f"{' '.join(words)}\n")
    sys.stdout.flush()


async def main(url: str, folder: str, claude: str, *questions: str) -> None:
    session_id: str | None = None
    async with LocusSessionStore(url) as store:
        for question in questions:
            options = ClaudeAgentOptions(
                cli_path=claude,
                cwd=folder,
                env={"CLAUDE_CONFIG_DIR": f"{folder}/config"},
                session_store=store,
                resume=session_id,
            )
            async for message in query(prompt=question, options=options):
                if isinstance(message, AssistantMessage):
                    say("heard", *(block.text for block in message.content if isinstance(block, TextBlock)))
                if isinstance(message, ResultMessage):
                    session_id = message.session_id
                    say("session", session_id)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))

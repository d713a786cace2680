"""Which laws of sessions each framework keeps on which store, as its tests found it.

    python -m tests.integrations.table                                          run all suites, and write the page
    python -m tests.integrations.table tests/integrations/llmfy -k sqlite       run some; others stay as known
    python -m tests.integrations.table --write                                  write the page from what is known

What passed is kept in `passed.json`, and shown in docs/integrations/README.md. `test_table.py` holds the two together,
and both against the classes of the suites: what no class asks for, or nobody has seen pass, is not in the table.
"""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from locus.testing.framework_sessions.adapter import Appends, FrameworkSessions, Retried, adapter_class
from locus.testing.framework_sessions.laws import SessionsUnderTest
from tests.integrations.suites import OnStores

ROOT = Path(__file__).resolve().parents[2]
PASSED = Path(__file__).with_name("passed.json")
PAGE = ROOT / "docs" / "integrations" / "README.md"
BEGIN, END = "<!-- made by the tests -->", "<!-- /made by the tests -->"


class Framework(NamedTuple):
    """A framework whose tests are in the folder of that name."""

    title: str
    page: str


FRAMEWORKS = {
    "langgraph": Framework("LangGraph", "langgraph.md"),
    "openai_agents": Framework("OpenAI Agents SDK", "openai-agents.md"),
    "llmfy": Framework("llmfy", "llmfy.md"),
    "claude_agent_sdk": Framework("Claude Agent SDK", "claude-agent-sdk.md"),
    "pydantic_ai": Framework("Pydantic AI", "pydantic-ai.md"),
    "google_adk": Framework("Google ADK", "google-adk.md"),
    "agent_framework": Framework("Microsoft Agent Framework", "agent-framework.md"),
    "strands": Framework("Strands", "strands.md"),
    "crewai": Framework("CrewAI", "crewai.md"),
    "a2a": Framework("A2A", "a2a.md"),
}

BACKENDS = ("memory", "file", "sqlite", "postgresql", "mysql", "oracle", "redis", "opensearch", "s3", "oci", "http")

LAWS = {
    "test_of_two_writers_from_one_revision_none_loses_what_was_accepted": "race",
    "test_a_process_killed_during_an_append_leaves_the_whole_batch_or_nothing": "kill",
    "test_the_same_batch_three_times": "retry",
    "test_an_outage_raises_and_is_never_no_session": "outage",
    "test_appends_and_the_newest_messages_are_flat": "cost",
    "test_hostile_session_ids_work_or_are_refused_clearly": "ids",
    "test_a_fork_and_its_source_are_independent": "fork",
    "test_hostile_contents_come_back_as_they_were": "round trip",
}

SIGNS = {
    frozenset(LAWS.values()): "●",
    frozenset({"race", "outage", "round trip"}): "◐",
    frozenset({"race", "round trip"}): "○",
}


class Pass(NamedTuple):
    """One law that sessions of a framework keep on one store."""

    framework: str
    adapter: str
    backend: str
    law: str


def suites(framework: str) -> list[type[OnStores]]:
    module = importlib.import_module(f"tests.integrations.{framework}.test_sessions")
    found = [each for each in vars(module).values() if isinstance(each, type) and issubclass(each, OnStores)]
    return [each for each in found if each.__module__ == module.__name__]


def asked() -> set[Pass]:
    """What the classes of all frameworks ask for."""
    return {
        Pass(framework, suite.adapter.partition(":")[2], backend, LAWS[name])
        for framework in FRAMEWORKS
        for suite in suites(framework)
        for backend in suite.backends
        for name in dir(suite)
        if name.startswith("test")
    }


def passed() -> set[Pass]:
    """What was seen to pass."""
    kept = json.loads(PASSED.read_text(encoding="utf-8"))
    return {
        Pass(framework, adapter, backend, law)
        for framework, adapters in kept.items()
        for adapter, backends in adapters.items()
        for backend, laws in backends.items()
        for law in laws
    }


def keep(found: Iterable[Pass]) -> None:
    kept: dict[str, dict[str, dict[str, list[str]]]] = {}
    for each in sorted(found):
        kept.setdefault(each.framework, {}).setdefault(each.adapter, {}).setdefault(each.backend, []).append(each.law)
    PASSED.write_text(json.dumps(kept, indent=1) + "\n", encoding="utf-8")


def adapters(framework: str) -> list[type[FrameworkSessions]]:
    return [adapter_class(name) for name in dict.fromkeys(suite.adapter for suite in suites(framework))]


def cell(framework: str, backend: str, found: set[Pass]) -> str:
    """The sign of the laws that all sessions of the framework keep on a store."""
    kept = [
        {each.law for each in found if each[:3] == (framework, adapter.__name__, backend)}
        for adapter in adapters(framework)
    ]
    return SIGNS.get(frozenset(set.intersection(*kept)), "–")


WRITERS = {
    Appends.CONDITIONAL: "one is accepted",
    Appends.COMMUTING: "both are kept",
    Appends.SNAPSHOTS: "both are in the history",
}
AGAIN = {Retried.ONCE: "kept once", Retried.AGAIN: "another batch"}


def rendered(found: set[Pass]) -> str:
    """Both tables: what is kept where, and what "kept" means for each framework."""
    lines = [f"| | {' | '.join(BACKENDS)} |", f"|---|{'---|' * len(BACKENDS)}"]
    for name, framework in FRAMEWORKS.items():
        cells = " | ".join(cell(name, backend, found) for backend in BACKENDS)
        lines.append(f"| [{framework.title}]({framework.page}) | {cells} |")
    lines += ["", "| | of two writers from one revision | a batch sent again | messages in one step | forks |"]
    lines.append("|---|---|---|---|---|")
    for name, framework in FRAMEWORKS.items():
        for kind in adapters(name):
            title = framework.title if len(adapters(name)) == 1 else f"{framework.title}, {kind.title}"
            step = "one" if kind.batch == 1 else "any number"
            facts = (WRITERS[kind.appends], AGAIN[kind.retried], step, "yes" if kind.forks else "no")
            lines.append(f"| {title} | {' | '.join(facts)} |")
    return "\n".join(lines)


def written(page: str, found: set[Pass]) -> str:
    """The page with these tables."""
    before, _, rest = page.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n{rendered(found)}\n{END}{after}"


def main(arguments: list[str]) -> int:
    code = 0
    if arguments != ["--write"]:
        folders = [f"tests/integrations/{name}/test_sessions.py" for name in FRAMEWORKS if name != "crewai"]
        folders.append("tests/integrations/test_crewai.py")  # which runs its suite in another environment
        given = arguments if any(each.startswith("tests/") for each in arguments) else [*folders, *arguments]
        seen = PASSED.with_suffix(".seen")
        seen.unlink(missing_ok=True)
        command = [sys.executable, "-m", "pytest", "-q", *given]
        code = subprocess.run(command, cwd=ROOT, env={**os.environ, "LOCUS_SEEN": str(seen)}).returncode
        lines = seen.read_text(encoding="utf-8").splitlines() if seen.exists() else []
        results = {Pass(*each[:4]): each[4] for each in map(json.loads, lines)}
        seen.unlink(missing_ok=True)
        known = passed() if PASSED.exists() else set()
        keep(({*known} - {*results} | {each for each, ok in results.items() if ok}) & asked())
    PAGE.write_text(written(PAGE.read_text(encoding="utf-8"), passed()), encoding="utf-8")
    return code


def shown_by(suite: type[SessionsUnderTest], function: str, backend: str) -> Pass:
    """What a test of a suite shows."""
    _, _, framework, _ = suite.__module__.split(".")
    return Pass(framework, suite.adapter.partition(":")[2], backend, LAWS[function])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

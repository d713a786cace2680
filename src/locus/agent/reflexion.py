"""Reflexion: a confidence score that follows the outcome of tools, and the detection of loops."""

from __future__ import annotations

from collections.abc import Sequence

from locus.core.state import AgentState, ToolExecution
from locus.memory.model.codec import canonical

SUCCESS, FAILURE = 0.2, 0.15
LOOP = 3
"""This many identical calls in a row, with the same outcome, are a loop."""


def reflect(state: AgentState, executions: Sequence[ToolExecution], *, looping: bool) -> AgentState:
    """The state with a new confidence: successes move it towards 1, failures and loops lower it."""
    confidence = state.confidence
    for execution in executions:
        confidence += (1 - confidence) * SUCCESS if execution.success else -FAILURE
    if looping:
        confidence -= FAILURE
    return state.with_confidence(round(confidence, 6)) if executions else state


def repeats(executions: Sequence[ToolExecution]) -> int:
    """How many executions at the end are identical: the same tool, arguments and outcome."""
    count = 0
    for execution in reversed(executions):
        if _essence(execution) != _essence(executions[-1]):
            break
        count += 1
    return count


def _essence(execution: ToolExecution) -> tuple[str, str, str | None, str | None]:
    return execution.tool_name, canonical(execution.arguments), execution.result, execution.error

"""Checkpointers for llmfy's `FlowEngine`.

    from llmfy import FlowEngine
    from locus.integrations.llmfy import LlmfyCheckpointer

    flow = FlowEngine(State, checkpointer=LlmfyCheckpointer("sqlite:flows.db"))

`LlmfyCheckpointer` works on every backend and needs the extra `llmfy`. It is imported when it is first used, because
importing llmfy takes seconds. `InMemoryCheckpointer` and `Checkpoint` have the same contract and do not need llmfy.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from locus.integrations.llmfy.in_memory import Checkpoint, CheckpointMetadata, InMemoryCheckpointer

if TYPE_CHECKING:
    from locus.integrations.llmfy.checkpointer import LlmfyCheckpointer

__all__ = ["Checkpoint", "CheckpointMetadata", "InMemoryCheckpointer", "LlmfyCheckpointer"]


def __getattr__(name: str) -> Any:
    if name == "LlmfyCheckpointer":
        from locus.integrations.llmfy.checkpointer import LlmfyCheckpointer

        return LlmfyCheckpointer
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

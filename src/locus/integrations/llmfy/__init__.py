"""Checkpointers for llmfy's `FlowEngine`.

The one in memory needs nothing else; `LlmfyCheckpointer`, on every backend, needs the extra `llmfy`.
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

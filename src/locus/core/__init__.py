"""The data that agents are made of: messages, tool calls and the immutable state."""

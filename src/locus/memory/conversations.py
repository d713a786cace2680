"""Where the payloads of the frameworks keep their conversations, and what the items of these say.

A payload's conversation is one of its lists. Where it is depends on who saved it:

    ("messages",)                        our agent, flows of CrewAI, and plain dicts of most people
    ("channel_values", "messages")       LangGraph
    ("items",)                           logs: sessions of the OpenAI Agents SDK and the Claude Agent SDK, events of
                                         Google ADK, snapshots of Strands, and others
    ("said",), ("said:clerk",)           sessions of Strands: a list for each agent
    ("state", "in_memory", "messages")   a session of the Microsoft Agent Framework that keeps its messages itself
    ("history",)                         tasks of A2A, and lists of that name elsewhere

`utterance_of` turns an item into an `Utterance`, whatever the names of its fields, and `utterances_of` an item that
says several things (a thought and an answer, the results of several calls) into one for each. Pure functions that
import none of the frameworks. A payload of another shape fails nothing: it is shown as the JSON that it is.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, Final

from locus.core.media import media_label
from locus.memory.model.codec import decode
from locus.memory.model.records import Path, Write

CONVERSATIONS: Final[tuple[Path, ...]] = (
    ("messages",),
    ("channel_values", "messages"),
    ("items",),
    ("said",),
    ("state", "in_memory", "messages"),
)
"""The paths where a conversation can be, the likeliest first."""

BESIDE: Final = {"agent-framework-session": "agent-framework"}
"""The namespace with the conversation of another namespace: the Agent Framework keeps messages beside its sessions."""

_ROLES: Final = {
    "human": "user",
    "ai": "assistant",
    "model": "assistant",
    "ROLE_USER": "user",
    "ROLE_AGENT": "assistant",
    "function": "tool",
    "HumanMessage": "user",
    "HumanMessageChunk": "user",
    "AIMessage": "assistant",
    "AIMessageChunk": "assistant",
    "SystemMessage": "system",
    "ToolMessage": "tool",
    "FunctionMessage": "tool",
    "ChatMessage": "user",
}
_RESULTS: Final = frozenset({"function_call_output", "computer_call_output", "custom_tool_call_output"})
_CALLS: Final = frozenset({"tool_use", "tool_call", "function_call"})
_RESULT_PARTS: Final = frozenset({"tool_result", "function_result"})
_PYDANTIC_RESULTS: Final = frozenset({"tool-return", "retry-prompt"})
_SYSTEM_PROMPT: Final = "system-prompt"
_THOUGHT_PARTS: Final = frozenset({"thinking", "reasoning", "text_reasoning"})
_THOUGHT_TEXTS: Final = ("thinking", "reasoning", "text", "content", "summary")
_PARTS: Final = (("message", "parts"), ("message", "content"), ("content", "parts"), ("content",), ("contents",))
THOUGHTS: Final = "reasoning"
"""The role of what a model says to itself."""
_CONTENTS: Final = ("content", "contents", "parts", "text", "message")
_OF_AN_AGENT: Final = "said:"
_ABOUT: Final = {
    "custom-title": "customTitle",
    "ai-title": "aiTitle",
    "last-prompt": "lastPrompt",
    "summary": "summary",
    "tag": "tag",
}
"""Entries of the Claude Agent SDK that are about a session, and the fields with their texts."""
_MOST_PARTS: Final = 200
_DEEPEST: Final = 8


@dataclass(frozen=True, slots=True)
class Call:
    """A tool call in an utterance."""

    name: str
    arguments: Any
    call_id: str | None = None


@dataclass(frozen=True, slots=True)
class Utterance:
    """One item of a conversation in words: who speaks, the text, and tool calls. The rest is in the item itself."""

    role: str
    """`user`, `assistant`, `system`, `tool`, or what the item calls itself."""
    text: str
    calls: tuple[Call, ...] = ()
    answers: str | None = None
    """The id of the call whose result this is."""
    name: str | None = None
    """The name of the tool, for a result; or of the speaker."""
    failed: bool = False
    """Whether it is an error: of the tool, for a result; or of the model."""
    thought: str = ""
    """What the model says to itself beside it."""


def conversation_path(lists: Iterable[Path]) -> Path | None:
    """The path of the list that is a payload's conversation; None if none is known to be."""
    known = set(lists)
    for path in CONVERSATIONS:
        if path in known:
            return path
    return min(filter(_is_conversation, known), key=lambda path: (len(path), path), default=None)


def message_in(item: Any) -> Any:
    """The message that an item wraps: for Strands after a redaction, for the Claude Agent SDK with its role.

    An item that wraps none is a message itself.
    """
    if not isinstance(item, dict) or "role" in item or "content" in item:
        return item
    message = item.get("redact_message") or item.get("message")
    if not isinstance(message, dict) or not ({"role", "content"} & message.keys()):
        return item
    if item.get("isMeta") is True:  # the program says it in the name of the user
        return {**message, "role": "system"}
    return message if "role" in message else {**message, "role": item.get("type")}


def utterances_of(item: Any) -> list[Utterance]:
    """Everything that an item says, in its order: system prompt, thought, words with calls, and each result alone."""
    said: list[Utterance] = []
    for piece in _pieces(item):
        one = utterance_of(piece)
        if one.thought:
            said.append(Utterance(THOUGHTS, one.thought, name=one.name))
            one = replace(one, thought="")
        if one.answers is not None and one.role == "user":
            one = replace(one, role="tool")
        said.append(one)
    told = [one for one in said if one.text or one.calls or one.answers is not None]
    return told or said


def _pieces(item: Any) -> list[Any]:
    """An item, taken apart where its parts are said by several: results of several calls, a system prompt, a user."""
    path = _path_of_parts(item)
    if path is None:
        return [item]
    parts = item
    for step in path:
        parts = parts[step]
    groups: list[tuple[object, list[Any]]] = []
    for at, part in enumerate(parts[: _MOST_PARTS + 1]):
        kind = _kind_of_part(part)
        group: object = (kind, at) if kind == "result" else kind
        if not groups or groups[-1][0] != group:
            groups.append((group, []))
        groups[-1][1].append(part)
    pieces = [_with_parts(item, path, some) for _, some in groups]
    message = item.get("message")
    instructions = message.get("instructions") if isinstance(message, dict) else None
    if isinstance(instructions, str) and path == ("message", "parts") and _has_prompt(parts):
        pieces.insert(0, _with_parts(item, path, [{"part_kind": _SYSTEM_PROMPT, "content": instructions}]))
    return pieces if len(pieces) > 1 and len(parts) <= _MOST_PARTS else [item]


def _path_of_parts(item: Any) -> tuple[str, ...] | None:
    """Where an item has its parts; None if it has no list of them."""
    for path in _PARTS:
        value = item
        for step in path:
            value = value.get(step) if isinstance(value, dict) else None
        if isinstance(value, list):
            return path
    return None


def _kind_of_part(part: Any) -> str:
    if not isinstance(part, dict):
        return ""
    kind = _text(part.get("part_kind"))
    if _text(part.get("type")) in _RESULT_PARTS or kind in _PYDANTIC_RESULTS:
        return "result"
    if {"toolResult", "function_response"} & part.keys():
        return "result"
    return _SYSTEM_PROMPT if kind == _SYSTEM_PROMPT else ""


def _has_prompt(parts: Sequence[Any]) -> bool:
    return any(isinstance(part, dict) and part.get("part_kind") == "user-prompt" for part in parts)


def _with_parts(value: Any, path: Sequence[str], parts: list[Any]) -> Any:
    return {**value, path[0]: _with_parts(value[path[0]], path[1:], parts)} if path else parts


def _thought_of(parts: Any) -> str:
    """What a model says to itself in the parts of an item."""
    found = map(_thought, parts[:_MOST_PARTS]) if isinstance(parts, list) else ()
    return "\n".join(filter(None, found))


def _is_thought(part: Any) -> bool:
    return isinstance(part, dict) and (
        _text(part.get("type", part.get("part_kind"))) in _THOUGHT_PARTS
        or part.get("thought") is True
        or isinstance(part.get("reasoningContent"), dict)
    )


def _thought(part: Any) -> str:
    """The text of a part that is a thought; empty if it is none."""
    if not _is_thought(part):
        return ""
    inner = part.get("reasoningContent")
    if isinstance(inner, dict):
        return _text_of(inner.get("reasoningText", inner))
    return _text_of(next((part[name] for name in _THOUGHT_TEXTS if part.get(name)), None))


def _is_conversation(path: Path) -> bool:
    return path[-1] in {"messages", "items", "history"} or (len(path) == 1 and path[0].startswith(_OF_AN_AGENT))


def utterance_of(item: Any) -> Utterance:
    """An item of a conversation in words. Any JSON may come; the text of an unknown item is the JSON itself."""
    if isinstance(item, str):
        return Utterance("", item)
    if not isinstance(item, dict):
        return Utterance("", _json(item))
    if "invocation_id" in item and "author" in item:
        return _adk_event(item)
    message = item.get("message")
    if isinstance(message, dict) and isinstance(message.get("parts"), list):
        return _entry_of_pydantic_ai(message)
    message = message_in(item)
    if message is not item:
        return utterance_of(message)
    kind = _text(item.get("type"))
    if kind in _RESULTS:
        return Utterance("tool", _text_of(item.get("output")), answers=_text(item.get("call_id")))
    if kind is not None and kind.endswith("_call"):
        call = Call(_text(item.get("name")) or kind, _arguments(item), _text(item.get("call_id")))
        return Utterance("assistant", "", (call,))
    if kind == THOUGHTS:
        return Utterance(THOUGHTS, _text_of(item.get("summary")) or _text_of(item.get("content")))
    if kind in _ABOUT and isinstance(item.get(_ABOUT[kind]), str):
        return Utterance(kind, item[_ABOUT[kind]])
    content = next((item[name] for name in _CONTENTS if item.get(name) is not None), None)
    role = _role(item)
    if not role and content is None:
        return Utterance("", _json(item))
    thought = _thought_of(content) or _text(item.get("reasoning_content")) or ""
    return Utterance(
        role,
        "" if thought and content is None else _text_of(content),
        tuple(_calls(item, content)),
        answers=_text(item.get("tool_call_id")) or _answered(content),
        name=_text(item.get("name")),
        failed=_has_failed(item, content),
        thought=thought,
    )


def _adk_event(event: dict[str, Any]) -> Utterance:
    """An event of Google ADK in words. The parts of its content are texts, calls, results and data."""
    content, author = event.get("content"), _text(event.get("author"))
    given = content.get("parts") if isinstance(content, dict) else None
    parts = [part for part in given[:_MOST_PARTS] if isinstance(part, dict)] if isinstance(given, list) else []
    texts: list[str] = []
    calls: list[Call] = []
    answers = name = None
    failed = isinstance(event.get("error_code"), str)
    for part in parts:
        call, result = part.get("function_call"), part.get("function_response")
        if isinstance(call, dict):
            calls.append(Call(_text(call.get("name")) or "?", _arguments(call), _text(call.get("id"))))
        elif _is_thought(part):
            continue
        elif isinstance(result, dict):
            failed = failed or _is_error(result.get("response"))
            answers, name = answers or _text(result.get("id")), name or _text(result.get("name"))
            texts.append(_response_text(result.get("response")))
        elif isinstance(part.get("text"), str):
            texts.append(part["text"])
        else:
            texts.append(media_label(part) or _json(part))
    if not parts:
        texts.append(_text(event.get("error_message")) or "")
    text = "\n".join(filter(None, texts))
    if name is not None or answers is not None:
        return Utterance("tool", text, tuple(calls), answers, name, failed)
    if author == "user":
        return Utterance("user", text, tuple(calls))
    return Utterance("assistant", text, tuple(calls), name=author, failed=failed, thought=_thought_of(parts))


def _is_error(response: Any) -> bool:
    """Whether a tool's response in ADK is the error that took the place of a result."""
    return (
        isinstance(response, dict) and response.get("error") is not None and not response.keys() - {"error", "result"}
    )


def _has_failed(item: dict[str, Any], content: Any) -> bool:
    """Whether an item, or the result in it, is the error of a tool."""
    metadata = item.get("metadata")
    if item.get("status") == "error" or (isinstance(metadata, dict) and isinstance(metadata.get("error"), str)):
        return True
    for part in content[:_MOST_PARTS] if isinstance(content, list) else ():
        if isinstance(part, dict):
            inner = part.get("toolResult")
            if part.get("is_error") is True or (isinstance(inner, dict) and inner.get("status") == "error"):
                return True
            if part.get("type") == "function_result" and part.get("exception"):
                return True
    return False


def _response_text(response: Any) -> str:
    """The text of a tool's response. ADK wraps a response that is no dict: `{"result": 5}`, and an error."""
    if _is_error(response):
        return _text_of(response["error"])
    wrapped = isinstance(response, dict) and response.keys() == {"result"}
    return _text_of(response["result"] if wrapped else response)


def _entry_of_pydantic_ai(message: dict[str, Any]) -> Utterance:
    """A message of Pydantic AI in words: a request has prompts, results or both, a response has texts and calls."""
    by_kind: dict[str, list[dict[str, Any]]] = {}
    for part in message["parts"][:_MOST_PARTS]:
        if isinstance(part, dict):
            by_kind.setdefault(_text(part.get("part_kind")) or "", []).append(part)

    def said(*kinds: str) -> str:
        return _text_of([part.get("content") for kind in kinds for part in by_kind.get(kind, ())])

    if message.get("kind") == "response":
        calls = (*by_kind.get("builtin-tool-call", ()), *by_kind.get("tool-call", ()))
        made = (
            Call(_text(call.get("tool_name")) or "?", _arguments(call), _text(call.get("tool_call_id")))
            for call in calls
        )
        text, thought = said("text", "compaction", "builtin-tool-return"), said("thinking")
        return Utterance("assistant", text, tuple(made), thought=thought)
    if "user-prompt" in by_kind:
        return Utterance("user", said("user-prompt"))
    results = (*by_kind.get("tool-return", ()), *by_kind.get("retry-prompt", ()))
    if results:
        call_id, name = _text(results[0].get("tool_call_id")), _text(results[0].get("tool_name"))
        failed = any(part.get("part_kind") == "retry-prompt" or part.get("outcome") == "failed" for part in results)
        return Utterance("tool", said("tool-return", "retry-prompt"), answers=call_id, name=name, failed=failed)
    return Utterance("system", said(*by_kind))


def _role(item: dict[str, Any]) -> str:
    for name in ("role", "$type", "type", "sender"):
        role = item.get(name)
        if isinstance(role, str):
            return _ROLES.get(role, role)
    return ""


def _text_of(content: Any, depth: int = 0) -> str:
    """The text of a content, which may be parts of several kinds."""
    if content is None:
        return ""
    if isinstance(content, str):
        return content
    if isinstance(content, list) and depth < _DEEPEST:
        shown = [
            _text_of(part, depth + 1) for part in content[:_MOST_PARTS] if not (_is_call(part) or _is_thought(part))
        ]
        more = [f"… {len(content) - _MOST_PARTS:,} more"] if len(content) > _MOST_PARTS else []
        return "\n".join([*filter(None, shown), *more])
    if isinstance(content, dict) and depth < _DEEPEST:
        if isinstance(content.get("toolResult"), dict):
            content = content["toolResult"]
        if "text" not in content and (label := media_label(content)) is not None:
            return label
        for name in ("text", "output_text", "refusal", "content", "output", "result"):
            if content.get(name) is not None:
                return _text_of(content[name], depth + 1)
    return _json(content)


def _is_call(part: Any) -> bool:
    return isinstance(part, dict) and (_text(part.get("type")) in _CALLS or "toolUse" in part)


def _calls(item: dict[str, Any], content: Any) -> Iterable[Call]:
    given = item.get("tool_calls")
    calls = [part for part in given if isinstance(part, dict)] if isinstance(given, list) else []
    calls += filter(_is_call, content) if isinstance(content, list) else []
    for part in calls[:_MOST_PARTS]:
        inner = part.get("toolUse") or part.get("function") or part
        if isinstance(inner, dict):
            name = _text(inner.get("name")) or "?"
            named = (part.get("call_id"), part.get("id"), inner.get("toolUseId"), inner.get("tool_call_id"))
            call_id = next(filter(None, map(_text, named)), None)
            yield Call(name, _arguments(inner), call_id)


def _answered(content: Any) -> str | None:
    """The id of the call whose result is one of the parts of a content."""
    for part in content[:_MOST_PARTS] if isinstance(content, list) else ():
        if isinstance(part, dict):
            inner = part.get("toolResult")
            call_id = part.get("tool_use_id") or (inner.get("toolUseId") if isinstance(inner, dict) else None)
            if part.get("type") == "function_result":
                call_id = part.get("call_id")
            if isinstance(call_id, str):
                return call_id
    return None


def _arguments(call: dict[str, Any]) -> Any:
    # A call without arguments is stored without them.
    arguments: Any = next((call[name] for name in ("arguments", "args", "input", "action") if name in call), {})
    if isinstance(arguments, str):
        with suppress(ValueError, RecursionError):
            return json.loads(arguments)
    return arguments


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) and value else None


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


MESSAGES_CHANNEL: Final = "messages"
"""The channel of a graph in which LangGraph's tasks write messages."""


def messages_in(writes: Iterable[Write]) -> list[Any]:
    """The messages that tasks have written, in their order."""
    items: list[Any] = []
    for write in writes:
        if write.channel == MESSAGES_CHANNEL:
            value = decode(write.value)
            if isinstance(value, dict) and isinstance(value.get("value"), list):  # a tuple, or an overwritten list
                value = value["value"]
            items += value if isinstance(value, list) else [value]
    return items

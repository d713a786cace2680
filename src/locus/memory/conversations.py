"""Where the payloads of the frameworks keep their conversations, and what the items of these say.

A payload's conversation is one of its lists. Where it is depends on who saved it:

    ("messages",)                        our agent, flows of CrewAI, and plain dicts of most people
    ("channel_values", "messages")       LangGraph
    ("items",)                           logs: sessions of the OpenAI Agents SDK and the Claude Agent SDK, events of
                                         Google ADK, snapshots of Strands, and others
    ("said",), ("said:clerk",)           sessions of Strands: a list for each agent
    ("state", "in_memory", "messages")   a session of the Microsoft Agent Framework that keeps its messages itself
    ("history",)                         tasks of A2A, and lists of that name elsewhere

`utterance_of` turns an item into an `Utterance`, whatever the names of its fields. Pure functions that import none of
the frameworks. A payload of another shape fails nothing: it is shown as the JSON that it is.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

from locus.memory.model.records import Path

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
    if kind == "reasoning":
        return Utterance("reasoning", _text_of(item.get("summary")) or _text_of(item.get("content")))
    if kind in _ABOUT and isinstance(item.get(_ABOUT[kind]), str):
        return Utterance(kind, item[_ABOUT[kind]])
    content = next((item[name] for name in _CONTENTS if item.get(name) is not None), None)
    role = _role(item)
    if not role and content is None:
        return Utterance("", _json(item))
    return Utterance(
        role,
        _text_of(content),
        tuple(_calls(item, content)),
        answers=_text(item.get("tool_call_id")) or _answered(content),
        name=_text(item.get("name")),
    )


def _adk_event(event: dict[str, Any]) -> Utterance:
    """An event of Google ADK in words. The parts of its content are texts, calls, results and data."""
    content, author = event.get("content"), _text(event.get("author"))
    given = content.get("parts") if isinstance(content, dict) else None
    parts = [part for part in given[:_MOST_PARTS] if isinstance(part, dict)] if isinstance(given, list) else []
    texts: list[str] = []
    calls: list[Call] = []
    answers = name = None
    for part in parts:
        call, result = part.get("function_call"), part.get("function_response")
        if isinstance(call, dict):
            calls.append(Call(_text(call.get("name")) or "?", _arguments(call), _text(call.get("id"))))
        elif isinstance(result, dict):
            answers, name = answers or _text(result.get("id")), name or _text(result.get("name"))
            texts.append(_response_text(result.get("response")))
        elif isinstance(part.get("text"), str):
            texts.append(part["text"])
        else:
            kind = next((kind for kind in ("inline_data", "file_data") if kind in part), None)
            texts.append(f"[{kind}]" if kind else _json(part))
    if not parts:
        texts.append(_text(event.get("error_message")) or "")
    text = "\n".join(filter(None, texts))
    if name is not None or answers is not None:
        return Utterance("tool", text, tuple(calls), answers, name)
    if author == "user":
        return Utterance("user", text, tuple(calls))
    return Utterance("assistant", text, tuple(calls), name=author)


def _response_text(response: Any) -> str:
    """The text of a tool's response. ADK wraps a response that is no dict: `{"result": 5}`."""
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
        return Utterance("assistant", said("text", "compaction", "builtin-tool-return"), tuple(made))
    if "user-prompt" in by_kind:
        return Utterance("user", said("user-prompt"))
    results = (*by_kind.get("tool-return", ()), *by_kind.get("retry-prompt", ()))
    if results:
        call_id, name = _text(results[0].get("tool_call_id")), _text(results[0].get("tool_name"))
        return Utterance("tool", said("tool-return", "retry-prompt"), answers=call_id, name=name)
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
        shown = [_text_of(part, depth + 1) for part in content[:_MOST_PARTS] if not _is_call(part)]
        more = [f"… {len(content) - _MOST_PARTS:,} more"] if len(content) > _MOST_PARTS else []
        return "\n".join([*filter(None, shown), *more])
    if isinstance(content, dict) and depth < _DEEPEST:
        if isinstance(content.get("toolResult"), dict):
            content = content["toolResult"]
        for name in ("text", "output_text", "refusal", "content", "output", "result"):
            if content.get(name) is not None:
                return _text_of(content[name], depth + 1)
        kind = content.get("type", content.get("kind", content.get("mediaType")))
        if isinstance(kind, str) and ({"url", "uri", "raw", "data", "image_url", "file_id", "source"} & content.keys()):
            return f"[{kind}]"
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
            call_id = _text(part.get("id")) or _text(inner.get("toolUseId")) or _text(inner.get("call_id"))
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

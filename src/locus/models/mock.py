"""A model that needs no key and no network, and follows the conversation all the same.

It remembers what it is told, answers questions about it, calls the tools that a request asks for, and answers
from their results. The same conversation always gets the same answer. `MockModel(script=[…])` replays
responses instead, for tests.

What the mock understands of a conversation: facts that were told, and questions about them.

Arguments that the mock finds for a tool in the words of a request.

Which tools the mock calls for a request, and with which arguments.
"""

from __future__ import annotations

import hashlib
import inspect
import json
import re
from collections.abc import (
    AsyncIterator,
    Callable,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from locus.core.messages import Message, Role, ToolCall
from locus.errors import ConfigurationError
from locus.models.base import (
    STOP,
    TOOL_CALLS,
    ModelChunk,
    ModelResponse,
    ToolSpec,
    usage_of,
)
from locus.models.errors import ModelError

_VALUE = r"(?P<value>[^.!?;\n]*(?:[.](?=\w)[^.!?;\n]*)*)"
_ME = r"(?:i am|i'm|i’m|im)"
_PATTERNS: tuple[tuple[str, re.Pattern[str]], ...] = tuple(
    (attribute, re.compile(rf"(?i){pattern}"))
    for attribute, pattern in (
        ("name", rf"\b(?:my name is|my name's|call me|{_ME} called)\s+(?P<value>[\w'’-]+(?: (?-i:[A-Z])[\w'’-]+)*)"),
        ("name", rf"\b{_ME}\s+(?P<value>(?-i:[A-Z][\w'’-]+(?: [A-Z][\w'’-]+)*))"),
        ("job", rf"\b(?:i work as|my job is|{_ME} working as)\s+{_VALUE}"),
        ("job", rf"\b{_ME}\s+(?P<value>an?\s+(?!fan\b|bit\b|lot\b)[^.!?;,\n]+)"),
        ("employer", rf"\bi work (?:at|for)\s+{_VALUE}"),
        ("home", rf"\b(?:i live in|{_ME} from|i come from)\s+{_VALUE}"),
        ("age", rf"\b{_ME}\s+(?P<value>\d+(?: years old)?)\b"),
        (
            "likes",
            rf"\b(?:i(?: really)? (?:likes?|loves?|enjoys?|prefers?|adores?)|{_ME} (?:a fan of|into))\s+{_VALUE}",
        ),
        ("dislikes", rf"\bi (?:hates?|dislikes?|don't like|can't stand)\s+{_VALUE}"),
        ("belongings", rf"\bi (?:have|own)\s+{_VALUE}"),
        ("plans", rf"\bi (?:want|plan|need) to\s+{_VALUE}"),
        (
            "",
            r"\b(?P<owner>my|our|the)\s+"
            r"(?P<attribute>(?!name\b|job\b)[\w'’-]+(?: (?!is\b|are\b|was\b|were\b)[\w'’-]+){0,4})"
            rf"\s+(?:is|are|was|were)\s+(?!there\b|not sure\b){_VALUE}",
        ),
    )
)
_SAYINGS = {
    "name": "Your name is {}.",
    "job": "You work as {}.",
    "employer": "You work for {}.",
    "home": "You live in {}.",
    "age": "You are {}.",
    "likes": "You like {}.",
    "dislikes": "You don't like {}.",
    "belongings": "You have {}.",
    "plans": "You want to {}.",
}
_TOPICS: tuple[tuple[str, re.Pattern[str]], ...] = (
    ("name", re.compile(r"\bname\b|\bwho am i\b|\bcalled\b")),
    ("employer", re.compile(r"\bemployer\b|\bcompany\b|\bwork (?:for|at)\b")),
    ("job", re.compile(r"\bjob\b|\bprofession\b|\boccupation\b|\bwork\b|\bfor a living\b|\bwhat do i do\b")),
    ("home", re.compile(r"\bwhere (?:do i live|am i from)\b|\bcity\b|\bhome\b|\blive\b")),
    ("age", re.compile(r"\bhow old\b|\bage\b")),
    ("belongings", re.compile(r"\bdo i (?:have|own)\b")),
    ("dislikes", re.compile(r"\bdislike\b|\bhate\b|\bdon't i like\b")),
    ("likes", re.compile(r"\bfavou?rites?\b|\blike\b|\blove\b|\benjoy\b|\bprefer\b|\bhobb(?:y|ies)\b")),
)
_MANY = frozenset({"likes", "dislikes", "belongings"})
_QUESTION = re.compile(
    r"(?i)^\W*(?:(?:and|so|now|please|hey|hi|hello)\W+)*"
    r"(?:what|who|whom|whose|which|where|when|why|how|do|does|did|is|are|was|were|can|could|will|would|have|has|"
    r"tell me (?!that\b)|remind me|list|show|do you)\b"
)
_IDLE = frozenset(
    re.findall(
        r"\S+",
        "a again an and are at be can could did do does for from give have how i in is it know me my now of on or our "
        "please remember remind tell that the their them they this to us was we were what what's whats when where "
        "which who whose why will with would you your",
    )
)


@dataclass(frozen=True)
class Fact:
    """Something that was told: an attribute and its value, and the sentence to say it back with."""

    attribute: str
    value: str
    saying: str
    words: frozenset[str]


def is_question(text: str) -> bool:
    return text.rstrip().endswith("?") or _QUESTION.match(text) is not None


def words_in(text: str) -> frozenset[str]:
    """The words that mean something, without the endings that English puts on them."""
    found = re.findall(r"[a-z0-9]+(?:['’][a-z]+)?", text.lower())
    return frozenset(stem(word) for word in found if word not in _IDLE)


def stem(word: str) -> str:
    word = re.sub(r"['’]s?$", "", word).replace("favourite", "favorite").replace("colour", "color")
    for ending, rest in (("ies", "y"), ("sses", "ss"), ("es", "e"), ("s", "")):
        if len(word) > 3 and word.endswith(ending) and not word.endswith("ss"):
            return word.removesuffix(ending) + rest
    return word


@lru_cache(maxsize=8192)
def facts_in(text: str) -> tuple[Fact, ...]:
    """The facts that a person tells in this text."""
    found: list[Fact] = []
    for sentence in _sentences(text):
        if not is_question(sentence):
            found.extend(_facts(sentence))
    return tuple(found)


def facts_told(messages: Sequence[Message]) -> Iterator[Fact]:
    """All facts of a conversation, the newest first."""
    for message in reversed(messages):
        if message.role is Role.USER:
            yield from reversed(facts_in(message.text))
        elif message.role is not Role.TOOL:
            # "You have two notes" was true when it was said; what a person is called stays so.
            lasting = facts_in(_as_told_by_the_user(message.text))
            yield from (fact for fact in reversed(lasting) if fact.attribute not in ("belongings", "plans"))


def answer_about(question: str, told: Iterable[Fact]) -> str | None:
    """What the facts say about a question, or None."""
    facts = list(told)
    asked = words_in(question)
    lowered = question.lower()
    named = [fact for fact in facts if fact.attribute not in _SAYINGS and fact.words and fact.words <= asked]
    if named:
        return max(named, key=lambda fact: len(fact.words)).saying
    for topic, pattern in _TOPICS:
        about = [fact for fact in facts if fact.attribute == topic]
        if about and pattern.search(lowered):
            return _together(about) if topic in _MANY else about[0].saying
    if re.search(r"\babout me\b|\bi (?:just )?(?:told|said|tell)\b|\bremember\b.*\?", lowered) and facts:
        return _together(facts)
    near = [fact for fact in facts if fact.words & asked]
    return near[0].saying if near else None


def acknowledgement(facts: Sequence[Fact]) -> str:
    """What to reply to somebody who told these facts."""
    name = next((fact.value for fact in facts if fact.attribute == "name"), None)
    others = [fact.saying for fact in facts if fact.attribute != "name"]
    greeting = f"Nice to meet you, {name}." if name else "Thank you for telling me."
    return " ".join([greeting, *others, "I'll remember that."])


def _together(facts: Sequence[Fact]) -> str:
    """In the order in which they were told, each once."""
    return " ".join(dict.fromkeys(fact.saying for fact in reversed(facts)))


def _sentences(text: str) -> list[str]:
    return [part for part in re.split(r"(?<=[.!?])\s+|\n+", text) if part.strip()]


def _facts(sentence: str) -> Iterator[Fact]:
    for clause in re.split(r"(?i)(?:,\s*|\s+)(?:and|but)\s+(?=i\b|i'|my\b|the\b)|,\s+(?=i\b|my\b)", sentence):
        for attribute, pattern in _PATTERNS:
            match = pattern.search(clause)
            value = match["value"].strip(" \t\"'*,:") if match else ""
            if match and value:
                yield _fact(attribute, match, value, clause)
                break


def _fact(attribute: str, match: re.Match[str], value: str, clause: str) -> Fact:
    if attribute:
        saying = _SAYINGS[attribute].format(value)
        return Fact(attribute, value, saying, words_in(clause) - words_in(value) | {attribute})
    named = match["attribute"]
    owner = "The" if match["owner"].lower() == "the" else "Your"
    verb = re.search(r"(?i)\b(is|are|was|were)\b", clause[match.end("attribute") :])
    saying = f"{owner} {named} {verb[1].lower() if verb else 'is'} {value}."
    return Fact(named.lower(), value, saying, words_in(named))


def _as_told_by_the_user(text: str) -> str:
    """What others say of the user, in the user's words: summaries, and the assistant's own answers."""
    theirs = [part for part in _sentences(text) if not re.search(r"(?i)\b(?:i|i'm|i'll|my)\b", part)]
    told = [part for part in theirs if re.search(r"(?i)\b(?:the user|the user's|user's|your|you)\b", part)]
    joined = re.sub(r"(?i)\b(?:the user's|user's|your)\b", "my", "\n".join(told))
    return re.sub(r"(?i)\b(?:the user|you)\b", "I", joined)


QUOTED = re.compile(r"\"([^\"]*)\"|“([^”]*)”|(?<!\w)'([^']*)'(?!\w)|`([^`]*)`")
_NUMBER = re.compile(r"(?<![\w.])-?\d+(?:\.\d+)?(?![\w]|\.\d)")
_LEADING = re.compile(
    r"(?i)^(?:[\s,:]+|(?:to|that|about|for|in|of|on|at|from|saying|called|named|with|the|a|an|note|is|me|my|as|tool|"
    r"some|this|and)\b\s*)+"
)
PATH = re.compile(r"(?:[\w./~-]*/[\w./-]+|\b[\w-]+\.[a-z]\w{0,4}\b)")
_SHAPES = {
    "path": PATH,
    "url": re.compile(r"https?://[^\s'\"]+"),
    "email": re.compile(r"[\w.+-]+@[\w-]+\.[\w.]+"),
}
_SHAPE_NAMES = {"path": "path", "file": "path", "filename": "path", "file_path": "path", "url": "url", "email": "email"}


def arguments_for(
    tool: ToolSpec, clause: str, name_words: frozenset[str], description_words: frozenset[str]
) -> tuple[dict[str, Any], list[str]]:
    """The arguments that a clause gives, and the names of required ones that it does not."""
    properties: Mapping[str, Any] = tool.parameters.get("properties", {})
    found = _json_arguments(clause, properties)
    for name, schema in properties.items():
        if name not in found and (given := _named(name, schema, clause)) is not None:
            found[name] = given
    rest = _Rest(clause, name_words, description_words)
    missing: list[str] = []
    required = [name for name in tool.parameters.get("required", ()) if name not in found]
    for name in sorted(required, key=lambda name: name not in _SHAPE_NAMES):
        value = rest.take(name, properties[name])
        if value is None:
            missing.append(name)
        else:
            found[name] = value
    return found, missing


def _json_arguments(clause: str, properties: Mapping[str, Any]) -> dict[str, Any]:
    start, end = clause.find("{"), clause.rfind("}")
    if start < 0 or end < start:
        return {}
    try:
        value = json.loads(clause[start : end + 1])
    except ValueError:
        return {}
    return {name: value[name] for name in properties if name in value} if isinstance(value, dict) else {}


def _named(name: str, schema: Mapping[str, Any], clause: str) -> Any:
    """`name=value`, or `name: value` up to the end."""
    match = re.search(
        rf"(?i)(?<!\w){re.escape(name)}\s*(?:=\s*(?P<word>\"[^\"]*\"|'[^']*'|[^\s,;]+)|:\s*(?P<rest>.+))", clause
    )
    if match is None:
        return None
    return _as_type((match["word"] or match["rest"]).strip().strip("\"'"), schema)


def _as_type(text: str, schema: Mapping[str, Any]) -> Any:
    kind = schema.get("type", "string")
    if kind in ("integer", "number"):
        match = _NUMBER.search(text)
        return None if match is None else (int(float(match[0])) if kind == "integer" else float(match[0]))
    if kind == "boolean":
        return text.lower() in ("true", "yes", "on", "1")
    if kind == "array":
        item = schema.get("items", {})
        parts = re.split(r",\s*(?:and\s+)?|\s+and\s+", text)
        return [value for part in parts if (value := _as_type(part.strip(), item)) is not None]
    return text


class _Rest:
    """What of a clause no argument has taken yet."""

    def __init__(self, clause: str, name_words: frozenset[str], description_words: frozenset[str]) -> None:
        self._clause = clause
        self._name_words = name_words
        self._description_words = description_words
        self._quoted = [next(group for group in match if group is not None) for match in _groups(clause)]
        self._numbers = [match[0] for match in _NUMBER.finditer(clause)]
        self._used = False

    def take(self, name: str, schema: Mapping[str, Any]) -> Any:
        """A value of the wanted kind, or None."""
        if "enum" in schema:
            said = self._clause.lower()
            return next((value for value in schema["enum"] if str(value).lower() in said), None)
        kind = schema.get("type", "string" if "$ref" not in schema else "object")
        if kind in ("integer", "number"):
            return _as_type(self._numbers.pop(0), schema) if self._numbers else None
        if kind == "boolean":
            return not re.search(r"(?i)\b(?:not|no|without|off)\b", self._clause)
        if kind == "object":
            return None
        text = self._text(name)
        return None if text is None else _as_type(text, schema)

    def _text(self, name: str) -> str | None:
        shape = _SHAPES.get(_SHAPE_NAMES.get(name, ""))
        if shape is not None:
            match = shape.search(self._clause)
            if match is not None:
                self._quoted = [text for text in self._quoted if text != match[0]]
                return match[0]
        if self._quoted:
            return self._quoted.pop(0)
        if self._used:
            return None
        self._used = True
        return self._unquoted() or None

    def _unquoted(self) -> str:
        """What follows the colon, or the last of the words that the tool was recognised by."""
        head, colon, tail = self._clause.partition(":")
        if colon and tail.strip() and not head.rstrip().endswith(("http", "https")):
            return tail.strip()
        end = 0
        for word in re.finditer(r"[A-Za-z_]+", self._clause):
            if stem(word[0].lower()) in self._name_words or "_" in word[0]:
                end = word.end()
        if end == 0:
            first = re.match(r"\s*\S+", self._clause)
            end = first.end() if first else 0
        tail = self._clause[end:]
        # "Search the web for news": the web is where the tool searches, and not what for.
        place = re.match(r"(?i)\s*(?:the|a|my|all)?\s*(\w+)\s+(?=(?:for|about|of)\b)", tail)
        if place is not None and stem(place[1].lower()) in self._description_words:
            tail = tail[place.end() :]
        return _LEADING.sub("", tail).strip().rstrip("?!.").strip()


def _groups(clause: str) -> list[tuple[str | None, ...]]:
    return [match.groups() for match in QUOTED.finditer(clause)]


# A question asks for something to be looked up; each of these lines is one thing to do in several words.
_LOOKING = frozenset({"get", "list", "show", "read", "find", "search", "fetch", "lookup", "look", "query", "check"})
_SAME = (
    frozenset({"save", "store", "record", "keep", "remember", "write", "add", "put", "note"}),
    frozenset({"delete", "remove", "drop", "erase", "forget"}),
    frozenset({"change", "update", "edit", "modify"}),
    frozenset({"send", "mail", "email"}),
    frozenset({"run", "execute", "start"}),
    _LOOKING,
)
_VERBS: frozenset[str] = frozenset().union(*_SAME)
_POLITE = frozenset({"please", "can", "could", "would", "you", "and", "also", "now", "ok", "okay"})
_WHENEVER = re.compile(r"(?i)\b(?:whenever|always|every time|each time|if|when)\b")
_SHARING = re.compile(r"(?i)\b(?:facts?|shares?|tells?|about themsel(?:f|ves))\b")


@dataclass(frozen=True)
class Step:
    """Calls to make at once, or what is missing to make one."""

    calls: tuple[tuple[str, dict[str, Any]], ...] = ()
    question: str | None = None


def plan(request: str, tools: Sequence[ToolSpec], instructions: str) -> list[Step]:
    """The steps that a request asks for: "then" separates steps, and lines or semicolons calls within one."""
    standing = [step for step in (_standing_orders(request, tools, instructions),) if step is not None]
    if standing:
        return standing
    steps = [_step(part, tools) for part in re.split(r"(?i)[,.;]?\s+(?:and\s+)?then,?\s+", request)]
    return [step for step in steps if step is not None]


def _step(part: str, tools: Sequence[ToolSpec]) -> Step | None:
    calls: list[tuple[str, dict[str, Any]]] = []
    for clause in re.split(r"\n+|;\s+", part):
        tool = _wanted(clause, tools)
        if tool is None:
            continue
        arguments, missing = arguments_for(tool, clause, _name_words(tool.name), words_in(tool.description))
        if missing:
            return Step(question=f"To use {tool.name} I need: {', '.join(missing)}. What should it be?")
        calls.append((tool.name, arguments))
    return Step(tuple(calls)) if calls else None


def _standing_orders(request: str, tools: Sequence[ToolSpec], instructions: str) -> Step | None:
    """A tool that the system prompt wants called whenever the user tells something."""
    facts = facts_in(request)
    if not facts:
        return None
    for sentence in re.split(r"(?<=[.!?])\s+|\n+", instructions):
        for tool in tools:
            if tool.name in sentence and _WHENEVER.search(sentence) and _SHARING.search(sentence):
                summary = " ".join(fact.saying for fact in facts).replace("Your", "The user's").replace("You", "They")
                return Step(((tool.name, dict.fromkeys(_required_texts(tool), summary)),))
    return None


def _required_texts(tool: ToolSpec) -> Iterator[str]:
    properties: Mapping[str, Any] = tool.parameters.get("properties", {})
    for name in tool.parameters.get("required", ()):
        if properties[name].get("type", "string") == "string":
            yield name


def _wanted(clause: str, tools: Sequence[ToolSpec]) -> ToolSpec | None:
    """The tool that a clause asks for: by its full name, by the words of its name, or by its description."""
    for tool in sorted(tools, key=lambda tool: -len(tool.name)):
        if re.search(rf"(?<![\w-]){re.escape(tool.name)}(?![\w-])", clause) and "_" in tool.name:
            return tool
    best = max(tools, key=lambda tool: _score(tool, clause), default=None)
    return best if best is not None and _score(best, clause) > 0 else None


def _score(tool: ToolSpec, clause: str) -> float:
    name, said = _name_words(tool.name), _said(clause)
    meant = said | _synonyms(clause)
    if name <= meant and name & said:
        # More words in common are a closer match, and what was asked for as a question is seldom a change.
        return 10.0 + len(name) - (5.0 if is_question(clause) and tool.parameters.get("required") else 0.0)
    common = words_in(tool.description) & meant
    things = (common & said) - _VERBS
    return len(common) / 10.0 if len(common) >= 2 and things and name & meant else 0.0


def _said(clause: str) -> frozenset[str]:
    """The words of a clause's head; what follows a colon, or is quoted, is content and no request."""
    head = QUOTED.sub(" ", clause).partition(":")[0]
    words = frozenset(stem(word) for word in re.findall(r"[a-z]+", head.lower()))
    return words | {"file"} if PATH.search(clause) else words


def _synonyms(clause: str) -> frozenset[str]:
    """Other words for what the clause wants done, which its first word says."""
    if is_question(clause):
        return _LOOKING
    words = [stem(word) for word in re.findall(r"[a-z]+", clause.lower()) if word not in _POLITE]
    return frozenset().union(*(alike for alike in _SAME if words and words[0] in alike))


def _name_words(name: str) -> frozenset[str]:
    parts = re.split(r"[_-]+", re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name))
    return frozenset(stem(part.lower()) for part in parts if part)


Scripted = str | Message | ModelResponse | BaseException | type[BaseException] | Callable[..., Any]
"""What a script may hold: an answer, an exception to raise, or `function(messages, tools)` that returns one."""


@dataclass(frozen=True)
class MockCall:
    """What a scripted mock was asked."""

    messages: tuple[Message, ...]
    tools: tuple[ToolSpec, ...]
    options: dict[str, Any]


class MockModel:
    """The mock. Options that other models take (`max_tokens=…`) are accepted, and change nothing.

    With a script, `calls` lists what the model was asked, and a call past its end raises `ModelError`.
    """

    provider = "mock"

    def __init__(self, model: str = "mock", *, script: Iterable[Scripted] | None = None, **options: Any) -> None:
        self.model = model
        self.options = options
        self.calls: list[MockCall] = []
        self._script = None if script is None else list(script)
        for item in self._script or ():
            if not isinstance(item, str | Message | ModelResponse | BaseException) and not callable(item):
                raise ConfigurationError(
                    f"a script holds messages, responses, exceptions and functions, not {item!r:.80}"
                )

    def __repr__(self) -> str:
        return "MockModel()" if self._script is None else f"MockModel(script of {len(self._script)})"

    async def complete(
        self, messages: Sequence[Message], tools: Sequence[ToolSpec] | None = None, **kwargs: Any
    ) -> ModelResponse:
        if self._script is not None:
            return await self._replayed(self._script, MockCall(tuple(messages), tuple(tools or ()), kwargs))
        return _counted(_answer(messages, tools or ()), messages)

    async def stream(
        self, messages: Sequence[Message], tools: Sequence[ToolSpec] | None = None, **kwargs: Any
    ) -> AsyncIterator[ModelChunk]:
        response = await self.complete(messages, tools, **kwargs)
        for piece in re.findall(r"\s*\S+\s*$|\s*\S+", response.message.text):
            yield ModelChunk(text=piece)
        yield ModelChunk(response=response)

    async def _replayed(self, script: list[Scripted], call: MockCall) -> ModelResponse:
        self.calls.append(call)
        if len(self.calls) > len(script):
            raise ModelError(f"the script has {len(script)} responses, and the mock was called {len(self.calls)} times")
        item: Any = script[len(self.calls) - 1]
        if callable(item) and not isinstance(item, type):
            item = item(call.messages, call.tools)
            item = await item if inspect.isawaitable(item) else item
        if isinstance(item, BaseException) or (isinstance(item, type) and issubclass(item, BaseException)):
            raise item
        if isinstance(item, ModelResponse):
            return item
        if not isinstance(item, str | Message):
            raise ModelError(f"response {len(self.calls)} of the script is a {type(item).__name__}: {item!r:.80}")
        return _counted(Message.assistant(item) if isinstance(item, str) else item, call.messages)


def _counted(message: Message, messages: Sequence[Message]) -> ModelResponse:
    usage = usage_of(sum(map(_tokens, messages)), _tokens(message))
    return ModelResponse(message=message, usage=usage, stop_reason=TOOL_CALLS if message.tool_calls else STOP)


def _tokens(message: Message) -> int:
    """About four characters each, and some for the frame."""
    return 4 + len(message.text) // 4 + sum(8 + len(str(call.arguments)) // 4 for call in message.tool_calls)


def _answer(messages: Sequence[Message], tools: Sequence[ToolSpec]) -> Message:
    asked = max((n for n, message in enumerate(messages) if message.role is Role.USER), default=-1)
    if asked < 0:
        return Message.assistant("Hello! How can I help?")
    request = messages[asked].text
    since = messages[asked + 1 :]
    instructions = "\n".join(message.text for message in messages if message.role is Role.SYSTEM)
    steps = plan(request, tools, instructions)
    done = sum(1 for message in since if message.tool_calls)
    if done < len(steps):
        step = steps[done]
        return Message.assistant(step.question) if step.question else _calling(step.calls, messages)
    results = [message for message in since if message.role is Role.TOOL]
    return Message.assistant(_reply(request, messages[:asked], results))


def _calling(calls: Iterable[tuple[str, dict[str, Any]]], messages: Sequence[Message]) -> Message:
    """The calls, with ids that the same conversation always gives, and no other one does."""
    before = hashlib.sha256("\0".join(f"{m.role}:{m.text}:{len(m.tool_calls)}" for m in messages).encode()).hexdigest()
    made = [
        ToolCall(id=f"call_{before[:12]}_{number}", name=name, arguments=arguments)
        for number, (name, arguments) in enumerate(calls)
    ]
    return Message.assistant(None, made)


def _reply(request: str, earlier: Sequence[Message], results: Sequence[Message]) -> str:
    facts = facts_in(request)
    failed = [message for message in results if message.metadata.get("error") is not None]
    if failed:
        return "That did not work. " + "\n".join(f"{message.name}: {message.text}" for message in failed)
    if results and not facts:
        return "\n".join(message.text for message in results if message.text) or "Done."
    if facts:
        return acknowledgement(facts)
    if is_question(request):
        return answer_about(request, facts_told(earlier)) or "I don't know: nothing in this conversation says it."
    if re.match(r"(?i)\W*(?:hello|hi|hey|good (?:morning|evening|afternoon))\b", request):
        return "Hello! How can I help?"
    return f"Noted: {request.strip()}" if request.strip() else "I'm listening."

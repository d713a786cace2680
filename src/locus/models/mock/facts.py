"""Finds the facts that a user tells the mock model, and those that answer a question.

Patterns of plain English find a fact in a sentence: "I live in Oslo" has the attribute `home` and the value "Oslo".
The answer to a question is the fact that shares its topic, or most of its words.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache

from locus.core.messages import Message, Role

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
    """A fact that a user told: an attribute, its value, and the sentence that repeats it to the user."""

    attribute: str
    value: str
    saying: str
    words: frozenset[str]


def is_question(text: str) -> bool:
    return text.rstrip().endswith("?") or _QUESTION.match(text) is not None


def words_in(text: str) -> frozenset[str]:
    """The stems of the words in a text, without words such as "the" that say nothing about its topic."""
    words = re.findall(r"[a-z0-9]+(?:['’][a-z]+)?", text.lower())
    return frozenset(stem(word) for word in words if word not in _IDLE)


def stem(word: str) -> str:
    word = re.sub(r"['’]s?$", "", word).replace("favourite", "favorite").replace("colour", "color")
    for ending, rest in (("ies", "y"), ("sses", "ss"), ("es", "e"), ("s", "")):
        if len(word) > 3 and word.endswith(ending) and not word.endswith("ss"):
            return word.removesuffix(ending) + rest
    return word


@lru_cache(maxsize=8192)
def facts_in(text: str) -> tuple[Fact, ...]:
    """The facts that a person tells in this text."""
    facts: list[Fact] = []
    for sentence in _sentences(text):
        if not is_question(sentence):
            facts.extend(_facts(sentence))
    return tuple(facts)


def facts_told(messages: Sequence[Message]) -> Iterator[Fact]:
    """All facts of a conversation, the newest first."""
    for message in reversed(messages):
        if message.role is Role.USER:
            yield from reversed(facts_in(message.text))
        elif message.role is not Role.TOOL:
            # "You have two notes" was true when it was said, and may no longer be. A name stays true.
            lasting = facts_in(_as_told_by_the_user(message.text))
            yield from (fact for fact in reversed(lasting) if fact.attribute not in ("belongings", "plans"))


def answer_about(question: str, told: Iterable[Fact]) -> str | None:
    """The answer that facts give to a question; None if no fact is about it."""
    facts = list(told)
    question_words = words_in(question)
    lowered = question.lower()
    named = [fact for fact in facts if fact.attribute not in _SAYINGS and fact.words and fact.words <= question_words]
    if named:
        return max(named, key=lambda fact: len(fact.words)).saying
    for topic, pattern in _TOPICS:
        about = [fact for fact in facts if fact.attribute == topic]
        if about and pattern.search(lowered):
            return _together(about) if topic in _MANY else about[0].saying
    if re.search(r"\babout me\b|\bi (?:just )?(?:told|said|tell)\b|\bremember\b.*\?", lowered) and facts:
        return _together(facts)
    near = [fact for fact in facts if fact.words & question_words]
    return near[0].saying if near else None


def acknowledgement(facts: Sequence[Fact]) -> str:
    """The reply to a user who told these facts."""
    name = next((fact.value for fact in facts if fact.attribute == "name"), None)
    others = [fact.saying for fact in facts if fact.attribute != "name"]
    greeting = f"Nice to meet you, {name}." if name else "Thank you for telling me."
    return " ".join([greeting, *others, "I'll remember that."])


def _together(facts: Sequence[Fact]) -> str:
    """The sentences of facts, in the order in which they were told, without repetitions."""
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
    """The sentences about the user in a summary or an answer, put into the first person."""
    theirs = [part for part in _sentences(text) if not re.search(r"(?i)\b(?:i|i'm|i'll|my)\b", part)]
    told = [part for part in theirs if re.search(r"(?i)\b(?:the user|the user's|user's|your|you)\b", part)]
    joined = re.sub(r"(?i)\b(?:the user's|user's|your)\b", "my", "\n".join(told))
    return re.sub(r"(?i)\b(?:the user|you)\b", "I", joined)

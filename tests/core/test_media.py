"""Images, audio and files in messages: kept as they are, and shown as what they are, whichever framework wrote them."""

from __future__ import annotations

import base64
from typing import Any

import pytest

from locus.core.media import media_label
from locus.core.messages import ContentBlock, Message
from locus.core.state import AgentState
from locus.memory import get_checkpointer
from locus.memory.conversations import utterance_of
from locus.models import anthropic_wire, openai_wire

CONTENT = base64.b64encode(b"\x89PNG" * 3_000).decode()
SIZE = "12.0 KB"

PARTS: list[tuple[dict[str, Any], str]] = [
    # ours
    ({"type": "image", "data": CONTENT, "media_type": "image/png"}, f"[image: image/png, {SIZE}]"),
    ({"type": "image", "url": "https://x.example/a.png"}, "[image: https://x.example/a.png]"),
    ({"type": "audio", "data": "AAA=", "media_type": "audio/wav"}, "[audio: audio/wav, 2 B]"),
    ({"type": "file", "name": "a.pdf", "data": "AA==", "media_type": "application/pdf"},
     "[file: application/pdf, a.pdf, 1 B]"),
    # OpenAI: chat completions and responses
    ({"type": "image_url", "image_url": {"url": f"data:image/png;base64,{CONTENT}"}}, f"[image: image/png, {SIZE}]"),
    ({"type": "input_image", "image_url": f"data:image/jpeg;base64,{CONTENT}", "detail": "auto"},
     f"[image: image/jpeg, {SIZE}]"),
    ({"type": "input_image", "file_id": "file-1"}, "[image: file-1]"),
    ({"type": "input_audio", "input_audio": {"data": CONTENT, "format": "wav"}}, f"[audio: audio/wav, {SIZE}]"),
    ({"type": "file", "file": {"filename": "a.pdf", "file_data": f"data:application/pdf;base64,{CONTENT}"}},
     f"[file: a.pdf, {SIZE}]"),
    # Anthropic
    ({"type": "image", "source": {"type": "base64", "media_type": "image/gif", "data": CONTENT}},
     f"[image: image/gif, {SIZE}]"),
    ({"type": "document", "source": {"type": "url", "url": "https://x.example/a.pdf"}},
     "[file: https://x.example/a.pdf]"),
    # LangChain
    ({"type": "image", "base64": CONTENT, "mime_type": "image/png"}, f"[image: image/png, {SIZE}]"),
    # Google
    ({"inline_data": {"mime_type": "image/png", "data": CONTENT}}, f"[image: image/png, {SIZE}]"),
    ({"fileData": {"fileUri": "gs://bucket/a.mp4", "mimeType": "video/mp4"}}, "[video: video/mp4, gs://bucket/a.mp4]"),
    # Bedrock, Strands
    ({"image": {"format": "png", "source": {"bytes": {"__bytes_encoded__": True, "data": CONTENT}}}},
     f"[image: image/png, {SIZE}]"),
    # Pydantic AI
    ({"kind": "binary", "media_type": "image/png", "data": CONTENT}, f"[image: image/png, {SIZE}]"),
    # Microsoft Agent Framework
    ({"type": "data", "uri": f"data:image/png;base64,{CONTENT}"}, f"[image: image/png, {SIZE}]"),
]  # fmt: skip


@pytest.mark.parametrize(("part", "label"), PARTS)
def test_a_part_is_shown_as_what_it_is(part: dict[str, Any], label: str) -> None:
    assert media_label(part) == label
    said = utterance_of({"role": "user", "content": [{"type": "text", "text": "Look:"}, part]})
    assert said is not None
    assert said.text == f"Look:\n{label}"


@pytest.mark.parametrize(
    "part",
    [{}, {"type": "text", "text": "a"}, {"type": "tool_use", "id": "1", "name": "f", "input": {"url": "x"}},
     {"data": 5}, {"type": ["image"]}, {"id": "1"}, {"content": "x"}, {"name": "image"}],
)  # fmt: skip
def test_what_is_no_media_is_none(part: dict[str, Any]) -> None:
    assert media_label(part) is None


def test_a_hostile_part_is_shown_in_few_words() -> None:
    deep: dict[str, Any] = {"type": "image"}
    for _ in range(500):
        deep = {"type": "image", "source": deep}
    assert media_label(deep) == "[image]"
    long = media_label({"type": "image", "media_type": "m" * 10_000, "url": "u" * 10_000, "name": "n" * 10_000})
    assert long is not None
    assert len(long) < 300
    assert media_label({"type": "file", "data": "=" * 7, "media_type": 5}) == "[file: 3 B]"


async def test_blocks_are_kept_and_shown() -> None:
    blocks = [
        ContentBlock.of_text("What is this?"),
        ContentBlock.image_base64(CONTENT),
        ContentBlock.audio_base64(CONTENT, "audio/mpeg"),
        ContentBlock.file_base64(CONTENT, name="report.pdf"),
        ContentBlock.file_url("https://x.example/a.pdf"),
    ]
    state = AgentState().with_message(Message.user(blocks))
    async with get_checkpointer("memory") as handle:
        await handle.save(state, "t")
        loaded = await handle.load("t")
    assert loaded == state
    assert loaded is not None
    content = loaded.messages[0].content
    assert content is not None
    assert [str(block) for block in content] == [
        "What is this?",
        f"[image: image/png, {SIZE}]",
        f"[audio: audio/mpeg, {SIZE}]",
        f"[file: application/pdf, report.pdf, {SIZE}]",
        "[file: application/pdf, https://x.example/a.pdf]",
    ]


def test_models_get_them_in_their_own_words() -> None:
    message = Message.user(
        [ContentBlock.audio_base64("AAAA", "audio/mpeg"), ContentBlock.file_base64("AAAA", name="a.pdf")]
    )
    (sent,) = openai_wire.to_messages([message])
    assert sent["content"] == [
        {"type": "input_audio", "input_audio": {"data": "AAAA", "format": "mp3"}},
        {"type": "file", "file": {"filename": "a.pdf", "file_data": "data:application/pdf;base64,AAAA"}},
    ]
    messages = anthropic_wire.to_messages([Message.user([ContentBlock.file_base64("AAAA")])])
    source = {"type": "base64", "media_type": "application/pdf", "data": "AAAA"}
    assert messages[0]["content"] == [{"type": "document", "source": source}]

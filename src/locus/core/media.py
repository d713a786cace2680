"""Images, audio and files in messages, as any framework stores them: what they are, and how large.

Whoever shows the text of a message shows `media_label` in their place: `[image: image/png, 12.3 KB]`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

_MOST_TEXT: Final = 80
_DEPTH: Final = 4

_WRAPPERS: Final = (
    "source",  # Anthropic, Bedrock
    "image_url",  # OpenAI
    "input_audio",
    "file",
    "inline_data",  # Google
    "inlineData",
    "file_data",
    "fileData",
    "image",  # Bedrock, Strands
    "audio",
    "video",
    "document",
)
"""The keys under which a part keeps the object that says what it is."""
_TYPES: Final = ("media_type", "mime_type", "mimeType", "mediaType")
_CONTENTS: Final = ("data", "base64", "file_data", "bytes", "raw", "content", "__bytes_encoded__")
_PLACES: Final = ("url", "uri", "file_uri", "fileUri", "image_url")
_IDS: Final = ("file_id", "fileId", "id")
_NAMES: Final = ("name", "filename", "display_name", "displayName")
_KINDS: Final = {
    "image": "image",
    "image_url": "image",
    "image-url": "image",
    "input_image": "image",
    "audio": "audio",
    "audio-url": "audio",
    "input_audio": "audio",
    "video": "video",
    "video-url": "video",
    "file": "file",
    "input_file": "file",
    "document": "file",
    "document-url": "file",
    "binary": "file",
    "data": "file",
    "uri": "file",
}
_OF_MEDIA_TYPES: Final = ("image", "audio", "video")


def media_label(part: Mapping[str, Any]) -> str | None:
    """The text that stands for an image, audio, video or file in a message; None for any other part of it.

    It has the kind, the media type, the name and the size, or where it is; never the content.
    """
    said = _kind(part)
    if said is None:
        return None
    kind, inner = said
    levels = [part, *inner]
    place = _first(levels, _PLACES)
    media_type, content = _first(levels, _TYPES), next(_contents(levels), None)
    if isinstance(place, str) and place.startswith("data:"):
        head, _, content = place.removeprefix("data:").partition(",")
        media_type, place = head.partition(";")[0] or media_type, None
    if media_type is None and (form := _first(levels, ("format",))) is not None:
        media_type = form if "/" in form else f"{kind}/{form}"
    if kind == "file" and isinstance(media_type, str) and media_type.partition("/")[0] in _OF_MEDIA_TYPES:
        kind = media_type.partition("/")[0]
    size = None if content is None else bytes_text(_size(content))
    facts = [media_type, _first(levels, _NAMES), size or place or _first(levels, _IDS)]
    told = ", ".join(str(fact)[:_MOST_TEXT] for fact in facts if fact)
    return f"[{kind}: {told}]" if told else f"[{kind}]"


def _kind(part: Mapping[str, Any]) -> tuple[str, list[Mapping[str, Any]]] | None:
    """The kind of a part, and the objects inside of it that say more; None if it is of no kind that is known here."""
    inner = list(_inner(part, _DEPTH))
    for name in ("type", "kind"):
        if (kind := _KINDS.get(str(part.get(name)))) is not None:
            return kind, inner
    levels = [part, *inner]
    if not inner and not part.keys() & {*_CONTENTS[:-2], *_PLACES, *_IDS[:-1]}:
        return None
    if (media_type := _first(levels, _TYPES)) is not None:
        kind = media_type.partition("/")[0]
        return (kind if kind in _OF_MEDIA_TYPES else "file"), inner
    named = next((name for name in _WRAPPERS if name in _KINDS and isinstance(part.get(name), Mapping)), None)
    if named is not None:
        return _KINDS[named], inner
    return ("file", inner) if isinstance(part.get("inline_data", part.get("inlineData")), Mapping) else None


def _inner(part: Mapping[str, Any], depth: int) -> Iterator[Mapping[str, Any]]:
    for name in _WRAPPERS if depth else ():
        inside = part.get(name)
        if isinstance(inside, Mapping):
            yield inside
            yield from _inner(inside, depth - 1)


def _first(levels: list[Mapping[str, Any]], names: tuple[str, ...]) -> str | None:
    """The first text under one of these names."""
    return next((level[name] for level in levels for name in names if isinstance(level.get(name), str)), None)


def _contents(levels: list[Mapping[str, Any]]) -> Iterator[str | bytes]:
    for level in levels:
        for name in _CONTENTS:
            content = level.get(name)
            if isinstance(content, Mapping):  # bytes, as an adapter of JSON keeps them
                content = next((value for value in content.values() if isinstance(value, str)), None)
            if isinstance(content, str | bytes):
                yield content


def _size(content: str | bytes) -> int:
    """The bytes of a content, which is base64 if it is text."""
    if isinstance(content, bytes):
        return len(content)
    encoded = content.rpartition(",")[2] if content.startswith("data:") else content
    return len(encoded) * 3 // 4 - encoded[-2:].count("=")


def bytes_text(count: float) -> str:
    """A number of bytes in the largest unit that it fills: `512 B`, `1.5 MB`."""
    for unit in ("B", "KB", "MB", "GB"):
        if abs(count) < 1_000 or unit == "GB":
            return f"{count:.0f} B" if unit == "B" else f"{count:,.1f} {unit}"
        count /= 1_000
    raise AssertionError

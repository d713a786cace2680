"""The images that an item of a conversation has in itself. Pure functions.

Frameworks keep an image as an address with its bytes in it, or as base64 beside the name of its kind. An image that is
elsewhere is not shown: nothing is loaded because of what is stored.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Iterator
from typing import Any, Final

MOST: Final = 4
"""The most images of an item."""
LARGEST: Final = 2_000_000
"""The most characters of one image, as base64."""
_DEEPEST: Final = 8
_BEGINNINGS: Final = {
    "image/png": b"\x89PNG\r\n\x1a\n",
    "image/jpeg": b"\xff\xd8\xff",
    "image/gif": b"GIF8",
    "image/webp": b"RIFF",
}
_ADDRESS = re.compile(r"data:(image/[a-z]+);base64,([A-Za-z0-9+/]+={0,2})")
_KINDS: Final = ("media_type", "mime_type", "mimeType", "mediaType", "format")
_DATA: Final = ("data", "base64", "bytes")


def images_of(item: Any) -> list[str]:
    """The images of an item, as addresses with their bytes in them."""
    found: list[str] = []
    for address in _images(item, 0):
        if address not in found:
            found.append(address)
        if len(found) == MOST:
            break
    return found


def _images(value: Any, depth: int) -> Iterator[str]:
    if depth > _DEEPEST:
        return
    if isinstance(value, list):
        for inner in value[:200]:
            yield from _images(inner, depth + 1)
    elif isinstance(value, dict):
        kind = next((value[name] for name in _KINDS if isinstance(value.get(name), str)), "")
        for name in _DATA:
            data = value.get(name)
            if isinstance(data, str) and kind in _BEGINNINGS:
                yield from _image(f"data:{kind};base64,{data}")
        for inner in value.values():
            yield from _images(inner, depth + 1)
    elif isinstance(value, str) and value.startswith("data:image/"):
        yield from _image(value)


def _image(address: str) -> Iterator[str]:
    if len(address) > LARGEST:
        return
    match = _ADDRESS.fullmatch(address)
    if match is None or match[1] not in _BEGINNINGS:
        return
    try:
        beginning = base64.b64decode(match[2][:24])
    except binascii.Error:
        return
    if beginning.startswith(_BEGINNINGS[match[1]]):
        yield address

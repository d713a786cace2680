"""The Lua files: each is loaded, and put together as a whole."""

from __future__ import annotations

from hashlib import sha1
from pathlib import Path

from locus.memory.backends.redis import scripts
from locus.memory.backends.redis.scripts import Script

FOLDER = Path(scripts.__file__).parent / "lua"
LOADED = {name.lower(): value for name, value in vars(scripts).items() if isinstance(value, Script)}


def test_every_lua_file_is_a_script_or_a_part_of_one() -> None:
    assert {path.stem for path in FOLDER.glob("*.lua")} == LOADED.keys()
    for part in FOLDER.glob("shared/*.lua"):
        assert any(part.read_text(encoding="utf-8") in script.text for script in LOADED.values()), part.name


def test_a_script_begins_with_its_flags_and_has_its_parts_put_in() -> None:
    for name, script in LOADED.items():
        assert script.text.startswith("#!lua"), name
        assert script.text.count("#!lua") == 1, name
        assert "-- include:" not in script.text, name
        assert script.sha == sha1(script.text.encode()).hexdigest(), name

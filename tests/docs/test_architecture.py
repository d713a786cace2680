"""docs/architecture.md draws the layers that import-linter checks, and says where things are."""

from __future__ import annotations

import importlib
import re
import tomllib
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).resolve().parents[2]
CONTRACTS: Final[list[dict[str, Any]]] = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"][
    "importlinter"
]["contracts"]
PAGE: Final = (ROOT / "docs/architecture.md").read_text(encoding="utf-8")
NAMES_END: Final = 56
"""The column at which the drawing says what a row is."""
NOT_DRAWN: Final = {"__main__", "_moved", "_other_distribution", "memory"}


def drawn_rows() -> dict[str, int]:
    """The row of each module. Backends have two; what is below the line in the drawing counts."""
    drawing = PAGE.partition("```text\n")[2].partition("```")[0]
    rows: dict[str, int] = {}
    for number, line in enumerate(drawing.splitlines()):
        folder = ""
        for name in re.findall(r"[a-z][\w/]*", re.sub(r"/<name>.*", "", line[:NAMES_END])):
            folder = "memory/" if name.startswith("memory/") else folder
            assert rows.get(name) is None or name == "memory/backends", f"{name} is drawn twice"
            rows[name if "/" in name else f"{folder}{name}"] = number
    return rows


def contract_layers(container: str) -> list[list[str]]:
    contract = next(contract for contract in CONTRACTS if contract.get("containers") == [container])
    prefix = "".join(f"{part}/" for part in container.split(".")[1:])
    return [[f"{prefix}{name}" for name in re.findall(r"\w+", layer)] for layer in contract["layers"]]


def test_every_module_of_a_layer_is_drawn_and_every_drawn_module_is_in_a_layer() -> None:
    layers = [*contract_layers("locus"), *contract_layers("locus.memory")]
    assert {name for layer in layers for name in layer} - NOT_DRAWN == set(drawn_rows())


def test_layers_are_drawn_in_the_order_that_is_checked() -> None:
    rows = drawn_rows()
    for container in ("locus", "locus.memory"):
        above = -1
        for layer in contract_layers(container):
            drawn = [rows[name] for name in layer if name in rows and name != "memory/backends" and name != "wire"]
            assert not drawn or min(drawn) > above, f"{layer} is drawn above a layer that may import it"
            above = max([above, *drawn])
    assert rows["memory/backends"] < rows["wire"] < rows["memory/runtime"]  # which a contract of its own checks


def test_every_contract_about_layers_of_a_package_is_exhaustive() -> None:
    assert all(contract["exhaustive"] for contract in CONTRACTS if "containers" in contract)


def test_every_module_that_the_terminal_and_the_browser_share_is_named() -> None:
    table = PAGE.partition("\n## Looking\n")[2].partition("\n## ")[0]
    named = set(re.findall(r"`(\w+)`", "".join(line.split("|")[1] for line in table.splitlines() if "|" in line)))
    assert named == {file.stem for file in (ROOT / "src/locus/looking").glob("*.py")} - {"__init__"}


def test_things_are_in_the_modules_that_are_named_with_them() -> None:
    named = re.findall(r"`([a-z_/]+\.py)`: `(?:(\w+)\.)?(\w+)`", PAGE)
    assert len(named) > 5
    for path, owner, name in named:
        module = importlib.import_module("locus." + path.removesuffix(".py").replace("/", "."))
        thing = getattr(getattr(module, owner) if owner else module, name)
        assert getattr(thing, "__module__", module.__name__) == module.__name__, f"{path} only imports {name}"

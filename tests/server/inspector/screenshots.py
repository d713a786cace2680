"""Pictures of the inspector for the documentation: `python -m tests.server.inspector.screenshots [FOLDER]`.

The pages show a store that agents' messages were saved into just before. Each is taken in light and in dark.
"""

from __future__ import annotations

import argparse
import asyncio
import io
import sys
import tempfile
from itertools import product
from pathlib import Path
from typing import Literal

from PIL import Image
from playwright.async_api import FloatRect, Page, async_playwright

from locus.memory.backends import sqlite_checkpointer
from tests.server.inspector.browser.places import every_page
from tests.server.inspector.browser.stores import SHOP, TRIP, fill, shop
from tests.server.inspector.browser.visits import Visit
from tests.server.inspector.serving import inspecting
from tests.servers.chromium import OPTIONS, find_chromium

FOLDER = Path(__file__).resolve().parents[3] / "docs" / "images"
MOST_BYTES = 150_000
SCREENS = {"": (1280, 800), "-narrow": (390, 844)}
"""What the name of a picture ends with, and the size of the screen."""
PICTURES = {
    "threads": "threads",
    "conversation": "shop",
    "search": "search",
    "timeline": "timeline",
    "checkpoint": "conversation with calls",
    "state": "state",
    "diff": "diff",
    "bisect": "bisect",
    "storage": "storage of a thread",
    "export": "export",
    "memory": "memory, found",
    "item": "item",
}
"""The names of the pictures, and of the pages that they show."""
LOOKS: tuple[Literal["light", "dark"], ...] = ("light", "dark")


async def take(folder: Path) -> list[Path]:
    """Take all pictures; the files."""
    chromium, taken = find_chromium(), []
    with tempfile.TemporaryDirectory(prefix="locus-pictures-") as place:
        path = Path(place) / "agents.db"
        await fill(path)
        async with sqlite_checkpointer(path) as handle:
            await shop(handle)
        places = await every_page(path)
        places["timeline"] = (("t", TRIP), {})
        places["shop"] = (("t", SHOP), {})
        async with async_playwright() as playwright:
            browser = await playwright.chromium.launch(
                executable_path=chromium.binary, args=[*OPTIONS], env=chromium.environment
            )
            with inspecting(path) as served:
                for look, (kind, (width, height)) in product(LOOKS, SCREENS.items()):
                    visit = await Visit.begin(
                        browser,
                        served,
                        color_scheme=look,
                        reduced_motion="reduce",
                        viewport={"width": width, "height": height},
                    )
                    for name, shown in PICTURES.items():
                        segments, query = places[shown]
                        page = await visit.go(*segments, **query)
                        if await page.locator("[data-pane]:visible").count():
                            await page.locator("[data-pane] [data-part]").wait_for()
                        taken.append(await picture(page, folder / f"inspector-{name}{kind}-{look}.png"))
                    await visit.end()
            await browser.close()
    return taken


async def picture(page: Page, file: Path) -> Path:
    """Take one picture: as much of the page as has something on it, in few colours, so that the file is small."""
    bottom = await page.evaluate("Math.ceil(document.querySelector('main').getBoundingClientRect().bottom)")
    size = page.viewport_size
    assert size is not None
    clip: FloatRect = {"x": 0, "y": 0, "width": size["width"], "height": min(size["height"], max(320, bottom))}
    data = await page.screenshot(clip=clip)
    with Image.open(io.BytesIO(data)) as image:
        image.convert("RGB").quantize(128, dither=Image.Dither.NONE).save(file, optimize=True)
    length = file.stat().st_size
    if length > MOST_BYTES:
        raise SystemExit(f"{file.name} has {length:,} bytes, and may have {MOST_BYTES:,}")
    return file


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.server.inspector.screenshots", description=__doc__)
    parser.add_argument("folder", nargs="?", type=Path, default=FOLDER, help=f"where the pictures go ({FOLDER})")
    folder = parser.parse_args().folder
    folder.mkdir(parents=True, exist_ok=True)
    for file in asyncio.run(take(folder)):
        sys.stdout.write(f"{file} {file.stat().st_size:,} bytes\n")


if __name__ == "__main__":
    main()

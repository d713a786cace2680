"""Pictures of the inspector for the documentation: `python -m tests.server.inspector.screenshots [FOLDER]`.

The pages show a store that agents' messages were saved into just before. Each is taken in light and in dark.
"""

from __future__ import annotations

import argparse
import asyncio
import io
import sys
import tempfile
from pathlib import Path
from typing import Literal

from PIL import Image
from playwright.async_api import Page, async_playwright

from tests.server.inspector.browser.places import every_page
from tests.server.inspector.browser.stores import TRIP, fill
from tests.server.inspector.browser.visits import Visit
from tests.server.inspector.serving import inspecting
from tests.servers.chromium import OPTIONS, find_chromium

FOLDER = Path(__file__).resolve().parents[3] / "docs" / "images"
MOST_BYTES = 150_000
WIDTH, HEIGHT = 1120, 720
PICTURES = {
    "threads": "threads",
    "search": "search",
    "timeline": "timeline",
    "checkpoint": "conversation with calls",
    "state": "state",
    "diff": "diff",
    "bisect": "bisect",
    "storage": "storage of a thread",
    "export": "export",
}
"""The names of the pictures, and of the pages that they show."""
LOOKS: tuple[Literal["light", "dark"], ...] = ("light", "dark")


async def take(folder: Path) -> list[Path]:
    """Take all pictures; the files."""
    chromium, taken = find_chromium(), []
    with tempfile.TemporaryDirectory(prefix="locus-pictures-") as place:
        path = Path(place) / "agents.db"
        await fill(path)
        places = await every_page(path)
        places["timeline"] = (("t", TRIP), {})
        async with async_playwright() as playwright:
            browser = await playwright.chromium.launch(
                executable_path=chromium.binary, args=[*OPTIONS], env=chromium.environment
            )
            with inspecting(path) as served:
                for look in LOOKS:
                    visit = await Visit.begin(
                        browser,
                        served,
                        color_scheme=look,
                        reduced_motion="reduce",
                        viewport={"width": WIDTH, "height": HEIGHT},
                    )
                    for name, shown in PICTURES.items():
                        segments, query = places[shown]
                        page = await visit.go(*segments, **query)
                        taken.append(await picture(page, folder / f"inspector-{name}-{look}.png"))
                    await visit.end()
            await browser.close()
    return taken


async def picture(page: Page, file: Path) -> Path:
    """Take one picture: as much of the page as has something on it, in few colours, so that the file is small."""
    bottom = await page.evaluate("Math.ceil(document.querySelector('main').getBoundingClientRect().bottom)")
    data = await page.screenshot(clip={"x": 0, "y": 0, "width": WIDTH, "height": min(HEIGHT, max(320, bottom))})
    with Image.open(io.BytesIO(data)) as image:
        image.convert("RGB").quantize(128, dither=Image.Dither.NONE).save(file, optimize=True)
    size = file.stat().st_size
    if size > MOST_BYTES:
        raise SystemExit(f"{file.name} has {size:,} bytes, and may have {MOST_BYTES:,}")
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

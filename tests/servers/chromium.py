"""Chromium, the browser that the tests of the inspector open: the machine's own, or Debian's, unpacked into the cache.

`LOCUS_CHROMIUM` names a binary and wins. Debian's is unpacked with all packages that it needs and this machine does not
have, and with two families of letters, so that pages look the same everywhere: nothing is installed, and root is not
needed where apt-get knows its mirrors already.
"""

import os
import shutil
from dataclasses import dataclass, field
from pathlib import Path

from tests.servers.errors import ServerError
from tests.servers.install import installed, unpacked_whole

VARIABLE = "LOCUS_CHROMIUM"
NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
PACKAGES = ("chromium", "fonts-inter", "fonts-dejavu-core", "fonts-noto-color-emoji")
OPTIONS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-dev-shm-usage",
    "--no-first-run",
)
"""It opens nothing but pages of the tests, and asks nobody else."""

_FONTS = """\
<?xml version="1.0"?>
<!DOCTYPE fontconfig SYSTEM "urn:fontconfig:fonts.dtd">
<fontconfig>
  <dir>{folder}/usr/share/fonts</dir>
  <dir>/usr/share/fonts</dir>
  <cachedir>{folder}/font-cache</cachedir>
  <alias><family>sans-serif</family><prefer><family>Inter</family><family>DejaVu Sans</family></prefer></alias>
  <alias><family>system-ui</family><prefer><family>Inter</family><family>DejaVu Sans</family></prefer></alias>
  <alias><family>monospace</family><prefer><family>DejaVu Sans Mono</family></prefer></alias>
</fontconfig>
"""


@dataclass(frozen=True)
class Chromium:
    """A binary, and what its process needs besides the variables of this one."""

    binary: Path
    variables: dict[str, str] = field(default_factory=dict)

    @property
    def environment(self) -> dict[str, str | float | bool]:
        return {**os.environ, **self.variables}


def find_chromium() -> Chromium:
    """The browser of this machine; it is fetched if there is none."""
    named = os.environ.get(VARIABLE)
    if named:
        if not Path(named).is_file():
            raise ServerError(f"{VARIABLE} names {named}, and there is no such file")
        return Chromium(Path(named))
    own = next(filter(None, map(shutil.which, NAMES)), None)
    if own is not None:
        return Chromium(Path(own))
    try:
        folder = installed("chromium-debian", lambda part: unpacked_whole(part, *PACKAGES))
    except ServerError as error:
        raise ServerError(
            f"a browser is needed: install chromium, or name its binary with {VARIABLE}; {error}"
        ) from error
    return _unpacked(folder)


def _unpacked(folder: Path) -> Chromium:
    fonts = folder / "fonts.conf"
    wanted = _FONTS.format(folder=folder)
    if not fonts.is_file() or fonts.read_text(encoding="utf-8") != wanted:
        fresh = fonts.with_name(f"fonts.{os.getpid()}")
        fresh.write_text(wanted, encoding="utf-8")
        fresh.rename(fonts)
    libraries = sorted({found.parent for found in folder.glob("usr/lib/*-linux-gnu*/**/lib*.so*")})
    return Chromium(
        folder / "usr" / "lib" / "chromium" / "chromium",
        {"LD_LIBRARY_PATH": ":".join(map(str, libraries)), "FONTCONFIG_FILE": str(fonts)},
    )

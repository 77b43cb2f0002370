"""A real browser without a screen: screenshots, and pages as scripts left them."""

from __future__ import annotations

import shutil
import subprocess
import zlib
from dataclasses import dataclass
from pathlib import Path

_TIMEOUT_S = 90
_NAMES = ("chromium", "chromium-browser", "google-chrome")


@dataclass(frozen=True)
class Browser:
    """Chromium, started anew for every question.

    Attributes:
        program: Path of it.
        profile: Folder for what it keeps.
    """

    program: str
    profile: Path

    def screenshot(
        self, url: str, file: Path, *, width: int, height: int, is_dark: bool = False
    ) -> Picture:
        """Draw a page and take a picture of its top."""
        scheme = "--blink-settings=preferredColorScheme=0"
        self._run(
            url,
            f"--window-size={width},{height}",
            f"--screenshot={file}",
            "--hide-scrollbars",
            *([scheme] if is_dark else ["--blink-settings=preferredColorScheme=1"]),
        )
        return Picture(file.read_bytes())

    def dom(self, url: str, *, width: int = 1280, height: int = 900) -> str:
        """The page after its scripts ran, as HTML."""
        return self._run(url, f"--window-size={width},{height}", "--dump-dom")

    def _run(self, url: str, *options: str) -> str:
        done = subprocess.run(
            [
                *(self.program, "--headless", "--no-sandbox", "--disable-gpu"),
                *("--disable-dev-shm-usage", "--force-device-scale-factor=1"),
                *("--virtual-time-budget=3000", f"--user-data-dir={self.profile}"),
                *options,
                url,
            ],
            capture_output=True,
            text=True,
            timeout=_TIMEOUT_S,
            check=True,
        )
        return done.stdout


def find_browser() -> str:
    """Path of the browser.

    Raises:
        AssertionError: There is none; these tests are only asked for where one is.
    """
    found = next(filter(None, map(shutil.which, _NAMES)), None)
    if found is None:
        raise AssertionError("no Chromium is here; on Debian: apt-get install -y chromium")
    return found


class Picture:
    """A PNG, as far as it can be judged without undoing its filters.

    Attributes:
        width: Pixels.
        height: Pixels.
        corner: Red, green and blue of the pixel in the upper left: no filter changes it.
        num_distinct_rows: Rows that differ from one another; a page without content has two or so.
    """

    def __init__(self, content: bytes) -> None:
        self.width = int.from_bytes(content[16:20], "big")
        self.height = int.from_bytes(content[20:24], "big")
        channels = {2: 3, 6: 4}[content[25]]
        raw = zlib.decompress(_data(content))
        red, green, blue = raw[1:4]
        self.corner = red, green, blue
        length = self.width * channels + 1
        self.num_distinct_rows = len(
            {raw[y * length : (y + 1) * length] for y in range(self.height)}
        )


def _data(content: bytes) -> bytes:
    """All IDAT chunks together."""
    at, parts = 8, []
    while at < len(content):
        size = int.from_bytes(content[at : at + 4], "big")
        if content[at + 4 : at + 8] == b"IDAT":
            parts.append(content[at + 8 : at + 8 + size])
        at += size + 12
    return b"".join(parts)

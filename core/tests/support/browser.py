"""Debian's Chromium without a window, and what a page in it did."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from axe_playwright_python.sync_playwright import Axe  # type: ignore[import-untyped]  # has no types
from playwright.sync_api import Browser, Page, sync_playwright

_NAMES = ("chromium", "chromium-browser", "google-chrome")


def chromium() -> str:
    """Path of the browser: `NOX_CHROMIUM`, or the first that is installed."""
    given = os.environ.get("NOX_CHROMIUM")
    found = given or next(filter(None, map(shutil.which, _NAMES)), None)
    assert found, (
        "There is no Chromium: `apt-get install chromium`, or set NOX_CHROMIUM to its path."
    )
    return found


@contextmanager
def running_browser() -> Iterator[Browser]:
    """One browser for the block's time."""
    is_root = os.geteuid() == 0  # its own sandbox needs another user
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=chromium(), args=["--no-sandbox"] if is_root else []
        )
        try:
            yield browser
        finally:
            browser.close()


class Visit:
    """A page of a server, being watched.

    Args:
        browser: Opens it, with nothing stored.
        url: The server's.
        options: Of the browser's context: ``viewport``, ``color_scheme``.

    Attributes:
        page: The page.
        asked: Address of every request that it made.
        complaints: Errors and warnings of the console, and errors that nothing caught.
    """

    def __init__(self, browser: Browser, url: str, **options: Any) -> None:
        self.url = url
        self.context = browser.new_context(**{"reduced_motion": "reduce", **options})
        self.page: Page = self.context.new_page()
        self.asked: list[str] = []
        self.complaints: list[str] = []
        self.page.set_default_timeout(15_000)
        self.page.on("request", lambda request: self.asked.append(request.url))
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.page.on("console", self._hear)
        self.page.goto(url)

    def outside(self) -> list[str]:
        """Requests to anybody but the server."""
        return [address for address in self.asked if not address.startswith(f"{self.url}/")]

    def faults(self) -> list[str]:
        """What the rules of accessibility, contrast among them, say against the page as it is."""
        found = Axe().run(self.page).response["violations"]
        return [
            f"{rule['id']}: {node['target']}: {node['failureSummary']}"
            for rule in found
            for node in rule["nodes"]
        ]

    def until_serving(self) -> None:
        """Wait for the first data."""
        self.page.wait_for_selector("#state[data-state=ok]")

    def close(self) -> None:
        """Leave."""
        self.context.close()

    def _hear(self, message: Any) -> None:
        if message.type in ("error", "warning"):
            self.complaints.append(message.text)

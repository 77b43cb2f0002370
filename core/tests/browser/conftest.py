from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser

from tests.support.browser import Visit, running_browser
from tests.support.null_engine import NULL_OPTIONS, NullModels, install_null_platform
from tests.support.server_process import ServerProcess, running_server

ANSWER = "Brackets **lock** without nails.\n```python\nprint('dou')\n```\nSo `gong` holds."
TEMPLATE = "{% for m in messages %}<|im_start|>{{ m['content'] }}{% endfor %}"
KEY = "open sesame"
_OPTIONS = tuple(
    str(word)
    for name, value in NULL_OPTIONS.items()
    for word in (f"--{name.replace('_', '-')}", value)
)


class Site:
    """The null platform for child processes; its model answers one text, a letter a step."""

    def __init__(self, folder: Path) -> None:
        with pytest.MonkeyPatch.context() as patch:
            install_null_platform(folder / "site", patch)
        self.path = folder / "site"
        self.model = NullModels(folder / "models").write(
            {"<|im_start|>": ANSWER}, step_seconds=0.02
        )

    def options(self, *more: str) -> tuple[str, ...]:
        """Of a server."""
        named = ("--served-model-name", "tiny", "--chat-template", TEMPLATE)
        return (*_OPTIONS, *named, *more)


@pytest.fixture(scope="session")
def site(tmp_path_factory: pytest.TempPathFactory) -> Site:
    return Site(tmp_path_factory.mktemp("browser"))


@pytest.fixture(scope="session")
def server(site: Site) -> Iterator[ServerProcess]:
    with running_server(site.model, *site.options(), path=site.path) as running:
        yield running


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    with running_browser() as one:
        yield one


@pytest.fixture
def visit(browser: Browser) -> Iterator[Callable[..., Visit]]:
    """Opens a server's page; complaints and requests to others are found at the end."""
    made: list[tuple[Visit, bool]] = []

    def make(server: ServerProcess, *, is_quiet: bool = True, **options: Any) -> Visit:
        made.append((Visit(browser, server.url, **options), is_quiet))
        return made[-1][0]

    yield make
    for one, _ in made:
        one.close()
    for one, is_quiet in made:
        assert one.outside() == []
        assert not is_quiet or one.complaints == []


@pytest.fixture(scope="session")
def screens(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where screenshots go, to be looked at."""
    given = os.environ.get("NOX_SCREENS")
    folder = Path(given) if given else tmp_path_factory.mktemp("screens")
    folder.mkdir(parents=True, exist_ok=True)
    return folder

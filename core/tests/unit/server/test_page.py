from __future__ import annotations

import re
from collections.abc import Callable
from importlib.resources import files

import pytest

from dougong.server import page
from dougong.server.page import PAGE_PATHS
from tests.unit.server.conftest import Served

SOURCES = {
    one.name: one.read_text()
    for one in files(page).iterdir()
    if one.is_file() and not one.name.endswith(".py")
}
_URL = re.compile(r"""(?:https?:)?//[\w.-]+\.\w+[^\s"')]*""")
_OWN_NAMESPACE = "http://www.w3.org/2000/svg"


def outside(text: str) -> list[str]:
    """Addresses in a file that are not this server's."""
    return [url for url in _URL.findall(text) if not url.startswith(_OWN_NAMESPACE)]


@pytest.mark.parametrize("path", sorted(PAGE_PATHS))
async def test_every_file_is_sent_under_a_policy_that_keeps_the_browser_here(
    served: Served, path: str
) -> None:
    answer = await served.client.get(path)
    assert answer.status_code == 200
    policy = dict(
        part.split(" ", 1) for part in answer.headers["content-security-policy"].split("; ")
    )
    assert policy["default-src"] == "'none'"
    assert policy["frame-ancestors"] == "'none'"
    for name in ("script-src", "style-src", "img-src", "connect-src"):
        assert policy[name] == "'self'"
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert answer.headers["referrer-policy"] == "no-referrer"


async def test_the_types_are_those_that_browsers_insist_on(served: Served) -> None:
    types = {"/": "text/html", "/page/page.css": "text/css", "/page/page.js": "text/javascript"}
    for path, kind in types.items():
        answer = await served.client.get(path)
        assert answer.headers["content-type"] == f"{kind}; charset=utf-8"
    assert (await served.client.get("/page/mark.svg")).headers["content-type"] == "image/svg+xml"


async def test_a_browser_that_has_a_file_is_not_sent_it_again(served: Served) -> None:
    tag = (await served.client.get("/page/page.js")).headers["etag"]
    again = await served.client.get("/page/page.js", headers={"If-None-Match": tag})
    assert (again.status_code, again.content) == (304, b"")
    other = await served.client.get("/page/page.css", headers={"If-None-Match": tag})
    assert other.status_code == 200
    assert (await served.client.head("/")).status_code == 200


async def test_the_page_is_open_where_a_key_guards_the_rest(serve: Callable[..., Served]) -> None:
    served = serve(api_keys=("k",))
    for path in PAGE_PATHS:
        assert (await served.client.get(path)).status_code == 200, path
    for path in ("/status.json", "/v1/models", "/plan", "/metrics", "/page/", "/page"):
        assert (await served.client.get(path)).status_code == 401, path


@pytest.mark.parametrize("path", ["/page/__init__.py", "/page/nothing.js", "/page/%2e%2e/app.py"])
async def test_no_other_file_is_sent(served: Served, path: str) -> None:
    assert (await served.client.get(path)).status_code == 404


def test_files_name_no_address_outside_this_server() -> None:
    assert len(SOURCES) >= 10
    assert {name: found for name, text in SOURCES.items() if (found := outside(text))} == {}
    assert outside('<script src="https://cdn.example/x.js">')
    assert outside("@import '//fonts.example/a.css'")


def test_files_that_are_named_are_there() -> None:
    named = re.findall(r'(?:src|href)="(page/[^"]+)"', SOURCES["index.html"])
    for name, text in SOURCES.items():
        if name.endswith(".js"):
            named += [f"page/{one}" for one in re.findall(r'from "\./([^"]+)"', text)]
    named += [f"page/{one}" for one in re.findall(r'url\("([^"]+)"\)', SOURCES["page.css"])]
    assert len(named) >= 10
    assert {f"/{one}" for one in named} == PAGE_PATHS - {"/"}


def test_the_document_has_no_code_or_style_that_the_policy_would_stop() -> None:
    text = SOURCES["index.html"]
    assert not re.search(r"\son\w+=|\sstyle=|javascript:|<style|<script>", text)
    assert "innerHTML" not in "".join(SOURCES.values())


def test_every_label_and_every_wired_element_has_its_partner() -> None:
    text = SOURCES["index.html"]
    ids = re.findall(r'\sid="([^"]+)"', text)
    assert len(ids) == len(set(ids))
    asked = re.findall(r'byId\("([^"]+)"\)', "".join(SOURCES.values()))
    pointed = re.findall(r'(?:for|aria-labelledby|aria-describedby)="([^"]+)"', text)
    words = {word for one in pointed for word in one.split()}
    assert {*asked, *words} <= set(ids)


def test_both_dark_palettes_are_the_same() -> None:
    blocks = re.findall(r"color-scheme: dark;(.*?)}", SOURCES["page.css"], re.DOTALL)
    assert len(blocks) == 2
    first, second = ({line.strip() for line in block.splitlines()} - {""} for block in blocks)
    assert first == second

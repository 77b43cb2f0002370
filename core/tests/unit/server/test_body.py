from __future__ import annotations

import gc
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from dougong.server.body import decoded
from dougong.server.openai.completions import CompletionRequest
from tests.unit.server.conftest import Served

URL = "/v1/completions"
JSON = {"Content-Type": "application/json"}


async def refusal(served: Served, content: Any, status: int = 400) -> dict[str, Any]:
    answer = await served.client.post(URL, content=content, headers=JSON)
    assert answer.status_code == status, answer.text
    assert not served.engine.seen
    error: dict[str, Any] = answer.json()["error"]
    return error


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{",
        b"\xff\xfe",
        b'{"prompt": "A", }',
        b'{"prompt": "\\ud800"}',
        b'{"prompt": ' + b"[" * 100_000 + b"]" * 100_000 + b"}",
        b"[" * 200_000,
    ],
    ids=["empty", "cut off", "no text", "comma", "half a character", "deep", "deeper"],
)
async def test_what_is_no_json_is_refused(served: Served, content: bytes) -> None:
    await refusal(served, content)


@pytest.mark.parametrize("content", [b"null", b"[]", b"3", b'"prompt"'])
async def test_what_is_no_object_is_refused(served: Served, content: bytes) -> None:
    assert "the body" in (await refusal(served, content))["message"]


@pytest.mark.parametrize("number", ["NaN", "Infinity", "-Infinity"])
async def test_numbers_without_a_value_are_no_json(served: Served, number: str) -> None:
    error = await refusal(served, f'{{"prompt": "A", "temperature": {number}}}')
    assert "not JSON" in error["message"]


async def test_a_number_above_all_numbers_is_refused_by_the_fields_name(served: Served) -> None:
    error = await refusal(served, '{"prompt": "A", "temperature": 1e999}')
    assert error["param"] == "temperature"


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("max_tokens", '"5"'),
        ("max_tokens", "true"),
        ("max_tokens", "1.5"),
        ("max_tokens", "1" + "0" * 400),
        ("n", "[]"),
        ("seed", "1" + "0" * 40),
        ("stop", '[["a"]]'),
        ("stream", '"yes"'),
        ("user", "1"),
        ("stream_options.extra", '{"extra": 1}'),
    ],
)
async def test_a_value_of_the_wrong_kind_is_refused_by_the_fields_name(
    served: Served, field: str, value: str
) -> None:
    name = field.partition(".")[0]
    error = await refusal(served, f'{{"prompt": "A", "{name}": {value}}}')
    assert error["param"] == field or error["param"].startswith(f"{field}.")


async def test_a_field_nobody_knows_is_refused_and_not_ignored(served: Served) -> None:
    error = await refusal(served, '{"prompt": "A", "beam_width": 4}')
    assert error["param"] == "beam_width"


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ('{"prompt": [' + "1," * 5 * 10**5 + '"a"]}', "prompt"),
        ('{"prompt": [' + "{}," * 5 * 10**5 + "{}]}", "prompt.0"),
        ('{"prompt": "A", ' + ",".join(f'"k{i}": 1' for i in range(10**5)) + "}", "k0"),
        ('{"prompt": "A", "stop": [' + '"a",' * 5 * 10**5 + '"a"]}', "stop"),
    ],
    ids=["ids and a text", "objects", "unknown fields", "stop strings"],
)
async def test_a_body_of_nothing_but_mistakes_is_refused_for_the_first_of_them(
    served: Served, body: str, field: str
) -> None:
    error = await refusal(served, body)
    assert error["param"] == field
    assert len(error["message"]) < 300


async def test_a_large_body_is_read_without_looking_for_cycles(served: Served) -> None:
    """With the collector on, a body of empty lists holds the event loop for seconds."""
    found: list[int] = []

    def note(phase: str, info: Any) -> None:
        found.append(info["generation"])

    content = b'{"prompt": [' + b"[]," * 300_000 + b"[]]}"
    assert len(content) < served.serving.settings.max_body_bytes
    gc.callbacks.append(note)
    try:
        decoded(CompletionRequest, content)
    finally:
        gc.callbacks.remove(note)
    assert len(found) <= 2, "more than the start and the end of the one that comes afterwards"
    assert gc.isenabled()
    await refusal(served, content)


def test_reading_leaves_a_collector_off_that_was_off() -> None:
    gc.disable()
    try:
        decoded(CompletionRequest, b'{"prompt": "A"}'.ljust(2**17))
        assert not gc.isenabled()
    finally:
        gc.enable()


async def test_a_body_is_refused_that_says_it_is_something_else(served: Served) -> None:
    answer = await served.client.post(
        URL, content='{"prompt": "A"}', headers={"Content-Type": "text/plain"}
    )
    assert answer.status_code == 415
    assert answer.json()["error"]["param"] == "Content-Type"


async def test_a_charset_beside_the_type_is_welcome(served: Served) -> None:
    headers = {"Content-Type": "application/JSON; charset=utf-8"}
    answer = await served.client.post(URL, content='{"prompt": "A"}', headers=headers)
    assert answer.status_code == 200


async def test_a_body_may_not_be_larger_than_the_limit_whether_it_says_so_or_not(
    serve: Callable[..., Served],
) -> None:
    served = serve(max_body_bytes=2000)
    error = await refusal(served, b" " * 2001, 413)
    assert "2000" in error["message"]
    parts_sent = 0

    async def parts() -> AsyncIterator[bytes]:
        nonlocal parts_sent
        for _ in range(100):
            parts_sent += 1
            yield b" " * 100

    await refusal(served, parts(), 413)
    assert parts_sent < 30
    fits = b'{"prompt": "A"}'.ljust(2000)
    assert (await served.client.post(URL, content=fits, headers=JSON)).status_code == 200

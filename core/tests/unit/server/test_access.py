from __future__ import annotations

import asyncio
import hmac
from collections.abc import Callable

import pytest

from dougong.server import access
from tests.unit.server.conftest import Served

KEY = "käy-1"


def bearer(key: str) -> dict[bytes, bytes]:
    return {b"Authorization": b"Bearer " + key.encode()}


@pytest.mark.parametrize("path", ["/v1/models", "/metrics", "/plan", "/openapi.json", "/nothing"])
async def test_without_a_key_every_route_is_closed(serve: Callable[..., Served], path: str) -> None:
    served = serve(api_keys=(KEY, "second"))
    answer = await served.client.get(path)
    assert answer.status_code == 401
    assert answer.json()["error"]["code"] == "invalid_api_key"
    assert answer.headers["www-authenticate"] == "Bearer"


@pytest.mark.parametrize("key", ["", "x", "käy-", "käy-11", "second "])
async def test_a_wrong_key_opens_nothing(serve: Callable[..., Served], key: str) -> None:
    served = serve(api_keys=(KEY, "other"))
    answer = await served.client.get("/v1/models", headers=bearer(key))
    assert answer.status_code == 401


@pytest.mark.parametrize("key", [KEY, "second"])
async def test_any_of_the_keys_opens(serve: Callable[..., Served], key: str) -> None:
    served = serve(api_keys=(KEY, "second"))
    assert (await served.client.get("/v1/models", headers=bearer(key))).status_code == 200


async def test_another_scheme_opens_nothing(serve: Callable[..., Served]) -> None:
    served = serve(api_keys=("k",))
    answer = await served.client.get("/v1/models", headers={"Authorization": "Basic k"})
    assert answer.status_code == 401


async def test_health_is_told_to_anybody(serve: Callable[..., Served]) -> None:
    assert (await serve(api_keys=("k",)).client.get("/health")).status_code == 200


async def test_keys_are_compared_in_constant_time_with_every_known_one(
    serve: Callable[..., Served], monkeypatch: pytest.MonkeyPatch
) -> None:
    compared: list[bytes] = []

    def compare(one: bytes, other: bytes) -> bool:
        compared.append(other)
        return hmac.compare_digest(one, other)

    served = serve(api_keys=("first", "second"))
    monkeypatch.setattr(access, "hmac", type("Spy", (), {"compare_digest": staticmethod(compare)}))
    await served.client.get("/v1/models", headers=bearer("first"))
    assert compared == [b"first", b"second"]


async def test_no_page_of_another_origin_is_let_in_unless_told(
    serve: Callable[..., Served],
) -> None:
    origin = {"Origin": "https://page.example"}
    closed = await serve().client.get("/v1/models", headers=origin)
    assert "access-control-allow-origin" not in closed.headers
    told = serve(cors_origins=("https://page.example",))
    opened = await told.client.get("/v1/models", headers=origin)
    assert opened.headers["access-control-allow-origin"] == "https://page.example"
    other = await told.client.get("/v1/models", headers={"Origin": "https://other.example"})
    assert "access-control-allow-origin" not in other.headers


async def test_a_page_that_is_let_in_may_ask_first_without_a_key(
    serve: Callable[..., Served],
) -> None:
    served = serve(cors_origins=("https://page.example",), api_keys=("k",))
    asking = {
        "Origin": "https://page.example",
        "Access-Control-Request-Method": "POST",
        "Access-Control-Request-Headers": "authorization",
    }
    answer = await served.client.options("/v1/chat/completions", headers=asking)
    assert answer.status_code == 200


async def test_a_requests_id_comes_back_and_one_is_made_where_there_is_none(
    served: Served,
) -> None:
    given = await served.client.get("/version", headers={"X-Request-Id": "abc-1"})
    assert given.headers["x-request-id"] == "abc-1"
    made = [(await served.client.get("/version")).headers["x-request-id"] for _ in range(2)]
    assert all(made)
    assert made[0] != made[1]


async def test_an_answer_to_an_error_nobody_foresaw_has_the_requests_id(served: Served) -> None:
    async def fail() -> None:
        raise ValueError("unforeseen")

    served.app.add_api_route("/fail", fail)
    for headers in ({"X-Request-Id": "abc-1"}, {}):
        answer = await served.client.get("/fail", headers=headers)
        assert answer.status_code == 500
        assert answer.headers["x-request-id"] == headers.get(
            "X-Request-Id", answer.headers["x-request-id"]
        )
        assert answer.headers.get_list("x-request-id") == [answer.headers["x-request-id"]]
        assert "unforeseen" not in answer.text


@pytest.mark.parametrize("wrong", ["", "x" * 129, "a\tb", "ä"])
async def test_an_id_that_cannot_be_repeated_is_refused(served: Served, wrong: str) -> None:
    answer = await served.client.get("/version", headers={b"X-Request-Id": wrong.encode()})
    assert answer.status_code == 400
    assert answer.json()["error"]["param"] == "X-Request-Id"


async def test_the_same_id_twice_disturbs_nobody(served: Served) -> None:
    answers = await asyncio.gather(
        *(
            served.client.post(
                "/v1/completions", json={"prompt": "A"}, headers={"X-Request-Id": "same"}
            )
            for _ in range(3)
        )
    )
    assert [answer.status_code for answer in answers] == [200, 200, 200]
    assert len({answer.json()["id"] for answer in answers}) == 3

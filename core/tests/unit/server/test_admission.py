from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from dougong.errors import CapacityError
from dougong.server.admission import Admission
from dougong.server.errors import StoppingError
from tests.unit.server.conftest import Served


def test_places_are_given_back_however_the_block_ends() -> None:
    admission = Admission(2)

    def fail() -> None:
        with admission.admit(2):
            assert admission.num_live == 2
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert admission.num_live == 0


def test_what_passes_the_limit_is_told_to_come_later_and_takes_no_place() -> None:
    admission = Admission(2)
    with admission.admit(1):
        with pytest.raises(CapacityError, match="limit of 2"), admission.admit(2):
            pass
        assert admission.num_live == 1


def test_one_request_alone_is_taken_whatever_its_size() -> None:
    with Admission(1).admit(5):
        pass


def test_a_server_that_stops_takes_nothing() -> None:
    admission = Admission(2)
    admission.is_stopping = True
    with pytest.raises(StoppingError), admission.admit(1):
        pass


async def test_a_full_server_answers_429_and_then_serves_again(
    serve: Callable[..., Served],
) -> None:
    served = serve(max_live_sequences=1)
    served.engine.gate.clear()
    first = asyncio.create_task(served.post("/v1/completions", prompt="A"))
    while not served.engine.num_begun:
        await asyncio.sleep(0.001)
    for stream in (False, True):
        full = await served.post("/v1/completions", prompt="A", stream=stream)
        assert full.status_code == 429
        assert full.headers["retry-after"]
    served.engine.gate.set()
    assert (await first).status_code == 200
    assert (await served.post("/v1/completions", prompt="A")).status_code == 200


async def test_a_stopping_server_answers_503(served: Served) -> None:
    served.serving.admission.is_stopping = True
    refused = await served.post("/v1/completions", prompt="A")
    assert refused.status_code == 503
    assert refused.json()["error"]["code"] == "stopping"
    assert (await served.client.get("/health")).json()["status"] == "stopping"

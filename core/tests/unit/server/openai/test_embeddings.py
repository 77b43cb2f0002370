from __future__ import annotations

import asyncio
import base64
import struct
from collections.abc import Callable
from typing import Any

import pytest

from dougong.config.pooling import PoolingConfig
from dougong.engine.tokenizer import Tokenizer
from dougong.errors import EngineDeadError
from dougong.messages import PoolingParams, PoolingSpec
from tests.support.fake_engine import EMBEDDING_SIZE, MAX_LEN, FakeEngine
from tests.unit.server.conftest import Served

URL = "/v1/embeddings"
POOLING = PoolingConfig(
    spec=PoolingSpec(method="mean", is_matryoshka=True),
    embedding_size=EMBEDDING_SIZE,
    prompts={"query": "Q"},
)


@pytest.fixture
def served(serve: Callable[..., Served], tokenizer: Tokenizer) -> Served:
    return serve(FakeEngine(tokenizer, pooling=POOLING))


def padded(*values: float) -> list[float]:
    return [*values, *[0.0] * (EMBEDDING_SIZE - len(values))]


async def test_an_answer_has_a_vector_for_each_text_and_its_count(served: Served) -> None:
    answer = (await served.post(URL, model="tiny", input=["AB", "C"])).json()
    assert answer == {
        "object": "list",
        "data": [
            {"object": "embedding", "index": 0, "embedding": padded(*_ids(served, "AB"))},
            {"object": "embedding", "index": 1, "embedding": padded(*_ids(served, "C"))},
        ],
        "model": "tiny",
        "usage": {"prompt_tokens": 3, "total_tokens": 3},
    }


@pytest.mark.parametrize("given", ["AB", ["AB"], "ids", "lists"])
async def test_every_form_of_input_is_taken(served: Served, given: Any) -> None:
    ids = _ids(served, "AB")
    forms = {"ids": ids, "lists": [ids]}
    answer = await served.post(
        URL, input=forms.get(given, given) if isinstance(given, str) else given
    )
    assert answer.json()["data"][0]["embedding"] == padded(*ids)


async def test_base64_has_the_same_numbers(served: Served) -> None:
    answer = await served.post(URL, input="AB", encoding_format="base64")
    data = base64.b64decode(answer.json()["data"][0]["embedding"])
    assert list(struct.unpack(f"<{EMBEDDING_SIZE}f", data)) == padded(*_ids(served, "AB"))


async def test_what_is_asked_of_a_vector_reaches_the_engine(served: Served) -> None:
    answer = await served.post(
        URL, input="AB", dimensions=3, normalize=False, prompt_name="query", user="u"
    )
    assert answer.json()["data"][0]["embedding"] == [float(one) for one in _ids(served, "QAB")]
    assert served.engine.seen_pooling == [PoolingParams(dimensions=3, normalize=False)]


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"input": []}, "input"),
        ({"input": ""}, "input"),
        ({"input": [""]}, "input"),
        ({"input": [[]]}, "input"),
        ({"input": ["A", [1]]}, "input"),
        ({"input": [1, "A"]}, "input"),
        ({"input": [5, 100_000]}, "input"),
        ({"input": [-1]}, "input"),
        ({"input": [5] * (MAX_LEN + 1)}, "input"),
        ({"input": "A" * (MAX_LEN + 1)}, "input"),
        ({"input": ["A"] * 2049}, "input"),
        ({"input": 5}, "input"),
        ({}, "input"),
        ({"input": "A", "dimensions": 0}, "dimensions"),
        ({"input": "A", "dimensions": EMBEDDING_SIZE + 1}, "dimensions"),
        ({"input": "A", "dimensions": 1.5}, "dimensions"),
        ({"input": "A", "encoding_format": "int8"}, "encoding_format"),
        ({"input": "A", "normalize": "yes"}, "normalize"),
        ({"input": "A", "prompt_name": "document"}, "prompt_name"),
        ({"input": [5], "prompt_name": "query"}, "prompt_name"),
        ({"input": "A", "stream": True}, "stream"),
    ],
)
async def test_a_wrong_request_is_refused_with_the_field(
    served: Served, body: dict[str, Any], field: str
) -> None:
    answer = await served.post(URL, **body)
    assert answer.status_code == 400, answer.text
    assert answer.json()["error"]["param"] == field
    assert served.engine.num_begun == 0


async def test_a_text_as_long_as_the_model_reads_is_taken(served: Served) -> None:
    assert (await served.post(URL, input=[5] * MAX_LEN)).status_code == 200


async def test_a_model_that_generates_makes_no_vectors(serve: Callable[..., Served]) -> None:
    answer = await serve().post(URL, input="A")
    assert answer.status_code == 400
    assert answer.json()["error"]["param"] == "model"
    assert "--runner pooling" in answer.json()["error"]["message"]


@pytest.mark.parametrize(
    ("route", "body"),
    [
        ("/v1/completions", {"prompt": "A"}),
        ("/v1/chat/completions", {"messages": [{"role": "user", "content": "A"}]}),
    ],
)
async def test_a_model_that_makes_vectors_generates_nothing(
    served: Served, route: str, body: dict[str, Any]
) -> None:
    answer = await served.post(route, **body)
    assert answer.status_code == 400
    assert answer.json()["error"]["param"] == "model"


async def test_another_models_name_is_not_found(served: Served) -> None:
    assert (await served.post(URL, model="other", input="A")).status_code == 404


async def test_a_client_that_leaves_ends_its_texts(served: Served) -> None:
    served.engine.gate.clear()
    asking = asyncio.create_task(served.post(URL, input=["A", "B"]))
    while served.engine.num_begun < 2:
        await asyncio.sleep(0)
    asking.cancel()
    await asyncio.gather(asking, return_exceptions=True)
    assert served.engine.num_left == 2
    assert served.serving.admission.num_live == 0


async def test_an_engine_that_died_is_told_as_such(served: Served) -> None:
    served.engine.death = EngineDeadError("gone")
    assert (await served.post(URL, input="A")).status_code == 503


async def test_texts_are_counted_as_they_end(served: Served) -> None:
    await served.post(URL, input=["AB", "C"])
    await served.post(URL, input=[5] * (MAX_LEN + 1))
    shown = (await served.client.get("/metrics")).text
    assert 'dougong_requests_total{outcome="finished",route="embeddings"} 1.0' in shown
    assert "dougong_prompt_tokens_total 3.0" in shown


def _ids(served: Served, text: str) -> list[int]:
    return served.engine.tokenizer.encode(text)

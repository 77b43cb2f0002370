"""Vectors over HTTP: the official client against one real server, and an engine beside asyncio."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import openai
import pytest
import torch

from dougong import AsyncEngine
from dougong.errors import RequestError
from tests.support.embedding_models import BERT_CONFIG, expected_vector, write_embedding_model
from tests.support.server_process import ServerProcess, running_server

TEXTS = ["the cat", "in the morning", "a", "or an ant on the island"]
TOLERANCE = 1e-4


@dataclass
class Written:
    """A checkpoint, and `transformers`' model of it."""

    folder: Path
    theirs: Any


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Written:
    folder = tmp_path_factory.mktemp("model") / "tiny"
    return Written(folder, write_embedding_model(folder, BERT_CONFIG, pooling="cls"))


@pytest.fixture(scope="module")
def server(written: Written) -> Iterator[ServerProcess]:
    with running_server(str(written.folder), "--platform", "cpu") as server:
        yield server
        server.process.send_signal(signal.SIGTERM)
        assert server.end() == 0, server.log
        assert "Traceback" not in server.log


def test_the_official_client_gets_the_vectors_of_transformers(
    server: ServerProcess, written: Written
) -> None:
    with openai.OpenAI(base_url=f"{server.url}/v1", api_key="-", max_retries=0) as client:
        in_base64 = client.embeddings.create(model="tiny", input=TEXTS)
        as_floats = client.embeddings.create(model="tiny", input=TEXTS, encoding_format="float")
        ids = [_tokens(client, text) for text in TEXTS]
        by_ids = client.embeddings.create(model="tiny", input=ids)
        with pytest.raises(openai.BadRequestError, match="can have at most 64") as caught:
            client.embeddings.create(model="tiny", input=[[5] * 65])
        assert caught.value.param == "input"
        with pytest.raises(openai.BadRequestError, match="makes vectors") as caught:
            client.completions.create(model="tiny", prompt="the")
        assert caught.value.param == "model"
    assert in_base64.usage.prompt_tokens == sum(map(len, ids))
    for answer in (in_base64, as_floats, by_ids):
        assert [one.index for one in answer.data] == list(range(len(TEXTS)))
        for token_ids, one in zip(ids, answer.data, strict=True):
            expected = expected_vector(written.theirs, token_ids, "cls")
            found = torch.tensor(one.embedding)
            torch.testing.assert_close(found, expected, rtol=0, atol=TOLERANCE)


def _tokens(client: openai.OpenAI, text: str) -> list[int]:
    root = str(client.base_url).removesuffix("/v1/")
    answer = client.post(f"{root}/tokenize", body={"prompt": text}, cast_to=object)
    assert isinstance(answer, dict)
    tokens: list[int] = answer["tokens"]
    return tokens


async def test_texts_side_by_side_have_the_vectors_they_have_alone(written: Written) -> None:
    async with await AsyncEngine.start(
        str(written.folder), in_own_process=False, platform="cpu", max_num_seqs=2
    ) as engine:
        alone = [await engine.embed(text) for text in TEXTS]
        together = await asyncio.gather(*(engine.embed(text) for text in TEXTS * 3))
        for index, output in enumerate(together):
            expected = torch.tensor(alone[index % len(TEXTS)].embedding)
            torch.testing.assert_close(torch.tensor(output.embedding), expected)
        asking = [asyncio.create_task(engine.embed([5] * 60)) for _ in range(20)]
        await asyncio.sleep(0)
        for task in asking:
            task.cancel()
        await asyncio.gather(*asking, return_exceptions=True)
        with pytest.raises(RequestError, match="makes vectors"):
            await anext(aiter(engine.generate("the")))
        assert (await engine.embed("the")).embedding
        stats = (await engine.stats()).scheduler
        assert (stats.num_running, stats.num_waiting) == (0, 0)

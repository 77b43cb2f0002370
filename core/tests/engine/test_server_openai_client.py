"""The official client against one real server on a tiny model: sync, async, streams, refusals."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator, Iterator
from typing import Any

import httpx
import openai
import pytest

from dougong import LLM, SamplingParams
from tests.support.server_process import ServerProcess, running_server
from tests.support.tiny_models import write_tiny_checkpoint

KEY = "a-key"
HELLO: list[Any] = [{"role": "user", "content": "hi"}]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(write_tiny_checkpoint(tmp_path_factory.mktemp("model") / "tiny"))


@pytest.fixture(scope="module")
def server(model: str) -> Iterator[ServerProcess]:
    options = ("--platform", "cpu", "--num-kv-blocks", "64", "--api-key", KEY)
    with running_server(model, *options) as server:
        yield server
        server.process.send_signal(signal.SIGTERM)
        assert server.end() == 0, server.log
        assert "Traceback" not in server.log


@pytest.fixture
def client(server: ServerProcess) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{server.url}/v1", api_key=KEY, max_retries=0) as client:
        yield client


@pytest.fixture
async def async_client(server: ServerProcess) -> AsyncIterator[openai.AsyncOpenAI]:
    url = f"{server.url}/v1"
    async with openai.AsyncOpenAI(base_url=url, api_key=KEY, max_retries=0) as client:
        yield client


@pytest.fixture(scope="module")
def expected(model: str) -> tuple[str, str]:
    """The engine's own greedy answers: to a prompt and to a conversation."""
    params = SamplingParams(max_tokens=12, temperature=0.0)
    with LLM(model, platform="cpu", num_kv_blocks=64) as llm:
        prompt, chat = llm.generate("then", params)[0], llm.chat(HELLO, params)[0]
    return prompt.outputs[0].text, chat.outputs[0].text


def test_a_completion_is_the_engines_own_answer(
    client: openai.OpenAI, expected: tuple[str, str]
) -> None:
    answer = client.completions.create(model="tiny", prompt="then", max_tokens=12, temperature=0)
    assert answer.choices[0].text == expected[0]
    assert answer.choices[0].finish_reason == "length"
    assert answer.usage is not None
    assert answer.usage.completion_tokens == 12


def test_chat_is_the_engines_own_answer_and_a_stream_the_same_in_pieces(
    client: openai.OpenAI, expected: tuple[str, str]
) -> None:
    whole = client.chat.completions.create(
        model="tiny", messages=HELLO, max_completion_tokens=12, temperature=0
    )
    assert whole.choices[0].message.content == expected[1]
    pieces = list(
        client.chat.completions.create(
            model="tiny",
            messages=HELLO,
            max_completion_tokens=12,
            temperature=0,
            stream=True,
            stream_options={"include_usage": True},
        )
    )
    text = "".join(p.choices[0].delta.content or "" for p in pieces if p.choices)
    assert text == expected[1]
    assert pieces[-1].usage is not None and whole.usage is not None
    assert pieces[-1].usage.completion_tokens == whole.usage.completion_tokens == 12
    assert pieces[-1].usage.prompt_tokens == whole.usage.prompt_tokens


def test_a_seed_repeats_a_draw_and_n_draws_differ(client: openai.OpenAI) -> None:
    def drawn(seed: int) -> list[str]:
        answer = client.completions.create(
            model="tiny", prompt="then", max_tokens=8, seed=seed, n=3, temperature=2.0
        )
        assert [choice.index for choice in answer.choices] == [0, 1, 2]
        return [choice.text for choice in answer.choices]

    first = drawn(1)
    assert drawn(1) == first
    assert len(set(first)) == 3
    assert drawn(50) != first


def test_log_probabilities_are_read_by_the_client(client: openai.OpenAI) -> None:
    answer = client.chat.completions.create(
        model="tiny", messages=HELLO, max_tokens=4, temperature=0, logprobs=True, top_logprobs=3
    )
    logprobs = answer.choices[0].logprobs
    assert logprobs is not None and logprobs.content is not None
    assert len(logprobs.content) == 4
    for one in logprobs.content:
        assert one.logprob == max(top.logprob for top in one.top_logprobs)  # greedy
        assert one.logprob <= 0


def test_models_are_listed_by_the_client(client: openai.OpenAI) -> None:
    assert [one.id for one in client.models.list()] == ["tiny"]
    assert client.models.retrieve("tiny").id == "tiny"


def test_refusals_are_the_clients_own_errors(client: openai.OpenAI, server: ServerProcess) -> None:
    with pytest.raises(openai.NotFoundError, match="tiny"):
        client.completions.create(model="other", prompt="then")
    with pytest.raises(openai.BadRequestError) as caught:
        client.completions.create(model="tiny", prompt="then", suffix="x")
    assert caught.value.param == "suffix"
    with (
        openai.OpenAI(base_url=f"{server.url}/v1", api_key="wrong", max_retries=0) as stranger,
        pytest.raises(openai.AuthenticationError),
    ):
        stranger.models.list()


async def test_many_streams_at_once_do_not_mix(
    async_client: openai.AsyncOpenAI, expected: tuple[str, str]
) -> None:
    async def streamed() -> str:
        stream = await async_client.chat.completions.create(
            model="tiny", messages=HELLO, max_tokens=12, temperature=0, stream=True
        )
        return "".join([p.choices[0].delta.content or "" async for p in stream])

    async def whole() -> str:
        answer = await async_client.completions.create(
            model="tiny", prompt="then", max_tokens=12, temperature=0
        )
        return answer.choices[0].text

    texts = await asyncio.gather(*(ask() for _ in range(8) for ask in (streamed, whole)))
    assert texts == [expected[1], expected[0]] * 8


async def test_wrong_requests_beside_right_ones_disturb_nobody(
    async_client: openai.AsyncOpenAI, server: ServerProcess, expected: tuple[str, str]
) -> None:
    bodies = (
        b"", b"{", b"\xff", b"null", b"[" * 300_000, b'{"prompt": NaN}',
        b'{"prompt": "a", "temperature": 1e999}', b'{"prompt": "' + b"a" * 10**6 + b'"}',
        b'{"prompt": [' + b"1," * 10**6 + b"1]}", b'{"prompt": "a", "n": 1e9}',
        b'{"prompt": "a", "max_tokens": 99999999999999999999999}', b" " * (9 * 2**20),
        b'{"prompt": "a", "stop": [' + b'"",' * 999 + b'""]}',
    )  # fmt: skip
    headers = {"Content-Type": "application/json", "Authorization": f"Bearer {KEY}"}

    async def wrong(client: httpx.AsyncClient, body: bytes) -> int:
        try:
            answer = await client.post("/v1/completions", content=body, headers=headers)
        except httpx.WriteError:  # it was refused and closed while it was still being sent
            return 413
        return answer.status_code

    async def right() -> str:
        answer = await async_client.completions.create(
            model="tiny", prompt="then", max_tokens=12, temperature=0
        )
        return answer.choices[0].text

    async with httpx.AsyncClient(base_url=server.url, timeout=60) as client:
        rights = [asyncio.create_task(right()) for _ in range(4)]
        statuses = await asyncio.gather(*(wrong(client, body) for body in bodies))
        assert {400 <= status < 500 for status in statuses} == {True}, statuses
        assert await asyncio.gather(*rights) == [expected[0]] * 4
        assert (await client.get("/health")).status_code == 200

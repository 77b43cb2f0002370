"""The official client and what it knows of tools and of forms: on real servers, sync and async."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator, Iterator
from enum import StrEnum
from typing import Any, Literal

import openai
import pydantic
import pytest

from dougong import LLM, SamplingParams
from tests.support.null_engine import NULL_OPTIONS, NullModels, install_null_platform
from tests.support.served_here import ServedHere, served_here
from tests.support.tiny_models import write_tiny_checkpoint

TEMPLATE = (
    "<|im_start|>{% if tools %}{% for t in tools %}{{ t.function.name }} {% endfor %}{% endif %}"
    "{% for m in messages %}{{ m.content }}{% for c in m.tool_calls %}"
    "{{ c.function.arguments | tojson }}{% endfor %}{% endfor %}"
    "{% if false %}<tool_call>{% endif %}"
)
HELLO: list[Any] = [{"role": "user", "content": "hi"}]
ROME = '{"city": "Rome", "days": 2}'
CALLS = (
    f'Both.\n<tool_call>\n{{"name": "weather", "arguments": {ROME}}}\n</tool_call>\n'
    '<tool_call>\n{"name": "clock", "arguments": {}}\n</tool_call>'
)


class City(StrEnum):
    """A class of its own, so that the schema has definitions."""

    ROME = "Rome"
    OSLO = "Oslo"


class Weather(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(extra="forbid")

    city: City
    days: Literal[1, 2, 3]


class Clock(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(extra="forbid")

    zone: Literal["utc", "local"]


KINDS: dict[str, type[pydantic.BaseModel]] = {"weather": Weather, "clock": Clock}
TOOLS: Any = [
    {"type": "function", "function": {"name": name, "parameters": kind.model_json_schema()}}
    for name, kind in KINDS.items()
]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(write_tiny_checkpoint(tmp_path_factory.mktemp("model") / "tiny"))


@pytest.fixture(scope="module")
def server(model: str) -> Iterator[ServedHere]:
    """A model of random weights: what it writes of its own accord is nonsense."""
    options: dict[str, Any] = {"platform": "cpu", "dtype": "float32", "num_kv_blocks": 64}
    with served_here(model, chat_template=TEMPLATE, **options) as server:
        yield server


@pytest.fixture(scope="module")
def scripted(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServedHere]:
    """A model that calls both tools, whatever it is asked."""
    folder = tmp_path_factory.mktemp("scripted")
    with pytest.MonkeyPatch.context() as patch:
        install_null_platform(folder / "site", patch)
        model = NullModels(folder).write({"<|im_start|>": CALLS})
        with served_here(model, chat_template=TEMPLATE, **NULL_OPTIONS) as server:
            yield server


def client_of(server: ServedHere) -> openai.OpenAI:
    return openai.OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0)


@pytest.fixture
def client(server: ServedHere) -> Iterator[openai.OpenAI]:
    with client_of(server) as client:
        yield client


@pytest.fixture
async def async_client(server: ServedHere) -> AsyncIterator[openai.AsyncOpenAI]:
    url = f"{server.url}/v1"
    async with openai.AsyncOpenAI(base_url=url, api_key="none", max_retries=0) as client:
        yield client


def test_calls_are_read_by_the_client_and_their_answers_sent_back(scripted: ServedHere) -> None:
    with client_of(scripted) as client:
        asked: dict[str, Any] = {"model": "tiny", "tools": TOOLS, "temperature": 0}
        answer = client.chat.completions.create(messages=HELLO, **asked)
        (choice,) = answer.choices
        assert choice.finish_reason == "tool_calls"
        assert choice.message.content == "Both."
        calls: Any = choice.message.tool_calls
        assert [(call.function.name, call.function.arguments) for call in calls] == [
            ("weather", ROME),
            ("clock", "{}"),
        ]
        told: list[Any] = [
            {"role": "tool", "tool_call_id": call.id, "content": "sun"} for call in calls
        ]
        for turn in (choice.message, choice.message.model_dump()):
            again = client.chat.completions.create(messages=[*HELLO, turn, *told], **asked)
            assert again.usage is not None and answer.usage is not None
            longer = again.usage.prompt_tokens - answer.usage.prompt_tokens
            assert longer > len("sunsun"), "the template was told of calls and answers"


def test_the_clients_own_joining_of_a_stream_gives_the_same_calls(scripted: ServedHere) -> None:
    with (
        client_of(scripted) as client,
        client.chat.completions.stream(
            model="tiny", messages=HELLO, tools=TOOLS, temperature=0
        ) as stream,
    ):
        events = [event.type for event in stream]
        (choice,) = stream.get_final_completion().choices
    assert choice.finish_reason == "tool_calls"
    assert choice.message.content == "Both."
    calls: Any = choice.message.tool_calls
    found = [(call.function.name, call.function.arguments) for call in calls]
    assert found == [("weather", ROME), ("clock", "{}")]
    assert events.count("tool_calls.function.arguments.done") == 2


@pytest.mark.parametrize("seed", range(3))
def test_a_call_that_must_be_made_is_made_whatever_the_model_would_say(
    client: openai.OpenAI, seed: int
) -> None:
    answer = client.chat.completions.create(
        model="tiny", messages=HELLO, tools=TOOLS, tool_choice="required", temperature=2,
        parallel_tool_calls=False, seed=seed, max_tokens=150,
    )  # fmt: skip
    (choice,) = answer.choices
    assert choice.finish_reason == "tool_calls", choice
    calls: Any = choice.message.tool_calls
    (call,) = calls
    KINDS[call.function.name].model_validate_json(call.function.arguments)


async def test_a_named_tool_is_called_in_streams_side_by_side(
    async_client: openai.AsyncOpenAI,
) -> None:
    async def streamed(name: str, seed: int) -> None:
        stream = await async_client.chat.completions.create(
            model="tiny", messages=HELLO, tools=TOOLS, temperature=2, seed=seed, stream=True,
            tool_choice={"type": "function", "function": {"name": name}}, max_tokens=150,
        )  # fmt: skip
        arguments, reason = "", None
        async for event in stream:
            (choice,) = event.choices
            reason = choice.finish_reason
            for delta in choice.delta.tool_calls or ():
                assert delta.function is not None and delta.index == 0
                assert delta.function.name in (name, None)
                arguments += delta.function.arguments or ""
        assert reason == "tool_calls"
        KINDS[name].model_validate_json(arguments)

    await asyncio.gather(*(streamed(name, seed) for name in KINDS for seed in range(3)))


def test_a_class_of_the_clients_is_answered_with_an_object_of_it(client: openai.OpenAI) -> None:
    answer = client.chat.completions.parse(
        model="tiny", messages=HELLO, response_format=Weather, temperature=2, seed=1, max_tokens=150
    )
    assert isinstance(answer.choices[0].message.parsed, Weather)


async def test_forms_that_openai_does_not_have_are_kept_whole_and_streamed(
    async_client: openai.AsyncOpenAI,
) -> None:
    forms: dict[str, tuple[dict[str, Any], str]] = {
        "regex": ({"regex": "[0-9]{3}-[a-f]{2,4}"}, "[0-9]{3}-[a-f]{2,4}"),
        "choice": ({"choice": ["red", "redder", "blue"]}, "red|redder|blue"),
        "grammar": ({"grammar": 'start: /[0-9]/ "+" /[0-9]/\n'}, "[0-9][+][0-9]"),
        "json": ({"json": {"enum": ["a", 7, None]}}, '"a"|7|null'),
    }

    async def ask(form: dict[str, Any], pattern: str, seed: int) -> None:
        body: dict[str, Any] = {
            "model": "tiny", "prompt": "then", "temperature": 2.0, "seed": seed, "max_tokens": 60,
            "extra_body": {"structured_outputs": form},
        }  # fmt: skip
        whole = (await async_client.completions.create(**body)).choices[0]
        stream: Any = await async_client.completions.create(stream=True, **body)
        text = "".join([event.choices[0].text async for event in stream])
        assert whole.finish_reason == "stop"
        assert re.fullmatch(pattern, whole.text), whole.text
        assert text == whole.text

    await asyncio.gather(*(ask(*form, seed) for form in forms.values() for seed in range(2)))


def test_a_form_that_cannot_be_compiled_is_the_clients_error_by_its_own_name(
    client: openai.OpenAI,
) -> None:
    wrong: list[tuple[dict[str, Any], str]] = [
        ({"structured_outputs": {"regex": "("}}, "structured_outputs.regex"),
        ({"structured_outputs": {"grammar": "start: nothing"}}, "structured_outputs.grammar"),
        ({"response_format": {"type": "json_schema", "json_schema": {
            "name": "x", "schema": {"type": "nonsense"}}}}, "response_format"),
        ({"tool_choice": "required", "tools": [{"type": "function", "function": {
            "name": "f", "parameters": {"type": "nonsense"}}}]}, "tools"),
    ]  # fmt: skip
    for body, field in wrong:
        for is_stream in (False, True):
            with pytest.raises(openai.BadRequestError) as caught:
                client.chat.completions.create(
                    model="tiny", messages=HELLO, stream=is_stream, extra_body=body
                )
            assert caught.value.param == field, body


def test_an_echo_has_the_engines_own_log_probabilities(client: openai.OpenAI, model: str) -> None:
    with LLM(model, platform="cpu", dtype="float32", num_kv_blocks=64) as llm:
        params = SamplingParams(max_tokens=3, temperature=0.0, logprobs=2, prompt_logprobs=2)
        ours = llm.generate("then they", params)[0]
    answer = client.completions.create(
        model="tiny", prompt="then they", max_tokens=3, temperature=0, logprobs=2, echo=True,
        extra_body={"prompt_logprobs": 2},
    )  # fmt: skip
    (choice,) = answer.choices
    assert choice.text == "then they" + ours.outputs[0].text
    assert choice.logprobs is not None and choice.logprobs.token_logprobs is not None
    assert ours.prompt_logprobs is not None and ours.outputs[0].logprobs is not None
    of_prompt = [one.logprob for one in ours.prompt_logprobs if one is not None]
    of_answer = [one.logprob for one in ours.outputs[0].logprobs]
    first, *rest = choice.logprobs.token_logprobs
    assert first is None
    assert rest == pytest.approx([*of_prompt, *of_answer], abs=1e-5)
    assert choice.logprobs.tokens is not None
    assert "".join(choice.logprobs.tokens[: len(of_prompt) + 1]) == "then they"
    told: Any = choice.model_dump()["prompt_logprobs"]
    ids = [str(token_id) for token_id in ours.prompt_token_ids[1:]]
    assert [told[index + 1][ids[index]]["logprob"] for index in range(len(ids))] == pytest.approx(
        of_prompt, abs=1e-5
    )


def test_log_probabilities_of_a_conversation_are_of_what_the_template_wrote(
    client: openai.OpenAI,
) -> None:
    answer = client.chat.completions.create(
        model="tiny", messages=HELLO, max_tokens=1, extra_body={"prompt_logprobs": 0}
    )
    told = answer.model_dump()["prompt_logprobs"]
    assert told[0] is None
    assert answer.usage is not None and len(told) == answer.usage.prompt_tokens
    spelt = "".join(token["decoded_token"] for one in told[1:] for token in one.values())
    assert spelt == "hi"


def test_suffixes_stay_refused_by_name(client: openai.OpenAI) -> None:
    with pytest.raises(openai.BadRequestError) as caught:
        client.completions.create(model="tiny", prompt="then", suffix="x", echo=True)
    assert caught.value.param == "suffix"


def test_a_call_is_json_in_every_event_of_a_stream(scripted: ServedHere) -> None:
    body = {"messages": HELLO, "tools": TOOLS, "stream": True, "n": 2}
    with scripted.client() as http:
        lines = http.post("/v1/chat/completions", json=body).text.split("\n\n")
    events = [json.loads(line.removeprefix("data: ")) for line in lines[:-2]]
    assert {event["choices"][0]["index"] for event in events} == {0, 1}
    assert lines[-2] == "data: [DONE]"

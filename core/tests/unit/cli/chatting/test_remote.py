from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

import pytest

from dougong.cli.chatting.remote import RemoteAnswerer
from dougong.cli.chatting.session import AnswerStats
from dougong.cli.http_exchange import Target
from dougong.errors import CapacityError, DougongError, RequestError
from tests.support.stub_server import Script, stub_server

QUESTION = [{"role": "user", "content": "hi"}]


@pytest.fixture
def script() -> Script:
    return Script()


@pytest.fixture
def target(script: Script) -> Iterator[Target]:
    with stub_server(script) as url:
        yield Target.of(url, "secret")


def test_pieces_come_as_they_are_and_the_numbers_after_them(script: Script, target: Target) -> None:
    remote, stats = RemoteAnswerer(target, None, {"max_tokens": 9}), AnswerStats()
    assert remote.model == "stub"
    assert list(remote.answer(QUESTION, stats)) == ["Hello", " you", " there"]
    assert (stats.num_tokens, stats.finish_reason) == (3, "length")
    assert script.asked == [
        {
            "model": "stub", "messages": QUESTION, "max_tokens": 9, "stream": True,
            "stream_options": {"include_usage": True},
        }
    ]  # fmt: skip
    assert script.headers[0]["Authorization"] == "Bearer secret"


@pytest.mark.parametrize(
    ("status", "kind"), [(400, RequestError), (429, CapacityError), (500, DougongError)]
)
def test_a_refusal_is_an_error_of_who_can_act(
    script: Script, target: Target, status: int, kind: type[DougongError]
) -> None:
    script.status = status
    with pytest.raises(kind, match="not like this") as error:
        list(RemoteAnswerer(target, "m", {}).answer(QUESTION, AnswerStats()))
    assert type(error.value) is kind


@pytest.mark.parametrize(
    ("ends", "told"),
    [
        (b"", "the server closed the connection"),
        (b'data: {"error": {"message": "it died"}}\n\n', "it died"),
        (b"data: {\n\n", "broke off"),
    ],
)
def test_a_stream_that_breaks_off_is_never_taken_for_whole(
    script: Script, target: Target, ends: bytes, told: str
) -> None:
    script.ends = ends
    answer = RemoteAnswerer(target, "m", {}).answer(QUESTION, AnswerStats())
    assert list(islice(answer, 3)) == ["Hello", " you", " there"]
    with pytest.raises(DougongError, match=told):
        next(answer)


def test_a_server_without_models_or_no_server_at_all_is_told(
    script: Script, target: Target
) -> None:
    script.models = "[]"
    with pytest.raises(DougongError, match="--served-model-name"):
        RemoteAnswerer(target, None, {})
    with pytest.raises(DougongError, match="cannot be asked"):
        RemoteAnswerer(Target.of("http://127.0.0.1:9"), None, {})

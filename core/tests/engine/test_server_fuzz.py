"""The server against requests made up from its own document, beside a client that minds its own.

Every seed here is fixed. What a run once found stands in ``FOUND``, as a request of its own.
"""

from __future__ import annotations

import json
import random
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.support.embedding_models import BERT_CONFIG, write_embedding_model
from tests.support.fuzz import FuzzReport, fuzz
from tests.support.null_engine import NULL_OPTIONS, NullModels, install_null_platform
from tests.support.served_here import ServedHere, served_here
from tests.support.sse import DONE, events_of
from tests.support.tiny_adapters import write_adapter
from tests.support.tiny_models import tiny_config, write_tiny_checkpoint

SEED = 20261201
MORE_SEEDS = (1, 2)
NEIGHBOUR = {"prompt": "neighbour", "max_tokens": 12, "temperature": 0, "ignore_eos": True}
JSON = {"Content-Type": "application/json"}


def one_of(*values: Any) -> dict[str, Any]:
    """For whole numbers, too: 5.0 is one to a JSON schema, and none to the server."""
    return {"enum": list(values)}


def number(low: float, high: float) -> dict[str, Any]:
    return {"type": "number", "minimum": low, "maximum": high}


def several(items: dict[str, Any], most: int) -> dict[str, Any]:
    return {"type": "array", "items": items, "minItems": 1, "maxItems": most}


TEXT = {"type": "string", "minLength": 1, "maxLength": 30}
IDS = several(one_of(0, 1, 2, 65, 200, 255), 8)
MESSAGE = {
    "type": "object",
    "properties": {"role": one_of("system", "user", "assistant"), "content": TEXT},
    "required": ["role", "content"],
    "additionalProperties": False,
}
PROMPTS = {"anyOf": [TEXT, IDS, several(TEXT, 3), several(IDS, 3)]}
BIASES = {
    "type": "object",
    "propertyNames": one_of("0", "7", "99", "255"),
    "additionalProperties": number(-100, 100),
}
NEED_ANOTHER = ("logprobs", "top_logprobs", "bad_words", "max_completion_tokens", "stream_options")
NARROWED: dict[str, Any] = {
    "model": one_of("tiny"),
    "prompt": PROMPTS,
    "input": PROMPTS,
    "messages": several(MESSAGE, 3),
    "tokens": IDS,
    "n": one_of(1, 2, 3),
    "temperature": number(0, 2),
    "top_p": number(0.1, 1),
    "top_k": one_of(0, 1, 40),
    "min_p": number(0, 1),
    "repetition_penalty": number(0.1, 2),
    "frequency_penalty": number(-2, 2),
    "presence_penalty": number(-2, 2),
    "seed": one_of(0, 1, 2**40),
    "max_tokens": one_of(2, 3, 20),
    "min_tokens": one_of(0, 1, 2),
    "prompt_logprobs": one_of(0, 1, 5),
    "allowed_token_ids": IDS,
    "stop_token_ids": IDS,
    "stop": TEXT,
    "logit_bias": BIASES,
    **{name: {} for name in NEED_ANOTHER},
}


FOUND: dict[str, tuple[str, str, dict[str, Any], int]] = {
    "a model that is not there": ("GET", "/v1/models/0", {}, 404),
    "a sample that is no number": ("GET", "/status.json?after=", {}, 400),
    "more items than the body may have bytes": (
        "POST",
        "/tokenize",
        {"json": {"messages": [{"role": "user", "content": "a" * 300}] * 8000}},
        413,
    ),
}
"""What was asked, and the status that the document has for it."""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServedHere]:
    folder = tmp_path_factory.mktemp("fuzz")
    with pytest.MonkeyPatch.context() as patch:
        install_null_platform(folder / "site", patch)
        model = NullModels(folder / "models").write(step_seconds=0.001)
        settings = {"allow_lora_updates": True}
        with served_here(model, settings=settings, **NULL_OPTIONS) as server:
            yield server


class Neighbour:
    """A client that asks the same again and again, and wants the same answer.

    Args:
        server: It is asked.
        is_embedder: It makes vectors and no text.
    """

    def __init__(self, server: ServedHere, *, is_embedder: bool) -> None:
        self._client = server.client()
        self._ask = self._vector if is_embedder else self._text
        self._stop = threading.Event()
        self.alone = self._ask()
        self.others: list[str] = []
        self.num_answers = 0
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def close(self) -> None:
        self._stop.set()
        self._thread.join(60)
        self._client.close()

    def _run(self) -> None:
        while not self._stop.wait(0.02):
            text = self._ask()
            self.num_answers += 1
            if text != self.alone:
                self.others.append(text)

    def _vector(self) -> str:
        answer = self._client.post("/v1/embeddings", json={"input": "neighbour"})
        return str(answer.json().get("data"))

    def _text(self) -> str:
        answer = self._client.post("/v1/completions", json={**NEIGHBOUR, "stream": True})
        if answer.status_code != 200:
            return answer.text
        *events, done = events_of(answer.text)
        assert done == DONE
        return "".join(event["choices"][0]["text"] for event in events)


@contextmanager
def neighbour_of(server: ServedHere, *, is_embedder: bool = False) -> Iterator[None]:
    """Somebody is served meanwhile, and never notices; the server is as before afterwards."""
    neighbour = Neighbour(server, is_embedder=is_embedder)
    try:
        yield
    finally:
        neighbour.close()
    assert neighbour.num_answers > 0
    assert neighbour.others == []
    scheduler = server.stats().scheduler
    assert scheduler.num_running == scheduler.num_waiting == 0
    assert scheduler.kv_cache.num_held_blocks == 0
    assert server.serving.admission.num_live == 0
    assert server.serving.watch.death is None


def documented(server: ServedHere) -> set[str]:
    paths = httpx.get(f"{server.url}/openapi.json", timeout=30).json()["paths"]
    return {f"{method.upper()} {path}" for path, methods in paths.items() for method in methods}


def check(server: ServedHere, report: FuzzReport) -> None:
    sys.stdout.write(f"{report.summary()}\n")  # `pytest -rP` shows it
    assert not report.failures, report.told()
    assert documented(server) <= report.routes()
    assert not [status for _, status in report.answers if status == 0 or status >= 500]


def test_requests_that_fit_and_that_do_not_are_answered_as_the_document_says(
    server: ServedHere,
) -> None:
    with neighbour_of(server):
        report = fuzz(server.url, seed=SEED, max_examples=6)
    check(server, report)
    for route in ("POST /v1/completions", "POST /v1/chat/completions", "POST /tokenize"):
        assert report.num(route, 400) > 0


def test_requests_that_can_be_obeyed_are_obeyed_as_the_document_says(server: ServedHere) -> None:
    with neighbour_of(server):
        report = fuzz(server.url, seed=SEED, max_examples=15, narrowed_to=NARROWED)
    check(server, report)
    for route in ("POST /v1/completions", "POST /v1/chat/completions", "POST /detokenize"):
        assert report.num(route, 200) > 0


@pytest.mark.extra
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("seed", MORE_SEEDS)
def test_many_more_requests(server: ServedHere, seed: int) -> None:
    with neighbour_of(server):
        wide = fuzz(server.url, seed=seed, max_examples=60, has_coverage=True)
        deep = fuzz(server.url, seed=seed, max_examples=200, narrowed_to=NARROWED)
    check(server, wide)
    check(server, deep)


@pytest.mark.extra
@pytest.mark.timeout(600)
def test_a_server_of_vectors_is_asked_for_them_and_for_everything_else(tmp_path: Path) -> None:
    folder = tmp_path / "tiny"
    write_embedding_model(folder, BERT_CONFIG)
    with served_here(str(folder), platform="cpu") as server:
        with neighbour_of(server, is_embedder=True):
            wide = fuzz(server.url, seed=SEED, max_examples=30)
            deep = fuzz(server.url, seed=SEED, max_examples=60, narrowed_to=NARROWED)
        check(server, wide)
        check(server, deep)
    assert deep.num("POST /v1/embeddings", 200) > 0
    assert deep.num("POST /v1/completions", 400) > 0


@pytest.mark.extra
@pytest.mark.timeout(600)
def test_adapters_come_and_go_under_requests_for_them(tmp_path: Path) -> None:
    config = tiny_config()
    model = write_tiny_checkpoint(tmp_path / "tiny", config)
    names = ("poet", "judge", "third")
    paths = [str(write_adapter(tmp_path / name, config, seed=i)) for i, name in enumerate(names)]
    narrowed = {
        **NARROWED,
        "model": one_of("tiny", *names),
        "lora_name": one_of(*names),
        "lora_path": one_of(*paths, str(tmp_path / "nothing")),
    }
    options = {"platform": "cpu", "num_kv_blocks": 64, "enable_lora": True, "max_loras": 2}
    settings = {"allow_lora_updates": True}
    with served_here(str(model), settings=settings, **options) as server:
        with neighbour_of(server):
            report = fuzz(server.url, seed=SEED, max_examples=60, narrowed_to=narrowed)
        check(server, report)
    assert report.num("POST /v1/load_lora_adapter", 200) > 0
    assert report.num("POST /v1/unload_lora_adapter", 200) > 0


def test_bodies_with_broken_bytes_are_refused(server: ServedHere) -> None:
    """Bytes lost, doubled and changed in bodies that were right: never a 5xx."""
    chance = random.Random(SEED)
    bodies = [
        {**NEIGHBOUR, "stop": ["a", "\u4f60\U0001f44d"], "logit_bias": {"7": 1.5}, "stream": True},
        {**NEIGHBOUR, "seed": 2**62, "temperature": 1e-5, "logprobs": 2},
    ]
    statuses: set[int] = set()
    with neighbour_of(server), server.client() as client:
        for _ in range(150):
            content = bytearray(json.dumps(chance.choice(bodies), ensure_ascii=False).encode())
            for _ in range(chance.randint(1, 4)):
                place = chance.randrange(len(content))
                length = chance.choice((0, 1, 1, 8))
                put = bytes(chance.randrange(256) for _ in range(chance.choice((0, 1, 1, 3))))
                content[place : place + length] = chance.choice((put, put * 50, b"[" * 600, b"9"))
            answer = client.post("/v1/completions", content=bytes(content), headers=JSON)
            statuses.add(answer.status_code)
            assert answer.status_code in (200, 400, 404), (bytes(content), answer.text)
    assert 400 in statuses


@pytest.mark.parametrize("case", FOUND)
def test_what_was_found_once_is_answered_as_the_document_says(
    server: ServedHere, case: str
) -> None:
    method, path, given, status = FOUND[case]
    with server.client() as client:
        answer = client.request(method, path, **given)
    assert answer.status_code == status
    assert set(answer.json()["error"]) == {"message", "type", "param", "code"}

"""Real servers on the null platform: their clients leave, their engine dies, they are stopped."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.support.null_engine import NULL_OPTIONS, NullModels, install_null_platform
from tests.support.processes import is_running
from tests.support.server_process import ServerProcess, running_server
from tests.support.sse import DONE, events_of

STEP_S = 0.01
OPTIONS = tuple(
    str(word)
    for name, value in NULL_OPTIONS.items()
    for word in (f"--{name.replace('_', '-')}", value)
)
LONG: dict[str, Any] = {"prompt": [5] * 8, "max_tokens": 200, "temperature": 0, "ignore_eos": True}
CHAT: dict[str, Any] = {"messages": [{"role": "user", "content": "x"}]}
TEMPLATE = "{% for m in messages %}<|im_start|>{{ m['content'] }}{% endfor %}"


class Site:
    """The null platform for child processes, and its models."""

    def __init__(self, folder: Path) -> None:
        with pytest.MonkeyPatch.context() as patch:
            install_null_platform(folder / "site", patch)
        self.path = folder / "site"
        self.models = NullModels(folder / "models")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Site:
    return Site(tmp_path_factory.mktemp("server"))


@pytest.fixture(scope="module")
def slow(site: Site) -> Iterator[ServerProcess]:
    """One server for every test that leaves it as it was; two sequences run at a time."""
    model = site.models.write(step_seconds=STEP_S)
    (Path(model) / "tokenizer_config.json").write_text("{}")  # without a chat template
    with running_server(model, *OPTIONS, "--max-num-seqs", "2", path=site.path) as server:
        yield server


def until(holds: Callable[[], bool], within_s: float = 20.0) -> None:
    end = time.monotonic() + within_s
    while not holds():
        assert time.monotonic() < end, "it never came to that"
        time.sleep(0.01)


def is_idle(server: ServerProcess) -> bool:
    names = ("dougong_running_requests", "dougong_waiting_requests", "dougong_kv_held_blocks")
    return not any(server.metric(name) for name in names)


def leave_after(server: ServerProcess, leave_s: float, *, stream: bool) -> None:
    """Ask, and close the connection before anything came back."""
    body = {**LONG, "stream": stream}
    timeout = httpx.Timeout(20, read=leave_s)
    with httpx.Client(timeout=timeout) as client, pytest.raises(httpx.ReadTimeout):
        client.post(f"{server.url}/v1/completions", json=body)


@pytest.mark.parametrize("stream", [False, True])
def test_a_client_that_leaves_ends_its_request_and_frees_its_blocks(
    slow: ServerProcess, stream: bool
) -> None:
    until(lambda: is_idle(slow))
    before = slow.get("/metrics").text.count('outcome="aborted"')
    for leave_s in (0.001, 0.05):
        if stream:
            with httpx.stream(
                "POST", f"{slow.url}/v1/completions", json={**LONG, "stream": True}, timeout=20
            ) as answer:
                next(answer.iter_lines())
                time.sleep(leave_s)
        else:
            leave_after(slow, leave_s, stream=False)
        until(lambda: is_idle(slow))
    assert before or 'outcome="aborted"' in slow.get("/metrics").text


def test_a_client_that_leaves_the_queue_is_forgotten_too(slow: ServerProcess) -> None:
    with httpx.Client(timeout=20) as client:
        streams = [
            client.stream("POST", f"{slow.url}/v1/completions", json={**LONG, "stream": True})
            for _ in range(2)
        ]
        opened = [stream.__enter__() for stream in streams]
        until(lambda: slow.metric("dougong_running_requests") == 2)
        for is_stream in (False, True):
            leave_after(slow, 0.05, stream=is_stream)
        until(lambda: slow.metric("dougong_waiting_requests") == 0)
        assert slow.metric("dougong_running_requests") == 2
        for answer in opened:
            assert events_of(answer.read().decode())[-1] == DONE
        for stream in streams:
            stream.__exit__(None, None, None)
    until(lambda: is_idle(slow))


def test_health_is_well_and_metrics_are_told_while_the_engine_is_silent(
    slow: ServerProcess,
) -> None:
    until(lambda: is_idle(slow))
    engine = slow.engine_pid()
    os.kill(engine, signal.SIGSTOP)  # as silent as in a step that takes minutes
    try:
        leave_after(slow, 0.7, stream=False)
        answer = slow.get("/health")
        assert answer.status_code == 200
        assert answer.json()["engine_answered_s_ago"] > 0
        assert slow.metric("dougong_engine_up") == 1
    finally:
        os.kill(engine, signal.SIGCONT)
    until(lambda: is_idle(slow))
    short = httpx.post(f"{slow.url}/v1/completions", json={**LONG, "max_tokens": 2}, timeout=20)
    assert short.status_code == 200


def test_signals_for_the_whole_group_do_not_end_the_engine_under_open_answers(
    slow: ServerProcess,
) -> None:
    """A service manager or a terminal signals every process; only the server decides the end."""
    until(lambda: is_idle(slow))
    engine = slow.engine_pid()
    body = {**LONG, "max_tokens": 30, "stream": True}
    with httpx.stream("POST", f"{slow.url}/v1/completions", json=body, timeout=20) as answer:
        lines = answer.iter_lines()
        next(lines)
        for one in (signal.SIGTERM, signal.SIGINT, signal.SIGTERM):
            os.kill(engine, one)
        events = [line.removeprefix("data: ") for line in lines if line]
    assert events[-1] == DONE
    assert is_running(engine)
    assert slow.get("/health").status_code == 200


def test_the_status_has_a_sample_a_second_without_being_asked(slow: ServerProcess) -> None:
    last = slow.get("/status.json").json()["history"]["last"]
    until(lambda: slow.get(f"/status.json?after={last}").json()["history"]["last"] >= last + 2)
    samples = slow.get(f"/status.json?after={last}").json()["history"]["samples"]
    assert samples["running"][-1] is not None
    assert samples["time"] == sorted(set(samples["time"]))


def test_without_a_template_the_start_says_so_and_chat_names_the_option(
    slow: ServerProcess,
) -> None:
    assert "/v1/chat/completions is unavailable" in slow.log
    assert "--chat-template" in slow.log
    refused = httpx.post(f"{slow.url}/v1/chat/completions", json=CHAT, timeout=20)
    assert refused.status_code == 400
    assert "--chat-template" in refused.json()["error"]["message"]


def test_a_dead_engine_ends_streams_with_an_error_and_the_server_with_a_code(site: Site) -> None:
    model = site.models.write(step_seconds=STEP_S)
    with (
        running_server(model, *OPTIONS, "--dead-engine-grace", "1", path=site.path) as server,
        httpx.stream(
            "POST", f"{server.url}/v1/completions", json={**LONG, "stream": True}, timeout=20
        ) as answer,
    ):
        lines = answer.iter_lines()
        next(lines)
        assert server.get("/health").status_code == 200
        engine = server.engine_pid()
        os.kill(engine, signal.SIGKILL)
        until(lambda: server.get("/health").status_code == 503, within_s=5.0)
        events = [line.removeprefix("data: ") for line in lines if line]
        assert "engine_dead" in events[-1]
        assert DONE not in events
        refused = httpx.post(f"{server.url}/v1/completions", json=LONG, timeout=5)
        assert refused.status_code == 503
        assert "SIGKILL" in refused.json()["error"]["message"]
        assert server.end() == 5
        assert "SIGKILL" in server.log.splitlines()[-1]
        assert not is_running(engine)


def test_a_group_that_is_stopped_drains_and_nothing_was_cut_short(site: Site) -> None:
    model = site.models.write(step_seconds=STEP_S)
    with running_server(model, *OPTIONS, path=site.path) as server, httpx.Client(timeout=20) as c:
        body = {**LONG, "max_tokens": 40, "stream": True}
        with c.stream("POST", f"{server.url}/v1/completions", json=body) as answer:
            lines = answer.iter_lines()
            next(lines)
            engine = server.engine_pid()
            for pid in (engine, server.process.pid):
                os.kill(pid, signal.SIGTERM)
            assert [line for line in lines if line][-1] == f"data: {DONE}"
        assert server.end() == 0
        assert not is_running(engine)
        assert "cut short" not in server.log


def test_sigterm_lets_answers_end_and_a_second_one_ends_them_and_a_template_makes_chat_work(
    site: Site,
) -> None:
    model = site.models.write({"<|im_start|>": "a reply"}, step_seconds=0.03)
    (Path(model) / "tokenizer_config.json").write_text("{}")
    options = (*OPTIONS, "--chat-template", TEMPLATE)
    with running_server(model, *options, path=site.path) as server, httpx.Client(timeout=20) as c:
        assert "unavailable" not in server.log
        chat = c.post(f"{server.url}/v1/chat/completions", json=CHAT)
        assert chat.json()["choices"][0]["message"]["content"] == "a reply"
        url = f"{server.url}/v1/completions"
        short = {**LONG, "max_tokens": 20, "stream": True}
        with (
            c.stream("POST", url, json=short) as first,
            c.stream("POST", url, json={**LONG, "stream": True}) as second,
        ):
            engine = server.engine_pid()
            server.process.send_signal(signal.SIGTERM)
            until(lambda: "stopping (signal SIGTERM)" in server.log)
            assert events_of(first.read().decode())[-1] == DONE
            with pytest.raises(httpx.ConnectError):
                httpx.get(f"{server.url}/health")
            server.process.send_signal(signal.SIGTERM)
            events = events_of(second.read().decode())
        assert DONE not in events
        assert "error" in events[-1]
        assert server.end() == 1
        assert not is_running(engine)
        assert "Traceback" not in server.log

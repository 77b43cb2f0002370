"""The engine in a process of its own: same answers, quick news of its death, no remains."""

from __future__ import annotations

import os
import queue
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import psutil
import pytest

from dougong import LLM, SamplingParams
from dougong.engine.client import ProcessClient
from dougong.errors import CheckpointError, ConfigError, EngineDeadError, KernelFault
from tests.support.null_engine import NULL_OPTIONS, NullModels

GREEDY = SamplingParams(max_tokens=30, temperature=0.0)
CORE = Path(__file__).parents[2]
DEATH_SEEN_WITHIN_S = 5.0
GONE_WITHIN_S = 10.0


def pid_of(llm: LLM) -> int:
    client = llm._client
    assert isinstance(client, ProcessClient)
    pid = client.channel.process.pid
    assert pid is not None
    return pid


def test_answers_are_the_same_and_the_process_ends_with_the_model(null_models: NullModels) -> None:
    model = null_models.write({"A": "answer"})
    with LLM(model, **NULL_OPTIONS) as llm:
        expected = llm.generate(["A", "B"], GREEDY)
    with LLM(model, in_own_process=True, **NULL_OPTIONS) as llm:
        pid = pid_of(llm)
        assert pid != os.getpid()
        outputs = llm.generate(["A", "B"], GREEDY)
        assert [o.outputs for o in outputs] == [o.outputs for o in expected]
        params = SamplingParams(max_tokens=50, temperature=0.0, stop="sw")
        assert llm.generate("A", params)[0].outputs[0].text == "an"
        assert llm.stats().scheduler.kv_cache.num_held_blocks == 0
        assert llm.report.platform_reasons == ("platform null: asked for",)
    assert not psutil.pid_exists(pid)


def test_a_killed_engine_is_reported_soon_with_the_cause(null_models: NullModels) -> None:
    model = null_models.write(step_seconds=0.01, die_at_step=10)
    with LLM(model, in_own_process=True, **NULL_OPTIONS) as llm:
        begin = time.monotonic()
        with pytest.raises(EngineDeadError, match="SIGKILL"):
            llm.generate([5], SamplingParams(max_tokens=200, temperature=0.0))
        assert time.monotonic() - begin < DEATH_SEEN_WITHIN_S + 10 * 0.01
        with pytest.raises(EngineDeadError, match="SIGKILL"):
            llm.generate([5], GREEDY)
        with pytest.raises(EngineDeadError, match="SIGKILL"):
            llm.stats()


def test_a_failed_device_keeps_its_kind_across_the_processes(null_models: NullModels) -> None:
    model = null_models.write(fail_at_step=2)
    with LLM(model, in_own_process=True, **NULL_OPTIONS) as llm:
        with pytest.raises(EngineDeadError, match="step=2") as caught:
            llm.generate([5], GREEDY)
        cause = caught.value.__cause__
        assert isinstance(cause, KernelFault)
        assert cause.step_id == 2
        assert "NullDeviceError" in cause.__notes__[0]


def test_a_start_that_fails_there_is_raised_here(null_models: NullModels) -> None:
    with pytest.raises(ConfigError, match="block_size=5"):
        LLM(null_models.write(), in_own_process=True, platform="null", block_size=5)


def test_a_model_that_is_not_there_starts_no_process(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError):
        LLM(str(tmp_path / "nothing"), in_own_process=True)


@pytest.mark.parametrize("is_killed", [True, False], ids=["killed", "ended without closing"])
def test_the_engine_does_not_outlive_its_parent(null_models: NullModels, is_killed: bool) -> None:
    model = null_models.write(step_seconds=0.05)
    waiting = "llm.generate([5], SamplingParams(max_tokens=240, ignore_eos=True))"
    program = (
        "from dougong import LLM, SamplingParams\n"
        "if __name__ == '__main__':\n"
        f"    llm = LLM({model!r}, in_own_process=True, **{NULL_OPTIONS!r})\n"
        "    print(llm._client.channel.process.pid, flush=True)\n"
        f"    {waiting if is_killed else 'raise SystemExit(0)'}\n"
    )
    script = Path(model) / "parent.py"
    script.write_text(program)
    paths = os.pathsep.join([path for path in sys.path if path])
    parent = subprocess.Popen(
        [sys.executable, str(script)],
        stdout=subprocess.PIPE,
        text=True,
        env=os.environ | {"PYTHONPATH": paths},
    )
    assert parent.stdout is not None
    with parent, parent.stdout as said:
        engine = psutil.Process(int(said.readline()))
        if is_killed:
            parent.send_signal(signal.SIGKILL)
        code = parent.wait(GONE_WITHIN_S + GONE_WITHIN_S)
        assert code == (-signal.SIGKILL if is_killed else 0)
        engine.wait(GONE_WITHIN_S)


def test_closing_wakes_who_waits_and_ends_open_streams(null_models: NullModels) -> None:
    llm = LLM(null_models.write(step_seconds=0.01), in_own_process=True, **NULL_OPTIONS)
    stream = llm.stream([5], SamplingParams(max_tokens=200, temperature=0.0))
    next(stream)
    ends: queue.SimpleQueue[EngineDeadError] = queue.SimpleQueue()

    def wait() -> None:
        try:
            while True:
                llm._client.poll()
        except EngineDeadError as exc:
            ends.put(exc)

    threading.Thread(target=wait, daemon=True).start()
    llm.close()
    assert "closed" in str(ends.get(timeout=GONE_WITHIN_S))
    with pytest.raises(EngineDeadError, match=r"The engine was closed\."):
        next(stream)
    for _ in range(2):
        with pytest.raises(EngineDeadError, match="closed"):
            llm.stats()
    llm.close()


def test_an_event_that_cannot_be_read_ends_the_wait_and_the_engine(
    null_models: NullModels, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(data: bytes) -> None:
        raise EOFError("cut off")

    with LLM(null_models.write(), in_own_process=True, **NULL_OPTIONS) as llm:
        monkeypatch.setattr("dougong.engine.process_channel.unpack_event", refuse)
        with pytest.raises(EngineDeadError, match=r"cannot be read here \(EOFError: cut off\)"):
            llm.generate([5], GREEDY)
        client = llm._client
        assert isinstance(client, ProcessClient)
        client.channel.process.join(GONE_WITHIN_S)
        assert client.channel.process.exitcode == 0

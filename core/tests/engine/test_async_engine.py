from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import AsyncIterator
from typing import Any

import pytest

from dougong import AsyncEngine, SamplingParams
from dougong.contracts import LoadReport, RankPlan
from dougong.errors import EngineDeadError, KernelFault, PluginError, RequestError
from dougong.testing.null_worker import NullWorker
from tests.support.null_engine import NULL_OPTIONS, NullModels

LONG = SamplingParams(max_tokens=200, temperature=0.0)


@contextlib.asynccontextmanager
async def running(model: str) -> AsyncIterator[AsyncEngine]:
    async with await AsyncEngine.start(model, in_own_process=False, **NULL_OPTIONS) as engine:
        yield engine


async def settled(engine: AsyncEngine) -> None:
    """Wait until nothing runs and no block is held."""
    while True:
        scheduler = (await engine.stats()).scheduler
        if not (scheduler.num_running or scheduler.num_waiting):
            assert scheduler.kv_cache.num_held_blocks == 0
            return
        await asyncio.sleep(0.001)


async def test_several_streams_run_at_once_and_do_not_mix(null_models: NullModels) -> None:
    model = null_models.write({"A": "aaaaaaaa", "B": "bbbbbbbb"})
    async with running(model) as engine:

        async def last_text(prompt: str) -> str:
            return [o async for o in engine.generate(prompt, LONG)][-1].outputs[0].text

        texts = await asyncio.gather(*(last_text(prompt) for prompt in "ABABAB"))
        assert texts == ["aaaaaaaa", "bbbbbbbb"] * 3


async def test_tokens_come_before_the_end(null_models: NullModels) -> None:
    async with running(null_models.write(step_seconds=0.001)) as engine:
        lengths = [len(o.outputs[0].token_ids) async for o in engine.generate([5], LONG)]
        assert len(lengths) > 10
        assert lengths == sorted(lengths)
        assert lengths[-1] == 200


async def test_a_live_output_is_one_object_that_grows_and_loses_no_token(
    null_models: NullModels,
) -> None:
    async with running(null_models.write(step_seconds=0.0005)) as engine:
        (whole,) = [o async for o in engine.generate([5], LONG)][-1].outputs
        seen: list[int] = []
        outputs = set()
        async for output in engine.generate([5], LONG, is_live=True):
            seen += output.outputs[0].token_ids[len(seen) :]
            outputs.add(id(output))
            await asyncio.sleep(0.002)  # it goes on growing meanwhile, to its end at last
        assert seen == whole.token_ids
        assert len(outputs) == 1


async def test_a_consumer_that_leaves_ends_its_request_and_frees_its_blocks(
    null_models: NullModels,
) -> None:
    async with running(null_models.write(step_seconds=0.001)) as engine:
        stream = engine.generate([5], LONG)
        await anext(stream)
        await stream.aclose()  # type: ignore[attr-defined]  # an async generator
        await settled(engine)


async def test_a_cancelled_consumer_ends_its_request_wherever_it_stands(
    null_models: NullModels,
) -> None:
    async with running(null_models.write(step_seconds=0.001)) as engine:

        async def consume() -> None:
            async for _ in engine.generate([5] * 30, LONG):
                pass

        for delay_s in (0.0, 0.002, 0.01):
            tasks = [asyncio.create_task(consume()) for _ in range(3)]
            await asyncio.sleep(delay_s)
            for task in tasks:
                task.cancel()
            assert all(
                isinstance(end, asyncio.CancelledError)
                for end in await asyncio.gather(*tasks, return_exceptions=True)
            )
            await settled(engine)
        assert [o async for o in engine.generate([5], LONG)][-1].is_finished


async def test_a_refused_request_ends_no_other(null_models: NullModels) -> None:
    async with running(null_models.write(step_seconds=0.001)) as engine:
        stream = engine.generate([5], LONG)
        await anext(stream)
        with pytest.raises(RequestError):
            await anext(engine.generate([10**6], LONG))
        assert [o async for o in stream][-1].outputs[0].finish_reason == "length"


async def test_a_failed_device_ends_every_stream_with_its_cause(null_models: NullModels) -> None:
    async with running(null_models.write(fail_at_step=5)) as engine:
        streams = [engine.generate([token], LONG) for token in (5, 6)]

        async def consume(stream: AsyncIterator[object]) -> None:
            async for _ in stream:
                pass

        ends = await asyncio.gather(*map(consume, streams), return_exceptions=True)
        for end in ends:
            assert isinstance(end, EngineDeadError)
            assert isinstance(end.__cause__, KernelFault)
            assert end.__cause__.step_id == 5
        with pytest.raises(EngineDeadError):
            await anext(engine.generate([5], LONG))
        with pytest.raises(EngineDeadError):
            await engine.health()


async def test_health_of_a_running_engine(null_models: NullModels) -> None:
    async with running(null_models.write()) as engine:
        await engine.health()


async def test_closing_ends_open_streams(null_models: NullModels) -> None:
    async with running(null_models.write(step_seconds=0.01)) as engine:
        stream = engine.generate([5], LONG)
        await anext(stream)
        await engine.close()
        with pytest.raises(EngineDeadError, match="closed"):
            async for _ in stream:
                pass


@pytest.mark.parametrize("end", ["stop string", "consumer left"])
async def test_a_name_may_be_used_again_while_the_old_answer_is_still_computed(
    null_models: NullModels, end: str
) -> None:
    model = null_models.write({"A": "aaaaaaaa", "B": "bbbbbbbb"}, step_seconds=0.003)
    stopping = SamplingParams(max_tokens=200, temperature=0.0, stop="a")
    async with running(model) as engine, asyncio.timeout(20):
        for _ in range(3):
            params = stopping if end == "stop string" else LONG
            stream = engine.generate("A", params, request_id="x")
            await anext(stream)
            await stream.aclose()  # type: ignore[attr-defined]  # an async generator
            outputs = [o async for o in engine.generate("B", LONG, request_id="x")]
            assert outputs[-1].outputs[0].text == "bbbbbbbb"
            assert {output.request_id for output in outputs} == {"x"}


async def test_a_slow_consumer_does_not_end_a_later_request_of_the_same_name(
    null_models: NullModels,
) -> None:
    model = null_models.write({"A": "aa", "B": "bbbbbbbb"}, step_seconds=0.003)
    async with running(model) as engine, asyncio.timeout(20):
        first = engine.generate("A", LONG, request_id="x")
        await anext(first)
        await settled(engine)  # the engine has finished it, and its consumer has not seen that
        second = engine.generate("B", LONG, request_id="x")
        await anext(second)
        await first.aclose()  # type: ignore[attr-defined]  # an async generator
        assert [o async for o in second][-1].outputs[0].text == "bbbbbbbb"


async def test_a_priority_of_the_wrong_kind_ends_no_other(null_models: NullModels) -> None:
    wrong: Any = "high"
    async with running(null_models.write(step_seconds=0.001)) as engine:
        stream = engine.generate([5], LONG)
        await anext(stream)
        with pytest.raises(RequestError, match="priority"):
            await anext(engine.generate([6], LONG, priority=wrong))
        assert [o async for o in stream][-1].outputs[0].finish_reason == "length"


async def test_a_start_that_is_cancelled_leaves_no_engine(
    null_models: NullModels, monkeypatch: pytest.MonkeyPatch
) -> None:
    is_loading, may_go_on, is_shut_down = (threading.Event() for _ in range(3))
    load = NullWorker.load_model

    def load_model(self: NullWorker, plan: RankPlan) -> LoadReport:
        is_loading.set()
        assert may_go_on.wait(20)
        return load(self, plan)

    def shutdown(self: NullWorker) -> None:
        is_shut_down.set()

    monkeypatch.setattr(NullWorker, "load_model", load_model)
    monkeypatch.setattr(NullWorker, "shutdown", shutdown)
    model = null_models.write()
    start = asyncio.create_task(AsyncEngine.start(model, in_own_process=False, **NULL_OPTIONS))
    assert await asyncio.to_thread(is_loading.wait, 20)
    start.cancel()
    with pytest.raises(asyncio.CancelledError):
        await start
    assert not is_shut_down.is_set()
    may_go_on.set()
    assert await asyncio.to_thread(is_shut_down.wait, 20)


async def test_a_worker_that_cannot_tell_of_itself_ends_no_stream(
    null_models: NullModels, monkeypatch: pytest.MonkeyPatch
) -> None:
    def collect(self: NullWorker) -> dict[str, int]:
        raise ZeroDivisionError("no steps yet")

    monkeypatch.setattr(NullWorker, "collect", collect)
    async with running(null_models.write(step_seconds=0.001)) as engine:
        stream = engine.generate([5], LONG)
        await anext(stream)
        with pytest.raises(PluginError, match=r"collect\(\) failed: ZeroDivisionError"):
            await engine.stats()
        assert [o async for o in stream][-1].outputs[0].finish_reason == "length"
        await engine.health()


async def test_each_call_on_a_dead_engine_gets_an_error_of_its_own(
    null_models: NullModels,
) -> None:
    async with running(null_models.write()) as engine:
        await engine.close()
        errors = []
        for _ in range(3):
            with pytest.raises(EngineDeadError, match="closed") as caught:
                await engine.stats()
            errors.append(caught.value)
        assert len({id(error) for error in errors}) == 3
        assert all(error.__cause__ not in errors for error in errors)

"""Adapters come and go while other requests run, in a process of the engine's own too."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from dougong import LLM, AsyncEngine, SamplingParams
from dougong.engine import adapter_reading
from dougong.errors import CapacityError, RequestError
from dougong.lora import read_adapter
from tests.support.tiny_adapters import write_adapter
from tests.support.tiny_models import tiny_config, write_tiny_checkpoint

OPTIONS: dict[str, Any] = {
    "platform": "cpu",
    "dtype": "float32",
    "num_kv_blocks": 100,
    "enable_lora": True,
    "max_loras": 2,
}
PROMPT = [5, 12, 19, 26, 33]


def greedy(max_tokens: int = 12) -> SamplingParams:
    return SamplingParams(max_tokens=max_tokens, temperature=0.0, ignore_eos=True)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("lora")
    write_tiny_checkpoint(folder / "base")
    for seed, name in enumerate("abc"):
        write_adapter(folder / name, tiny_config(), seed=seed)
    return folder


@pytest.fixture(scope="module")
def expected(folder: Path) -> Iterator[dict[str | None, list[int]]]:
    named = [f"{name}={folder / name}" for name in "abc"]
    with LLM(str(folder / "base"), **OPTIONS | {"max_loras": 3}, lora=named) as llm:
        yield {
            name: llm.generate([PROMPT], greedy(), lora=name)[0].outputs[0].token_ids
            for name in (None, "a", "b", "c")
        }


def test_in_a_process_of_its_own_all_is_the_same(
    folder: Path, expected: dict[str | None, list[int]]
) -> None:
    with LLM(str(folder / "base"), in_own_process=True, **OPTIONS) as llm:
        llm.load_lora("a", str(folder / "a"))
        with pytest.raises(RequestError, match="cannot be read") as caught:
            llm.load_lora("b", str(folder / "nowhere"))
        assert caught.value.field == "lora_path"
        llm.load_lora("b", str(folder / "b"))
        with pytest.raises(CapacityError, match="--max-loras 3"):
            llm.load_lora("c", str(folder / "c"))
        outputs = llm.generate([PROMPT] * 3, greedy(), lora=["a", None, "b"])
        found = [one.outputs[0].token_ids for one in outputs]
        assert found == [expected["a"], expected[None], expected["b"]]
        llm.unload_lora("a")
        assert llm.loras() == ("b",)


async def test_adapters_come_and_go_under_load(
    folder: Path, expected: dict[str | None, list[int]]
) -> None:
    base = str(folder / "base")
    async with await AsyncEngine.start(base, in_own_process=False, **OPTIONS) as engine:

        async def tokens(lora: str | None) -> list[int]:
            return (
                [output async for output in engine.generate(PROMPT, greedy(), lora=lora)][-1]
                .outputs[0]
                .token_ids
            )

        async def neighbours() -> None:
            while not is_over:
                assert await tokens(None) == expected[None]

        is_over = False
        running = [asyncio.create_task(neighbours()) for _ in range(3)]
        for name in "abcabc":
            await engine.load_lora(name, str(folder / name))
            found = await asyncio.gather(*(tokens(name) for _ in range(3)))
            assert found == [expected[name]] * 3
            stream = engine.generate(PROMPT, greedy(), lora=name)
            await anext(stream)
            await engine.unload_lora(name)
            with pytest.raises(RequestError, match=f"no adapter '{name}'"):
                await tokens(name)
            rest = [output async for output in stream]
            assert rest[-1].outputs[0].token_ids == expected[name]
        is_over = True
        await asyncio.gather(*running)
        assert (await engine.stats()).scheduler.kv_cache.num_held_blocks == 0


async def test_files_are_read_beside_the_steps_and_who_leaves_meanwhile_has_loaded_it(
    folder: Path, expected: dict[str | None, list[int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    base, loop = str(folder / "base"), asyncio.get_running_loop()
    async with await AsyncEngine.start(base, in_own_process=False, **OPTIONS) as engine:
        gate, begun = asyncio.Event(), asyncio.Event()

        def slow(path: str) -> Any:
            loop.call_soon_threadsafe(begun.set)
            asyncio.run_coroutine_threadsafe(gate.wait(), loop).result()
            return read_adapter(path)

        monkeypatch.setattr(adapter_reading, "read_adapter", slow)
        loading = asyncio.create_task(engine.load_lora("a", str(folder / "a")))
        await begun.wait()
        outputs = [output async for output in engine.generate(PROMPT, greedy())]
        assert outputs[-1].outputs[0].token_ids == expected[None]
        loading.cancel()
        gate.set()
        while engine.loras() != ("a",):
            await asyncio.sleep(0.001)
        outputs = [output async for output in engine.generate(PROMPT, greedy(), lora="a")]
        assert outputs[-1].outputs[0].token_ids == expected["a"]

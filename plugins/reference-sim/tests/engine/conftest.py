"""Engines of tiny models on the device, and what the CPU platform says of the same requests."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from dougong import LLM

from dougong_sim.device import control, load
from dougong_sim.device import torch_module as sim
from dougong_sim.device.environment import Mode
from tests.engine.checkpoints import write_checkpoint

MODES: tuple[tuple[Mode, int], ...] = (("eager", 0), ("lazy", 0), ("thread", 2000))

OPTIONS: dict[str, Any] = {
    "dtype": "float32",
    "max_model_len": 96,
    "max_num_seqs": 4,
    "max_num_batched_tokens": 32,
}
"""Of every engine here: small, so that warm-up and capture take little."""


@pytest.fixture(autouse=True, scope="module")
def well_devices() -> Iterator[None]:
    """The devices are as new before and after the tests of a file."""
    load()
    limit = control.memory_limit()
    control.set_mode("lazy")
    yield
    for index in range(sim.device_count()):
        control.reset(index)
    control.set_mode("lazy")
    control.set_memory_limit(limit)


@pytest.fixture(scope="session")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A model."""
    return write_checkpoint(tmp_path_factory.mktemp("tiny"))


@pytest.fixture(scope="session")
def host(tiny: str) -> Iterator[LLM]:
    """The CPU platform, with room for everything."""
    with open_on_host(tiny, num_kv_blocks=64, **OPTIONS) as llm:
        yield llm


def open_on_host(model: str, **options: Any) -> LLM:
    """The CPU platform alone: else each start tries, in a child, whether this wheel would load."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DOUGONG_PLUGINS", "cpu")
        return LLM(model, platform="cpu", **options)

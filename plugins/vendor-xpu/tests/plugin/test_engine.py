"""The engine with this platform on the simulated device.

The vendor's runtime is replaced by the simulated one, the vendor's ops by references under their
published schemas; everything else is this wheel's. It shows that the parts fit the engine, and
nothing of the vendor's.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from dougong import LLM, SamplingParams
from dougong_conformance.ladder.installed_double import installed_double
from dougong_conformance.ladder.platform_double import Double
from dougong_conformance.ladder.stand_in import StandIn, define
from dougong_sim.device import control

from tests.plugin.checkpoints import prompt_of
from tests.references import REFERENCES, flash, golden

PROMPTS = [prompt_of(length, start) for length, start in ((5, 1), (21, 2), (40, 3), (33, 4))]
GREEDY = SamplingParams(max_tokens=24, temperature=0.0, ignore_eos=True)
OPTIONS: dict[str, Any] = {
    "max_model_len": 96,
    "max_num_seqs": 4,
    "max_num_batched_tokens": 32,
    "num_kv_blocks": 5,
}
DOUBLE = Double(
    plugin="xpu",
    arch="bmg",
    references="tests.references:report",
    import_path=str(Path(__file__).parents[2]),
)


@pytest.fixture
def platform() -> Iterator[str]:
    """Its name, while the double is installed."""
    with installed_double(DOUBLE) as name:
        yield name


def tokens(llm: LLM) -> list[list[int]]:
    outputs = llm.generate(prompt_token_ids=PROMPTS, sampling_params=GREEDY)
    return [list(one.outputs[0].token_ids) for one in outputs]


def on_device(model: str, platform: str, **options: Any) -> list[list[int]]:
    given = {**OPTIONS, **options}
    with LLM(model, platform=platform, **given) as llm, control.forbid_implicit_sync():
        return tokens(llm)


def on_host(model: str, **options: Any) -> list[list[int]]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DOUGONG_PLUGINS", "cpu")
        with LLM(model, platform="cpu", **{**OPTIONS, "num_kv_blocks": 64, **options}) as llm:
            return tokens(llm)


def test_greedy_tokens_in_float32_equal_those_of_the_cpu(
    model: str, platform: str, library: StandIn
) -> None:
    assert on_device(model, platform, dtype="float32") == on_host(model, dtype="float32")
    ops = ("rms_norm", "fused_add_rms_norm", "rotary_embedding", "silu_and_mul")
    assert set(library.calls) == {f"_C::{one}" for one in ops}, "flash takes no float32"


@pytest.fixture(scope="module")
def flashed(model: str) -> list[list[int]]:
    """Tokens in half precision, with flash attention."""
    with define(golden(), REFERENCES) as library, installed_double(DOUBLE) as platform:
        found = on_device(model, platform, dtype="bfloat16")
    assert library.calls["_vllm_fa2_C::varlen_fwd"] > 0
    return found


def test_flash_attention_gives_the_tokens_of_the_reference(
    flashed: list[list[int]], model: str, platform: str, library: StandIn
) -> None:
    options = {"attention_backend": "reference/torch", "num_kv_blocks": 64}
    assert on_device(model, platform, dtype="bfloat16", **options) == flashed
    assert library.calls["_vllm_fa2_C::varlen_fwd"] == 0


def test_attention_that_sees_too_little_would_be_seen(
    flashed: list[list[int]], model: str, platform: str
) -> None:
    with define(golden(), {**REFERENCES, "_vllm_fa2_C::varlen_fwd": _with_window_of(8)}):
        assert on_device(model, platform, dtype="bfloat16") != flashed


def _with_window_of(left: int) -> Any:
    def windowed(*args: Any) -> Any:
        given = list(args)
        given[_WINDOW_LEFT] = left
        return flash.varlen_fwd(*given)

    return windowed


_WINDOW_LEFT = 20
"""Place of ``window_size_left`` in the schema."""

"""Flash attention over the paged cache against its definition, and what it refuses."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from dougong.contracts import AttentionPhase, AttentionRequest, UnsupportedError
from dougong_conformance.ladder.stand_in import StandIn

from dougong_xpu import compiled
from dougong_xpu.attention import XpuFlashBackend
from tests.plugin.paged_step import PagedStep, make_cache

BACKEND = XpuFlashBackend()
MIXED = PagedStep(query_lens=(40, 1, 3, 1), seq_lens=(40, 73, 50, 1))
DECODES = PagedStep(query_lens=(1, 1, 1), seq_lens=(24, 73, 2))


def run(step: PagedStep) -> torch.Tensor:
    assert BACKEND.supports(step.request), BACKEND.supports(step.request).reason
    return step.run(BACKEND, make_cache(BACKEND, step)).double()


@pytest.mark.parametrize("step", [MIXED, DECODES], ids=["mixed", "decodes"])
@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"block_size": 64},
        {"block_size": 128},
        {"window": 9, "block_size": 64},
        {"num_heads": 4, "num_kv_heads": 4, "head_dim": 128},
        {"num_heads": 12, "num_kv_heads": 1},
        {"dtype": "float16", "kv_dtype": "float16"},
        {"num_padding": 5},
    ],
    ids=str,
)
def test_it_is_attention_whatever_the_layer_and_the_step(
    step: PagedStep, changes: dict[str, int], library: StandIn
) -> None:
    case = replace(step, **changes)  # type: ignore[arg-type]  # fields by name
    torch.testing.assert_close(run(case), case.expected(), rtol=2e-2, atol=2e-2)
    assert library.calls["_vllm_fa2_C::varlen_fwd"] == 1
    assert library.calls["_C_cache_ops::reshape_and_cache_flash"] == 2


def test_a_window_that_is_one_token_off_would_be_seen(library: StandIn) -> None:
    case = replace(MIXED, window=9, block_size=64)
    wrong = replace(case, window=10)
    with pytest.raises(AssertionError):
        torch.testing.assert_close(run(wrong), case.expected(), rtol=2e-2, atol=2e-2)


def test_rows_of_padding_leave_the_cache_as_it_is(library: StandIn) -> None:
    case = replace(MIXED, num_padding=4)
    cache = make_cache(BACKEND, case)
    case.run(BACKEND, cache)
    whole = make_cache(BACKEND, replace(case, num_padding=0))
    replace(case, num_padding=0).run(BACKEND, whole)
    for ours, meant in zip(cache, whole, strict=True):
        assert torch.equal(ours.nan_to_num(-1), meant.nan_to_num(-1))


def test_heads_of_a_wider_tensor_are_written_as_they_lie(library: StandIn) -> None:
    case = replace(MIXED, kv_dtype="bfloat16")
    cache = make_cache(BACKEND, case)
    qkv = torch.randn(2, 10, 64).bfloat16()
    impl = BACKEND.make_impl(case.request, 0.125)
    impl.write_kv(qkv[:, 6:8], qkv[:, 8:10], cache, torch.tensor([3, -1]))
    assert torch.equal(cache[0].flatten(0, 1)[3], qkv[0, 6:8])
    assert torch.equal(cache[1].flatten(0, 1)[3], qkv[0, 8:10])


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"dtype": "float32", "kv_dtype": "float32"}, "dtype float32; takes bfloat16, float16"),
        ({"soft_cap": 20.0}, "a cap on scores, which it does not take"),
        ({"kv_dtype": "float8_e4m3fn"}, "KV dtype float8_e4m3fn"),
        ({"head_dim": 80}, "head size 80; takes 64, 96, 128, 192, 256, 512"),
        ({"block_size": 48}, "block size 48; takes 64, 16, 32, 128"),
        ({"has_sinks": True}, "attention sinks"),
        ({"needs_graph": True}, "graph capture"),
        ({"head_dim": 96, "block_size": 16}, "decode is compiled for head sizes in tiles of keys"),
        ({"num_heads": 24, "num_kv_heads": 1, "head_dim": 512}, "and 24 query heads per KV head"),
        ({"head_dim": 256, "sliding_window": 9}, "prefill with a window is compiled for 64, 128"),
    ],
    ids=str,
)
def test_what_the_kernels_do_not_take_is_refused_with_a_reason(
    changes: dict[str, object], said: str
) -> None:
    request = replace(MIXED.request, **changes)  # type: ignore[arg-type]  # fields by name
    answer = BACKEND.supports(request)
    assert not answer
    assert said in answer.reason
    with pytest.raises(UnsupportedError):
        BACKEND.make_impl(request, 1.0)


def test_phases_are_judged_by_the_kernels_they_need() -> None:
    request = replace(MIXED.request, head_dim=96, block_size=16)
    assert BACKEND.supports(replace(request, phase=AttentionPhase.PREFILL))
    assert not BACKEND.supports(replace(request, phase=AttentionPhase.DECODE))
    assert not BACKEND.supports(replace(request, phase=AttentionPhase.MIXED))


def test_without_a_block_size_any_that_has_a_kernel_will_do() -> None:
    request = replace(MIXED.request, head_dim=96, block_size=None)
    assert BACKEND.supports(request)
    assert not BACKEND.supports(replace(request, head_dim=192, sliding_window=9))


def test_preferred_blocks_have_a_kernel_for_every_head_size() -> None:
    heads = {head for _, head, tile in compiled.DECODE if tile == compiled.tile_of(64)}
    assert heads == compiled.PREFILL


@pytest.mark.parametrize(
    ("block_size", "tile"), [(64, 64), (128, 64), (32, 32), (16, 16), (48, 16)]
)
def test_tiles_follow_the_block_size(block_size: int, tile: int) -> None:
    assert compiled.tile_of(block_size) == tile


def test_a_table_s_end_is_never_handed_to_the_kernel(library: StandIn) -> None:
    common = MIXED.common(BACKEND.kv_layout(MIXED.spec))
    built = BACKEND.make_builder(
        MIXED.spec, BACKEND.kv_layout(MIXED.spec), torch.device("cpu")
    ).build(common)
    assert int(common.block_table.max()) > 1000, "the step has traps there"
    assert int(built.block_table.max()) < 100
    assert built.block_table.dtype is torch.int32


def test_every_field_of_a_request_is_judged() -> None:
    latent = AttentionRequest(
        num_heads=16,
        num_kv_heads=1,
        head_dim=64,
        dtype="bfloat16",
        kv_dtype="bfloat16",
        is_mla=True,
        kv_lora_rank=512,
        rope_head_dim=64,
    )
    assert "latent attention" in BACKEND.supports(latent).reason

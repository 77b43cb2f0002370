"""The device's own attention against its definition, on the device."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from dougong.contracts import AttentionBackend, AttentionRequest, KVCacheSpec
from dougong.reference import ReferenceAttentionBackend

from dougong_sim import tiles
from dougong_sim.attention import TileAttentionBackend
from dougong_sim.device import control
from tests.plugin.paged_step import PagedStep

MIXED = PagedStep(query_lens=(40, 1, 3, 1), seq_lens=(40, 73, 50, 1))
DECODES = PagedStep(query_lens=(1, 1, 1), seq_lens=(24, 73, 2))


def make_cache(
    backend: AttentionBackend, step: PagedStep, device: torch.device
) -> list[torch.Tensor]:
    """Allocated as the layout says, NaN wherever nothing was written."""
    layout = backend.kv_layout(step.spec)
    num_blocks = layout.reserved_blocks + sum(map(len, step.blocks(0)))
    cache = []
    for buffer in layout.buffers:
        shape = buffer.shape(num_blocks)
        order = buffer.stride_order or tuple(range(len(shape)))
        stored = torch.full(
            [shape[axis] for axis in order],
            torch.nan,
            dtype=getattr(torch, buffer.dtype),
            device=device,
        )
        cache.append(stored.permute([order.index(axis) for axis in range(len(shape))]))
    return cache


def run(
    step: PagedStep, device: torch.device, backend: AttentionBackend | None = None
) -> torch.Tensor:
    """On the device, where nothing may wait for it before the answer is fetched."""
    backend = backend or TileAttentionBackend()
    assert backend.supports(step.request)
    with control.allow_sync("inputs of the test"):
        cache = make_cache(backend, step, device)
        return step.run(backend, cache).cpu().double()


@pytest.mark.parametrize("step", [MIXED, DECODES], ids=["mixed", "decodes"])
@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"block_size": 48},
        {"window": 9},
        {"window": 30, "soft_cap": 2.0},
        {"soft_cap": 0.5},
        {"num_heads": 4, "num_kv_heads": 4, "head_dim": 8},
        {"num_padding": 5},
        {"num_padding": 3, "num_idle": 2},
    ],
    ids=str,
)
def test_it_is_attention_whatever_the_layer_and_the_step(
    step: PagedStep, changes: dict[str, int], device: torch.device
) -> None:
    case = replace(step, **changes)  # type: ignore[arg-type]  # fields by name
    torch.testing.assert_close(run(case, device), case.expected(), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("kv_dtype", ["bfloat16", "float16"])
def test_a_narrow_cache_rounds_keys_and_values_and_nothing_else(
    kv_dtype: str, device: torch.device
) -> None:
    case = replace(MIXED, kv_dtype=kv_dtype)
    torch.testing.assert_close(run(case, device), case.expected(), rtol=1e-4, atol=1e-5)


def test_narrow_queries_give_a_narrow_answer(device: torch.device) -> None:
    case = replace(MIXED, dtype="bfloat16", kv_dtype="bfloat16")
    torch.testing.assert_close(run(case, device), case.expected(), rtol=1e-2, atol=1e-2)


def test_tiles_computed_a_few_at_a_time_give_the_same(
    device: torch.device, monkeypatch: pytest.MonkeyPatch
) -> None:
    at_once = run(MIXED, device)
    monkeypatch.setattr(tiles, "WORKSPACE_BYTES", 1)
    assert torch.equal(run(MIXED, device), at_once)


def test_a_step_of_decodes_in_tiles_of_many_rows_gives_the_same(device: torch.device) -> None:
    case = replace(DECODES, max_query_len=8, num_padding=2)
    torch.testing.assert_close(run(case, device), case.expected(), rtol=1e-4, atol=1e-5)


def test_nothing_waits_for_the_device(device: torch.device) -> None:
    backend = TileAttentionBackend()
    cache = make_cache(backend, MIXED, device)
    control.clear_counters()
    case = replace(MIXED, num_padding=3)
    impl = backend.make_impl(case.request, 1.0)
    common = case.common(backend.kv_layout(case.spec), device)
    k = torch.ones(len(common.slot_mapping), 2, 16, device=device)
    q = torch.ones(len(common.slot_mapping), 6, 16, device=device)
    metadata = backend.make_builder(case.spec, backend.kv_layout(case.spec), device).build(common)
    with control.forbid_implicit_sync():
        impl.write_kv(k, k, cache, common.slot_mapping)
        impl.forward(q, k, k, cache, metadata, torch.empty_like(q))
    assert control.pending() > 20


def test_padding_is_written_into_the_reserved_block_alone(device: torch.device) -> None:
    backend = TileAttentionBackend()
    (cache,) = make_cache(backend, DECODES, device)
    rows = torch.ones(3, 2, 16, device=device)
    slots = torch.tensor([-1, 30, -1], dtype=torch.int32).to(device)
    backend.make_impl(DECODES.request, 1.0).write_kv(rows, rows, [cache], slots)
    written = torch.isfinite(cache.cpu()).all(dim=(0, 2))  # [blocks, tokens]
    assert written.nonzero().tolist() == [[0, 0], [1, 6]]


def test_the_layout_is_unlike_the_hosts_and_stated_as_data() -> None:
    spec = KVCacheSpec(num_kv_heads=2, head_dim=16, head_dim_v=8, dtype="float32", block_size=24)
    layout = TileAttentionBackend().kv_layout(spec)
    (buffer,) = layout.buffers
    assert buffer.shape(5) == (2, 5, 24, 24)
    assert buffer.stride_order == (1, 0, 2, 3)
    assert (layout.block_sizes, layout.alignment_bytes) == ((48, 24), 256)
    assert (layout.slot_dtype, layout.reserved_blocks) == ("int32", 1)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"block_size": 16}, "block size 16; takes 48, 24"),
        ({"head_dim": 20}, "head size 20; takes multiples of 8"),
        ({"head_dim": 264}, "head size 264; takes at most 256"),
        ({"has_sinks": True}, "attention sinks"),
        ({"is_mla": True}, "latent attention"),
        ({"kv_dtype": "float8_e4m3fn"}, "KV dtype float8_e4m3fn; takes"),
    ],
)
def test_what_it_does_not_take_is_refused_with_a_reason(
    changes: dict[str, object], reason: str
) -> None:
    request: AttentionRequest = replace(DECODES.request, **changes)  # type: ignore[arg-type]  # by name
    verdict = TileAttentionBackend().supports(request)
    assert not verdict
    assert reason in verdict.reason


@pytest.mark.parametrize("changes", [{}, {"num_padding": 4}, {"window": 9}], ids=str)
def test_the_reference_runs_here_too_without_waiting(
    changes: dict[str, int], device: torch.device
) -> None:
    case = replace(MIXED, block_size=24, **changes)  # type: ignore[arg-type]  # fields by name
    found = run(case, device, ReferenceAttentionBackend())
    torch.testing.assert_close(found, case.expected(), rtol=1e-4, atol=1e-5)

"""Attention and cache writes, interpreted, against the float64 oracle (rung L5)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest
import torch
from dougong_conformance.kit.generate import Draw
from dougong_conformance.kit.metric import Expected
from dougong_conformance.kit.oracle.attention import AttentionTerms
from dougong_conformance.kit.paged import Geometry, PagedBatch, Span

from dougong_triton_kernels import launching
from dougong_triton_kernels.attention import paged_attention, paged_decode
from dougong_triton_kernels.attention_launches import Call, plan_paged_attention
from dougong_triton_kernels.kv_cache import write_kv
from tests.lane.conftest import Shows
from tests.lane.judged import is_right, largest_error, limit

pytestmark = pytest.mark.lane

DTYPES = (torch.float32, torch.float16, torch.bfloat16)
DECODES = (Span(5), Span(77), Span(1), Span(32))
Arguments = tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]
MIXED = (Span(5, 5), Span(60, 23), Span(40, 1), Span(33, 17), Span(64, 2))


@dataclass(frozen=True)
class Layer:
    """Heads, KV heads, size of a head, tokens of a block, window, cap."""

    heads: int
    kv_heads: int
    head_dim: int
    block_size: int
    window: int | None = None
    cap: float | None = None

    def terms(self) -> dict[str, Any]:
        return {"sliding_window": self.window, "soft_cap": self.cap}


LAYERS = (
    Layer(8, 2, 64, 16),
    Layer(7, 1, 80, 16, cap=5.0),
    Layer(4, 4, 96, 32, window=20),
    Layer(8, 2, 128, 64, window=33, cap=2.0),
    Layer(4, 2, 256, 128),
    Layer(6, 2, 64, 48, window=1),
)


class Step:
    """A step of which the cache holds everything, written by the kernel; what is not is NaN."""

    def __init__(self, layer: Layer, dtype: torch.dtype, spans: tuple[Span, ...], **kinds: bool):
        self.layer = layer
        geometry = Geometry(
            num_heads=layer.heads,
            num_kv_heads=layer.kv_heads,
            head_dim=layer.head_dim,
            block_size=layer.block_size,
            dtype=dtype,
            kv_dtype=dtype,
        )
        batch = PagedBatch(Draw(str(layer), dtype=dtype), spans, geometry, padded=2)
        shape = [batch.num_blocks, layer.block_size, layer.kv_heads, layer.head_dim]
        if kinds.get("heads_first"):
            shape[1], shape[2] = shape[2], shape[1]
        self.k, self.v = (torch.full(shape, torch.nan, dtype=dtype) for _ in range(2))
        if kinds.get("heads_first"):
            self.k, self.v = self.k.transpose(1, 2), self.v.transpose(1, 2)
        self.now = batch.step()
        for rows in (*batch.writes(), self.now):
            write_kv(rows["k"], rows["v"], self.k, self.v, rows["slots"])
        self.batch = batch
        self.scale = layer.head_dim**-0.5

    def expected(self) -> Expected:
        terms = AttentionTerms(scale=self.scale, **self.layer.terms())
        return self.batch.expected(terms)

    def arguments(self) -> Arguments:
        return self.now["q"], self.k, self.v, self.now["block_table"], self.now["seq_lens"]

    def decode(self, **options: Any) -> torch.Tensor:
        terms = {**self.layer.terms(), **options}
        return paged_decode(*self.arguments(), self.scale, **terms)

    def mixed(self, **options: Any) -> torch.Tensor:
        starts, longest = self.now["cu_seqlens_q"], self.now["max_query_len"]
        terms = {**self.layer.terms(), **options}
        return paged_attention(*self.arguments(), starts, longest, self.scale, **terms)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("layer", LAYERS, ids=str)
def test_decode_lies_within_the_law(layer: Layer, dtype: torch.dtype, shows: Shows) -> None:
    step = Step(layer, dtype, DECODES)
    out = step.decode()
    actual, expected = out[: len(DECODES)], step.expected()
    error = largest_error(actual, expected)
    shows("L5", "paged decode, interpreted, against float64", largest_error=error, limit=limit())
    assert is_right(actual, expected)
    assert bool((out[len(DECODES) :] == 0).all()), "rows of length 0 must give zeros"


@pytest.mark.parametrize("splits", [2, 5])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_a_split_decode_lies_within_the_law(dtype: torch.dtype, splits: int, shows: Shows) -> None:
    layer = Layer(8, 2, 80, 16, window=70 if splits == 5 else None)
    step = Step(layer, dtype, DECODES)
    out = step.decode(num_splits=splits)
    actual, expected = out[: len(DECODES)], step.expected()
    error = largest_error(actual, expected)
    shows("L5", "split decode, interpreted, against float64", largest_error=error, limit=limit())
    assert is_right(actual, expected)
    assert bool((out[len(DECODES) :] == 0).all()), "rows of length 0 must give zeros"


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("layer", LAYERS, ids=str)
def test_mixed_attention_lies_within_the_law(
    layer: Layer, dtype: torch.dtype, shows: Shows
) -> None:
    step = Step(layer, dtype, MIXED)
    kept = torch.full_like(step.now["q"], 7)
    out = step.mixed(out=kept)
    count = step.now["num_tokens"]
    expected = step.expected()
    error = largest_error(out[:count], expected)
    shows("L5", "mixed attention, interpreted, against float64", largest_error=error, limit=limit())
    assert is_right(out[:count], expected)
    assert bool((out[count:] == 7).all()), "padding was written"


@pytest.mark.parametrize("arch", ["gfx942", "gfx1100", "sm_90"])
def test_the_tiles_of_a_chip_give_the_same(arch: str, shows: Shows) -> None:
    step = Step(LAYERS[3], torch.float32, MIXED)
    out, expected = step.mixed(arch=arch)[: step.now["num_tokens"]], step.expected()
    error = largest_error(out, expected)
    shows("L5", "tiles of chips, interpreted, against float64", largest_error=error, limit=limit())
    assert is_right(out, expected)


def test_a_cache_with_heads_first_is_a_permuted_view(shows: Shows) -> None:
    step = Step(LAYERS[0], torch.float32, DECODES, heads_first=True)
    assert not step.k.is_contiguous()
    actual, expected = step.decode()[: len(DECODES)], step.expected()
    error = largest_error(actual, expected)
    shows("L5", "heads-first cache, interpreted", largest_error=error, limit=limit())
    assert is_right(actual, expected)


@pytest.mark.parametrize("slot_dtype", [torch.int32, torch.int64], ids=str)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_a_write_reaches_its_slots_and_nothing_else(
    dtype: torch.dtype, slot_dtype: torch.dtype, shows: Shows
) -> None:
    shows("L5", "cache write, interpreted, to the bit")
    draw = Draw("write", dtype=dtype)
    wide = draw.normal(5, 3 * 2 * 3, 80)  # keys and values are slices of one wider tensor
    k, v = wide[:, 6:9], wide[:, 12:15]
    slots = torch.tensor([7, -1, 40, 0, 15], dtype=slot_dtype)
    k_cache, v_cache = (torch.full((3, 16, 3, 80), -9.0, dtype=dtype) for _ in range(2))
    write_kv(k, v, k_cache, v_cache, slots)
    for rows, cache in ((k, k_cache), (v, v_cache)):
        wanted = torch.full((48, 3, 80), -9.0, dtype=dtype)
        for row, slot in enumerate(slots.tolist()):
            if slot >= 0:
                wanted[slot] = rows[row]
        assert torch.equal(cache.flatten(0, 1), wanted)


def test_a_write_of_padding_alone_stores_nothing() -> None:
    k = torch.ones(2, 1, 64)
    k_cache, v_cache = torch.zeros(2, 16, 1, 64), torch.zeros(2, 16, 1, 64)
    write_kv(k, k, k_cache, v_cache, torch.tensor([-1, -1]))
    assert not bool(k_cache.any() | v_cache.any())


@pytest.mark.filterwarnings("ignore:All-NaN slice:RuntimeWarning")  # what a wrong block holds
@pytest.mark.parametrize(
    "change",
    [
        {"window": 34},
        {"HAS_WINDOW": False},
        {"HAS_CAP": False},
        {"BLOCK_SIZE": 32},
        {"scale": 0.1},
        {"late": 1},
    ],
    ids=str,
)
def test_a_wrong_mask_scale_or_block_is_found_out(change: dict[str, Any], shows: Shows) -> None:
    """Planted: the judge of this file has to see a fault of one token."""
    shows("L5", "planted faults of attention found out")
    step = Step(Layer(4, 2, 64, 64, window=33, cap=2.0), torch.float32, MIXED)
    q, k, v, table, lengths = step.arguments()
    terms = step.layer.terms()
    out = torch.zeros_like(q)
    call = Call(q, k, v, table, lengths - change.get("late", 0), step.scale, out, *terms.values())
    starts, longest = step.now["cu_seqlens_q"], step.now["max_query_len"]
    launch = plan_paged_attention(call, starts, longest, "generic")
    arguments = {name: change.get(name, value) for name, value in launch.arguments.items()}
    constants = {name: change.get(name, value) for name, value in launch.constants.items()}
    launching.run(
        launching.Launch(launch.kernel, launch.grid, arguments, constants, launch.options)
    )
    assert not largest_error(out[: step.now["num_tokens"]], step.expected()) <= limit()

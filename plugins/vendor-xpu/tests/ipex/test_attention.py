"""The provider's cache and attention through the plugin's backend, against the suite's oracle."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
import torch
from dougong_conformance.kit.generate import Draw
from dougong_conformance.kit.oracle.attention import AttentionTerms
from dougong_conformance.kit.paged import Geometry, PagedBatch, Span

from dougong_xpu.ipex_attention import IpexPagedBackend
from tests.attention_layer import Layer
from tests.ipex.conftest import DTYPES, error_of
from tests.shown import shows

pytestmark = pytest.mark.lane

PREFILL = (Span(37, 37), Span(5, 5), Span(70, 70))
CHUNKED = (Span(90, 40), Span(33, 32), Span(64, 1))
DECODE = (Span(90), Span(1), Span(64), Span(33))
HEADS = ((8, 8), (8, 2), (8, 1), (7, 1), (12, 3))


def _error(
    spans: Sequence[Span], dtype: torch.dtype, *, heads: tuple[int, int], dim: int, block: int
) -> float:
    geometry = Geometry(
        num_heads=heads[0],
        num_kv_heads=heads[1],
        head_dim=dim,
        block_size=block,
        reserved_blocks=1,
        dtype=dtype,
        kv_dtype=dtype,
    )
    terms = AttentionTerms(scale=dim**-0.5)
    batch = PagedBatch(Draw(f"ipex/{heads}/{dim}/{block}", 0, dtype), spans, geometry, padded=2)
    layer = Layer(IpexPagedBackend(), geometry, terms, batch.num_blocks, torch.device("cpu"))
    for cache in layer.cache:
        cache[: layer.layout.reserved_blocks] = 0  # what the backend keeps for itself it may read
    return error_of(layer.run(batch), batch.expected(terms))


STEPS = {
    "flash_attn_varlen_func, prefill": PREFILL,
    "flash_attn_varlen_func, chunked prefill": CHUNKED,
    "single_query_cached_kv_attention": DECODE,
}


@pytest.mark.parametrize("kernel", STEPS)
def test_attention_agrees_with_the_oracle(kernel: str) -> None:
    what = f"{kernel} of Intel's extension (CPU build) agrees with the oracle on its cache"
    with shows("beside", f"{what} in {', '.join(DTYPES)}", "ipex") as said:
        for name, dtype in DTYPES.items():
            errors = {
                dim: _error(STEPS[kernel], dtype, heads=(8, 2), dim=dim, block=16)
                for dim in (16, 64, 128, 256)
            }
            said.details[f"largest error by head size, {name}"] = errors


@pytest.mark.parametrize("spans", [CHUNKED, DECODE], ids=("chunked prefill", "decode"))
def test_every_block_size_and_group_that_the_backend_takes_is_right(spans: Sequence[Span]) -> None:
    limits = IpexPagedBackend.limits
    assert limits is not None
    for block in limits.block_sizes or ():
        _error(spans, torch.float32, heads=(8, 2), dim=64, block=block)
    for heads in HEADS:
        _error(spans, torch.float32, heads=heads, dim=64, block=16)


def test_a_wrong_scale_is_found() -> None:
    geometry = Geometry(
        num_heads=2,
        num_kv_heads=2,
        head_dim=16,
        block_size=16,
        reserved_blocks=1,
        dtype=torch.float32,
        kv_dtype=torch.float32,
    )
    batch = PagedBatch(Draw("ipex/scale"), CHUNKED, geometry)
    terms, other = AttentionTerms(scale=0.25), AttentionTerms(scale=0.26)
    layer = Layer(IpexPagedBackend(), geometry, other, batch.num_blocks, torch.device("cpu"))
    layer.cache[0][0] = layer.cache[1][0] = 0
    with pytest.raises(AssertionError, match="normalised error"):
        error_of(layer.run(batch), batch.expected(terms))

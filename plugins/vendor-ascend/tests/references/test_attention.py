"""References of attention and of cache writes, and the traps that the device sets."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
import torch
from torch.nn import functional as F  # noqa: N812 - torch's own convention

from tests.references.refusals import VendorLimitError

pytestmark = pytest.mark.usefixtures("npu_ops")
_HEADS, _KV_HEADS, _DIM, _BLOCK = 4, 2, 32, 128
_LENGTHS, _COUNTS = (150, 7, 130), (3, 7, 1)
_TABLE = torch.tensor([[4, 2], [1, 0], [0, 5]], dtype=torch.int32)
_HIDDEN = torch.ones(2048, 2048, dtype=torch.int8).triu(1)


def _random(*shape: int, seed: int) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).to(torch.bfloat16)


class Paged:
    """Three sequences in a cache of six blocks."""

    def __init__(self) -> None:
        self.q = _random(sum(_COUNTS), _HEADS, _DIM, seed=0)
        self.keys = [_random(n, _KV_HEADS, _DIM, seed=n) for n in _LENGTHS]
        self.values = [_random(n, _KV_HEADS, _DIM, seed=n + 1) for n in _LENGTHS]
        self.k_cache = torch.zeros(6, _BLOCK, _KV_HEADS, _DIM, dtype=torch.bfloat16)
        self.v_cache = torch.zeros_like(self.k_cache)

    @property
    def slots(self) -> torch.Tensor:
        """Of all keys, sequence by sequence."""
        return torch.tensor(
            [
                int(_TABLE[row, place // _BLOCK]) * _BLOCK + place % _BLOCK
                for row, length in enumerate(_LENGTHS)
                for place in range(length)
            ],
            dtype=torch.int32,
        )

    def write(self, **keywords: Any) -> None:
        """All keys and values."""
        k, v = torch.cat(self.keys), torch.cat(self.values)
        torch.ops.npu.npu_scatter_pa_kv_cache(
            k, v, self.k_cache, self.v_cache, self.slots, **keywords
        )

    def attend(self, **changed: Any) -> torch.Tensor:
        """As the plugin does."""
        keywords: dict[str, Any] = {
            "atten_mask": _HIDDEN,
            "block_table": _TABLE,
            "actual_seq_lengths": [3, 10, 11],
            "actual_seq_lengths_kv": list(_LENGTHS),
            "num_heads": _HEADS,
            "scale": _DIM**-0.5,
            "input_layout": "TND",
            "num_key_value_heads": _KV_HEADS,
            "sparse_mode": 3,
            "block_size": _BLOCK,
        }
        flat = (6, _BLOCK, _KV_HEADS * _DIM)
        out: torch.Tensor
        out, _ = torch.ops.npu.npu_fused_infer_attention_score(
            self.q, self.k_cache.view(flat), self.v_cache.view(flat), **{**keywords, **changed}
        )
        return out

    def want(self, window: int | None = None) -> torch.Tensor:
        """By torch's own attention."""
        ends = [0, *torch.tensor(_COUNTS).cumsum(0).tolist()]
        parts = []
        for (start, end), k, v in zip(pairwise(ends), self.keys, self.values, strict=True):
            seen = torch.ones(end - start, len(k), dtype=torch.bool).tril(len(k) - (end - start))
            if window:
                seen &= torch.ones_like(seen).triu(len(k) - (end - start) - window + 1)
            q, k, v = (one.float().transpose(0, 1)[None] for one in (self.q[start:end], k, v))
            part = F.scaled_dot_product_attention(q, k, v, attn_mask=seen, enable_gqa=True)
            parts.append(part[0].transpose(0, 1))
        return torch.cat(parts).to(torch.bfloat16)


@pytest.fixture
def paged() -> Paged:
    made = Paged()
    made.write(cache_mode="Norm")
    return made


def test_paged_attention_means_attention(paged: Paged) -> None:
    torch.testing.assert_close(paged.attend(), paged.want(), rtol=0.02, atol=0.02)


def test_a_band_sees_its_window(paged: Paged) -> None:
    got = paged.attend(sparse_mode=4, pre_tokens=4, next_tokens=0)
    torch.testing.assert_close(got, paged.want(window=5), rtol=0.02, atol=0.02)


def test_the_default_cache_mode_spoils_an_ordinary_cache() -> None:
    paged = Paged()
    paged.write()
    assert not torch.allclose(paged.attend(), paged.want(), rtol=0.1, atol=0.1)


def test_the_default_scale_is_one(paged: Paged) -> None:
    assert not torch.allclose(paged.attend(scale=1.0), paged.want(), rtol=0.1, atol=0.1)


def test_a_mask_with_ones_where_keys_are_seen_gives_other_numbers(paged: Paged) -> None:
    turned = paged.attend(atten_mask=(1 - _HIDDEN).contiguous())
    assert not torch.allclose(turned, paged.want(), rtol=0.1, atol=0.1)


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({"actual_seq_lengths": [3, 7, 1]}, "cumulative"),
        ({"actual_seq_lengths": [3, 10, 12]}, "561002"),
        ({"actual_seq_lengths": [3, 11]}, "561002"),
        ({"block_table": _TABLE.long()}, "int64"),
        ({"block_table": None}, "block table"),
        ({"atten_mask": None}, "atten_mask"),
        ({"atten_mask": _HIDDEN[:128, :128]}, "128, 128"),
        ({"atten_mask": _HIDDEN.to(torch.bfloat16)}, "bfloat16"),
        ({"num_heads": 8}, "num_heads"),
        ({"block_size": 64}, "key is"),
        ({"actual_seq_lengths_kv": [300, 7, 130]}, "room"),
        ({"input_layout": "BSH"}, "BSH"),
        ({"sparse_mode": 0}, "sparse_mode"),
        ({"query_rope": _HIDDEN}, "query_rope"),
    ],
)
def test_what_the_documentation_forbids_is_refused(
    paged: Paged, changed: dict[str, Any], reason: str
) -> None:
    with pytest.raises(VendorLimitError, match=reason):
        paged.attend(**changed)


def test_other_layouts_of_memory_are_refused(paged: Paged) -> None:
    paged.q = paged.q.transpose(0, 1).contiguous().transpose(0, 1)
    with pytest.raises(VendorLimitError, match="contiguous"):
        paged.attend()
    paged.q = paged.q.float()
    with pytest.raises(VendorLimitError, match="float32"):
        paged.attend()


@pytest.mark.parametrize("bad", [-1, 6 * _BLOCK])
def test_slots_outside_of_the_cache_are_refused(bad: int) -> None:
    paged = Paged()
    slots = torch.tensor([0, bad], dtype=torch.int32)
    k = paged.keys[0][:2]
    with pytest.raises(VendorLimitError, match="outside"):
        torch.ops.npu.npu_scatter_pa_kv_cache(
            k, k, paged.k_cache, paged.v_cache, slots, cache_mode="Norm"
        )


def test_padding_and_doubled_slots_are_refused() -> None:
    paged = Paged()
    k, caches = paged.keys[0][:2], (paged.k_cache, paged.v_cache)
    write = torch.ops.npu.npu_scatter_pa_kv_cache
    with pytest.raises(VendorLimitError, match="unique"):
        write(k, k, *caches, torch.tensor([3, 3], dtype=torch.int32), cache_mode="Norm")
    with pytest.raises(VendorLimitError, match="padding"):
        write(k, k, *caches, torch.tensor([3, 4, 5], dtype=torch.int32), cache_mode="Norm")
    apart = k.transpose(0, 1).contiguous().transpose(0, 1)
    with pytest.raises(VendorLimitError, match="contiguous"):
        write(apart, k, *caches, torch.tensor([3, 4], dtype=torch.int32), cache_mode="Norm")


def test_attention_of_the_310p_over_a_cache_in_pieces() -> None:
    paged, shape = Paged(), (6, _KV_HEADS * _DIM // 16, _BLOCK, 16)
    k_cache = torch.zeros(shape, dtype=torch.float16)
    v_cache = torch.zeros(shape, dtype=torch.float16)
    k, v = (torch.cat(rows).to(torch.float16) for rows in (paged.keys, paged.values))
    torch.ops.atb._npu_reshape_and_cache(k, v, k_cache, v_cache, paged.slots)
    q, out = paged.q.to(torch.float16), torch.empty_like(paged.q, dtype=torch.float16)
    mask = torch.full((2048, 2048), -10000.0, dtype=torch.float16).triu(1)
    lengths = torch.tensor(_LENGTHS, dtype=torch.int32)
    torch.ops.atb._npu_paged_attention_splitfuse_v2(
        q,
        k_cache,
        v_cache,
        _TABLE,
        lengths,
        mask,
        torch.tensor(_COUNTS, dtype=torch.int32),
        num_kv_heads=_KV_HEADS,
        num_heads=_HEADS,
        scale_value=_DIM**-0.5,
        mask_type=5,
        out=out,
    )
    torch.testing.assert_close(out.to(torch.bfloat16), paged.want(), rtol=0.02, atol=0.02)
    last = torch.tensor(_COUNTS).cumsum(0) - 1
    one = torch.empty(3, _HEADS, _DIM, dtype=torch.float16)
    torch.ops.atb._npu_paged_attention(
        q[last].contiguous(),
        k_cache,
        v_cache,
        num_kv_heads=_KV_HEADS,
        num_heads=_HEADS,
        scale_value=_DIM**-0.5,
        block_table=_TABLE,
        context_lens=lengths,
        out=one,
    )
    torch.testing.assert_close(one, out[last], rtol=0.002, atol=0.002)

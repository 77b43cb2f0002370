"""The guards around the older library, over a pretended one that ends the process where it would.

What its kernels compute is shown where it is installed; here nothing of it is.
"""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from dougong.contracts import UnsupportedError
from dougong.ops import RotaryEmbedding

from dougong_xpu import ipex_kernels, ipex_library
from dougong_xpu.ipex_attention import IpexPagedBackend
from tests.plugin.ops_under_test import drawn, table
from tests.plugin.paged_step import PagedStep, make_cache

BACKEND = IpexPagedBackend()
STEP = PagedStep(
    query_lens=(40, 1, 3), seq_lens=(40, 73, 50), dtype="float32", kv_dtype="float32", head_dim=32
)


class CrashError(AssertionError):
    """Here the library would end the process with a fault of memory."""


class Paged:
    """Writes and reads ``[blocks, kv_heads, block_size, head_dim]``, and nothing else."""

    def reshape_and_cache(self, key: Any, value: Any, keys: Any, values: Any, slots: Any) -> None:
        num_slots = keys.shape[0] * keys.shape[2]
        if bool(((slots < 0) | (slots >= num_slots)).any()):
            raise CrashError(f"slots {slots.tolist()}")
        for new, cache in ((key, keys), (value, values)):
            cache.transpose(1, 2)[slots // keys.shape[2], slots % keys.shape[2]] = new

    def flash_attn_varlen_func(self, out: Any, q: Any, keys: Any, values: Any, *rest: Any) -> None:
        starts, ends, _, _, scale, is_causal, blocks, _ = rest
        assert is_causal
        lengths = ends[1:] - ends[:-1]
        for i, length in enumerate(lengths.tolist()):
            rows = slice(int(starts[i]), int(starts[i + 1]))
            out[rows] = _attend(q[rows], _read(keys, blocks[i]), _read(values, blocks[i]),
                                length, scale)  # fmt: skip

    def single_query_cached_kv_attention(self, out: Any, q: Any, *rest: Any) -> None:
        keys, values, mapping, scale, blocks, lengths, block_size, longest, slopes = rest
        assert (block_size, longest, slopes) == (keys.shape[2], int(lengths.max()), None)
        assert mapping.tolist() == [i * keys.shape[1] // q.shape[1] for i in range(q.shape[1])]
        for i, length in enumerate(lengths.tolist()):
            out[i : i + 1] = _attend(q[i : i + 1], _read(keys, blocks[i]), _read(values, blocks[i]),
                                     length, scale)  # fmt: skip


def _read(cache: torch.Tensor, blocks: torch.Tensor) -> torch.Tensor:
    return cache[blocks.long()].transpose(1, 2).flatten(0, 1)


def _attend(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, length: int, scale: float
) -> torch.Tensor:
    group = q.shape[1] // k.shape[1]
    k, v = (x[:length].repeat_interleave(group, 1) for x in (k, v))
    at = torch.arange(length - len(q), length).unsqueeze(1)
    scores = torch.einsum("qhd,khd->hqk", q, k) * scale
    scores = scores.masked_fill(torch.arange(length) > at, -torch.inf)
    return torch.einsum("hqk,khd->qhd", scores.softmax(-1), v)


@pytest.fixture(autouse=True)
def paged(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ipex_library, "paged", Paged())


@pytest.mark.parametrize("lens", [STEP.query_lens, (1, 1, 1)], ids=["mixed", "decodes"])
@pytest.mark.parametrize("num_padding", [0, 3])
def test_it_is_attention_and_padding_is_written_nowhere_that_counts(
    lens: tuple[int, ...], num_padding: int
) -> None:
    case = replace(STEP, query_lens=lens, num_padding=num_padding)
    found = case.run(BACKEND, make_cache(BACKEND, case)).double()
    torch.testing.assert_close(found, case.expected(), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("slot", [-1, 10**6])
def test_a_slot_that_would_end_the_process_never_reaches_the_library(slot: int) -> None:
    impl = BACKEND.make_impl(STEP.request, 1.0)
    cache = make_cache(BACKEND, STEP)
    rows = torch.ones(1, 2, 32)
    impl.write_kv(rows, rows, cache, torch.tensor([slot]))
    assert not cache[0][1:].isfinite().any(), "block 0 is the backend's own"
    with pytest.raises(CrashError):
        ipex_library.paged.reshape_and_cache(rows, rows, *cache, torch.tensor([slot]))


def test_a_cache_in_another_order_is_refused_before_the_library_sees_it() -> None:
    impl = BACKEND.make_impl(STEP.request, 1.0)
    rows = torch.ones(1, 2, 32)
    tokens_first = torch.zeros(3, 16, 2, 32)
    turned = torch.zeros(3, 16, 2, 32).transpose(1, 2)
    for cache in (tokens_first, turned):
        with pytest.raises(UnsupportedError, match="kv_heads, block_size, head_dim"):
            impl.write_kv(rows, rows, (cache, cache), torch.tensor([0]))


def test_options_that_were_not_measured_are_refused() -> None:
    for changes in ({"sliding_window": 9}, {"soft_cap": 2.0}, {"head_dim": 24}, {"head_dim": 512}):
        assert not BACKEND.supports(replace(STEP.request, **changes))


def test_sines_come_before_cosines(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: dict[str, Any] = {}

    def rotary_embedding(
        q: Any, k: Any, sin: Any, cos: Any, rotary_dim: int, half: bool, position_ids: Any
    ) -> Any:
        seen.update(sin=sin, cos=cos, rotary_dim=rotary_dim, half=half)
        return q, k

    monkeypatch.setattr(
        ipex_library, "functional", SimpleNamespace(rotary_embedding=rotary_embedding)
    )
    op = RotaryEmbedding(16, 16, table(32, 16))
    q, k = drawn(2, 4, 16, dtype=torch.float32), drawn(2, 2, 16, dtype=torch.float32)
    ipex_kernels.IpexRotaryEmbedding(op)(torch.tensor([0, 1]), q, k)
    cos, sin = op.cos_sin_cache.chunk(2, dim=-1)
    assert torch.equal(seen["sin"], sin)
    assert torch.equal(seen["cos"], cos)
    assert (seen["rotary_dim"], seen["half"]) == (16, True)


def test_a_part_of_a_head_is_refused() -> None:
    with pytest.raises(UnsupportedError, match="whole heads"):
        ipex_kernels.IpexRotaryEmbedding(RotaryEmbedding(16, 8, table(32, 8)))


def test_the_first_norm_has_no_residual(monkeypatch: pytest.MonkeyPatch) -> None:
    norm = SimpleNamespace(rms_norm=lambda x, weight, eps: x * weight)
    monkeypatch.setattr(ipex_library, "functional", norm)
    x = torch.ones(2, 4)
    normed, total = ipex_kernels.add_rms_norm(x, None, torch.full((4,), 2.0), 1e-5)
    assert total is x
    assert torch.equal(normed, torch.full((2, 4), 2.0))

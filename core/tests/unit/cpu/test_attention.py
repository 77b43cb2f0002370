"""The native backend: against the definition, and bitwise against itself in other company."""

from __future__ import annotations

import weakref
from dataclasses import replace

import pytest
import torch

from dougong.attention import Attention, PairedBackend
from dougong.contracts import AttentionRequest, KVCacheSpec
from dougong.cpu import attention as cpu_attention
from dougong.cpu import native
from dougong.cpu.attention import NativeAttentionBackend
from dougong.cpu.native_library import get_library
from dougong.cpu.platform import NATIVE_LIBRARY
from tests.support.paged import PagedCase, dense_attention


@pytest.mark.parametrize(("window", "cap"), [(None, None), (5, None), (7, 2.0)])
@pytest.mark.parametrize("block_size", [16, 64])
def test_any_mix_of_prefill_and_decode_equals_dense_attention(
    window: int | None, cap: float | None, block_size: int
) -> None:
    case = PagedCase(query_lens=(40, 1, 3), seq_lens=(40, 70, 20), block_size=block_size)
    out = case.run(NativeAttentionBackend(), sliding_window=window, soft_cap=cap)
    torch.testing.assert_close(
        out.double(), dense_attention(case, window, cap), rtol=1e-5, atol=1e-5
    )


def test_block_size_does_not_change_a_bit() -> None:
    outs = [
        PagedCase(query_lens=(5, 1), seq_lens=(37, 50), block_size=size).run(
            NativeAttentionBackend()
        )
        for size in (16, 32, 128)
    ]
    assert torch.equal(outs[0], outs[1])
    assert torch.equal(outs[0], outs[2])


def test_a_pair_of_it_has_the_bits_of_it_alone() -> None:
    """Its results depend on no other sequence, so how a step is split cannot show."""
    case = PagedCase(query_lens=(40, 1, 3, 1), seq_lens=(40, 70, 20, 5))
    pair = PairedBackend(NativeAttentionBackend(), NativeAttentionBackend())
    assert torch.equal(case.run(pair), case.run(NativeAttentionBackend()))
    windowed = case.run(pair, sliding_window=9)
    assert torch.equal(windowed, case.run(NativeAttentionBackend(), sliding_window=9))


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"head_dim": 24}, "head size 24; takes multiples of 16"),
        ({"head_dim": 272}, "head size 272; takes at most 256"),
        ({"block_size": 8}, "block size 8; takes 16, 32, 64, 128"),
        ({"dtype": "float16"}, "dtype float16; takes bfloat16, float32"),
        ({"kv_dtype": "float8_e5m2"}, "KV dtype float8_e5m2"),
        ({"dtype": "bfloat16"}, "a cache of torch.float32"),
        ({"has_sinks": True}, "sinks"),
        ({"is_mla": True}, "latent"),
        ({"needs_graph": True}, "graph"),
    ],
)
def test_what_it_cannot_do_is_refused_with_a_reason(change: dict[str, object], reason: str) -> None:
    verdict = NativeAttentionBackend().supports(request(**change))
    assert reason in verdict.reason


def request(**changes: object) -> AttentionRequest:
    asked: dict[str, object] = {
        "num_heads": 2, "num_kv_heads": 2, "head_dim": 64, "dtype": "float32",
        "kv_dtype": "float32", "block_size": 16,
    }  # fmt: skip
    return AttentionRequest(**(asked | changes))  # type: ignore[arg-type]  # built by name


@pytest.mark.parametrize("kv_dtype", ["float32", "bfloat16"])
def test_what_is_asked_while_planning_needs_no_compiler(
    monkeypatch: pytest.MonkeyPatch, kv_dtype: str
) -> None:
    def refuse() -> None:
        raise AssertionError("the library was asked for")

    monkeypatch.setattr(cpu_attention, "get_library", refuse)
    backend = NativeAttentionBackend()
    spec = KVCacheSpec(num_kv_heads=2, head_dim=64, dtype=kv_dtype, block_size=16)
    assert backend.supports(request(kv_dtype=kv_dtype))
    assert backend.kv_layout(spec).name == "heads-tokens-dim"
    assert backend.workspace_bytes(request(kv_dtype=kv_dtype), 100) > 0


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize(
    "heads", [(1, 1, 16), (9, 3, 64), (32, 8, 128), (96, 1, 256), (128, 1, 80)]
)
@pytest.mark.parametrize("num_threads", [1, 2, 7])
def test_the_workspace_is_what_the_kernel_announces_or_a_little_more(
    monkeypatch: pytest.MonkeyPatch, heads: tuple[int, int, int], dtype: str, num_threads: int
) -> None:
    library = get_library()
    assert not isinstance(library, native.NotBuilt)
    num_heads, num_kv_heads, head_dim = heads
    monkeypatch.setattr(torch, "get_num_threads", lambda: num_threads)
    announced = native.attention_workspace_bytes(
        replace(library, num_threads=num_threads),
        head_dim=head_dim,
        num_heads=num_heads,
        num_kv_heads=num_kv_heads,
        dtype=getattr(torch, dtype),
        cache_dtype=getattr(torch, dtype),
    )
    asked = request(
        num_heads=num_heads, num_kv_heads=num_kv_heads, head_dim=head_dim, dtype=dtype,
        kv_dtype=dtype,
    )  # fmt: skip
    counted = NativeAttentionBackend().workspace_bytes(asked, 100)
    assert announced <= counted <= 2 * announced


def test_a_cache_that_is_let_go_is_gone_and_another_takes_its_place() -> None:
    """A cache for measuring is dropped before the real one is allocated; both at once would not
    fit."""
    layer = Attention(0, 2, 2, 64, 1.0)
    layer.bind_backend(("cpu/native",), NativeAttentionBackend().make_impl(request(), 1.0))
    k = v = torch.ones(1, 2, 64)
    slots, buffers = torch.tensor([3]), list[weakref.ref[torch.Tensor]]()
    for _ in range(2):
        cache = [torch.zeros(4, 2, 16, 64) for _ in range(2)]
        buffers += [weakref.ref(buffer) for buffer in cache]
        layer.bind_cache(0, cache)
        layer.impl.write_kv(k, v, layer.kv_cache, slots)
        assert all(buffer[0, :, 3].eq(1).all() for buffer in cache)
        layer.bind_cache(0, ())
        del cache
        assert [buffer() for buffer in buffers] == [None] * len(buffers)


def test_it_names_its_library() -> None:
    assert NativeAttentionBackend().library == NATIVE_LIBRARY

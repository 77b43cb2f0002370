"""A decoder step of the plugin's own parts on a fake NPU; run in a process of its own.

Nothing is computed. What is shown: which dtypes and shapes the ops are given and give, that no
tensor of the host gets among them, and what is copied between host and device.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from typing import Any

import torch
from dougong.contracts import AttentionRequest
from dougong.ops import MoEExperts, RotaryEmbedding
from dougong_conformance.ladder.fake_device import FakeDevice, fake_device
from torch import nn
from torch.nn import functional as F  # noqa: N812 - torch's own convention

from dougong_ascend import attention, attention_nz, experts, hooks, kernels, rotary
from dougong_ascend.quantization import W8A8DynamicLinear
from tests.references.fakes import FAKES, HAS_OWN_FAKE
from tests.references.stand_ins import stand_ins

HEADS, KV_HEADS, DIM, HIDDEN, VOCAB, BLOCKS = 4, 2, 64, 96, 200, 12
COUNTS, LENGTHS = (3, 1, 2), (130, 7, 2)
TOKENS = sum(COUNTS)

_ON_HOST = ("atb::_npu_paged_attention_splitfuse_v2",)
"""Ops with an argument that the vendor wants on the host."""


@dataclass(frozen=True)
class Told:
    """What a step did.

    Attributes:
        ops: Vendor ops, sorted.
        h2d: Shapes that were copied to the device.
        d2h: Shapes that were copied from it.
        shape: Of the result.
    """

    ops: tuple[str, ...]
    h2d: tuple[tuple[int, ...], ...]
    d2h: tuple[tuple[int, ...], ...]
    shape: tuple[int, ...]


@contextmanager
def _fake_npu(*, is_real_wheel: bool) -> Iterator[FakeDevice]:
    """With the wheel's own meta kernels, or with references over its schemas."""
    ops: AbstractContextManager[Any] = own_fakes() if is_real_wheel else stand_ins(FAKES)
    with (
        ops,
        fake_device("npu", host_arguments=_ON_HOST) as device,
        torch.no_grad(),
        torch.device("npu"),
    ):
        yield device


@contextmanager
def own_fakes() -> Iterator[None]:
    """Of the ops for which the wheel has no meta kernel; the others keep the wheel's."""
    make: Any = torch.library.Library
    libraries = {name: make(name, "FRAGMENT") for name in ("npu", "atb")}
    for op in HAS_OWN_FAKE:
        torch.library.register_fake(op, FAKES[op], lib=libraries[op.partition("::")[0]])
    yield
    for library in libraries.values():
        library._destroy()


def decoder_step(*, is_real_wheel: bool, fault: str = "") -> Told:
    """One layer and the head of a model in bfloat16, greedy; ``fault`` plants a mistake."""
    with _fake_npu(is_real_wheel=is_real_wheel) as device:
        model = _Layer()
        caches = tuple(
            torch.empty(BLOCKS, 128, KV_HEADS, DIM, dtype=torch.bfloat16) for _ in range(2)
        )
        inputs = {
            "ids": torch.empty(TOKENS, dtype=torch.int64),
            "positions": torch.empty(TOKENS, dtype=torch.int64),
            "slots": torch.empty(TOKENS, dtype=torch.int32),
            "table": torch.empty(len(COUNTS), 2, dtype=torch.int32),
        }
        if fault in inputs:
            inputs[fault] = torch.empty(
                inputs[fault].shape, dtype=inputs[fault].dtype, device="cpu"
            )
        device.forget()
        token_ids = model(caches, fault=fault, **inputs)
        if fault == "item":
            token_ids.sum().item()
        if fault == "mask":
            token_ids[token_ids > 3]
        on_host = token_ids.to("cpu", non_blocking=True)
        if fault == "copy":
            on_host = token_ids.to("cpu")
        return _told(device, on_host)


def steps_on_310p(*, is_real_wheel: bool) -> Told:
    """Attention over a cache in strips: of decodes, and of steps with more queries."""
    with _fake_npu(is_real_wheel=is_real_wheel) as device:
        impl = attention_nz.PagedNZBackend().make_impl(_request("float16", 64), DIM**-0.5)
        rows = len(COUNTS)
        caches = tuple(
            torch.empty(BLOCKS, KV_HEADS * DIM // 16, 64, 16, dtype=torch.float16) for _ in range(2)
        )
        q = torch.empty(rows, HEADS, DIM, dtype=torch.float16)
        k = torch.empty(rows, KV_HEADS, DIM, dtype=torch.float16)
        step = attention_nz.PagedNZStep(
            num_tokens=rows,
            query_lens=None,
            seq_lens=torch.empty(rows, dtype=torch.int32),
            block_table=torch.empty(rows, 3, dtype=torch.int32),
            mask=torch.empty(2048, 2048, dtype=torch.float16),
        )
        device.forget()
        impl.write_kv(k, k, caches, torch.empty(rows, dtype=torch.int32))
        out = torch.empty_like(q)
        impl.forward(q, k, k, caches, step, out)
        several = replace(step, query_lens=torch.empty(2, dtype=torch.int32, device="cpu"))
        impl.forward(q, k, k, caches, several, out)
        table = torch.empty(256, DIM)
        turn = rotary.Rotary310P(RotaryEmbedding(DIM, DIM, table))
        turn(torch.empty(rows, dtype=torch.int64), q, k)
        return _told(device, out)


def other_ops(*, is_real_wheel: bool) -> Told:
    """What a Llama does not call: experts, eight bits, other activations and rotations, cuts."""
    with _fake_npu(is_real_wheel=is_real_wheel) as device:
        x = torch.empty(TOKENS, HIDDEN, dtype=torch.bfloat16)
        layer = nn.Module()
        method = W8A8DynamicLinear(fractal=True)
        method.create_weights(layer, HIDDEN, 48, torch.bfloat16)
        device.forget()
        method.post_load(layer)
        out = method.apply(layer, x, None)
        assert (out.shape, out.dtype) == ((TOKENS, 48), torch.bfloat16)
        values, scales, _ = kernels.dynamic_quant(x, None, "int8_token")
        assert (values.dtype, tuple(scales.shape)) == (torch.int8, (TOKENS, 1))
        hooks.AscendGeluAndMul("tanh").forward_oot(x)
        logits = torch.empty(3, VOCAB)
        kernels.top_k_top_p(logits, torch.empty(3, dtype=torch.int64), torch.empty(3))
        turn = rotary.RotaryMul(RotaryEmbedding(DIM, 32, torch.empty(256, 32), is_neox=False))
        heads = torch.empty(TOKENS, HEADS, DIM)
        turned, _ = turn(torch.empty(TOKENS, dtype=torch.int64), heads, heads)
        assert turned.shape == heads.shape
        routing = torch.empty(TOKENS, 8)
        ids, shares = experts.gating_top_k_softmax(routing, 2, True)
        moe = MoEExperts(8, HIDDEN, 32, "silu", torch.bfloat16)
        result = experts.GroupedExperts(moe)(x, ids, shares)
        return _told(device, result)


class _Layer:
    """Weights of one layer, and a step through it in the plugin's ops."""

    def __init__(self) -> None:
        def weight(*shape: int) -> torch.Tensor:
            return torch.empty(shape, dtype=torch.bfloat16)

        self.embedding = weight(VOCAB, HIDDEN)
        self.norm = hooks.AscendRMSNorm(HIDDEN, 1e-5, torch.bfloat16)
        self.qkv = weight((HEADS + 2 * KV_HEADS) * DIM, HIDDEN)
        self.out = weight(HIDDEN, HEADS * DIM)
        self.gate_up, self.down = weight(2 * 64, HIDDEN), weight(HIDDEN, 64)
        self.rotary = rotary.Mrope(RotaryEmbedding(DIM, DIM, torch.empty(256, DIM)))
        self.act = hooks.AscendSiluAndMul()
        backend = attention.FusedInferBackend()
        self.attention = backend.make_impl(_request("bfloat16", 128), DIM**-0.5)

    def __call__(
        self,
        caches: tuple[torch.Tensor, ...],
        *,
        ids: torch.Tensor,
        positions: torch.Tensor,
        slots: torch.Tensor,
        table: torch.Tensor,
        fault: str,
    ) -> torch.Tensor:
        """Token ids of the last row of each sequence."""
        ends = [sum(COUNTS[: n + 1]) for n in range(len(COUNTS))]
        step = attention.FusedInferStep(
            num_tokens=TOKENS,
            query_ends=ends,
            seq_lens=list(LENGTHS),
            block_table=table,
            mask=torch.empty(2048, 2048, dtype=torch.int8),
        )
        residual = F.embedding(ids, self.embedding)
        x = self.norm.forward_oot(residual)
        sizes = [HEADS * DIM, KV_HEADS * DIM, KV_HEADS * DIM]
        parts = torch.split_with_sizes(F.linear(x, self.qkv), sizes, -1)
        q, k, v = (part.view(TOKENS, -1, DIM) for part in parts)
        q, k = self.rotary(positions, q, k)
        if fault == "dtype":
            k = k.float()
        self.attention.write_kv(k, v, caches, slots)
        attended = torch.empty_like(q)
        self.attention.forward(q, k, v, caches, step, attended)
        x = F.linear(attended.flatten(1), self.out)
        x, residual = kernels.add_rms_norm(x, residual, self.norm.weight, 1e-5)
        x = F.linear(self.act.forward_oot(F.linear(x, self.gate_up)), self.down)
        last = torch.empty(len(COUNTS), dtype=torch.int64)  # made in the block: on the device
        return F.linear((x + residual).index_select(0, last), self.embedding).argmax(-1)


def _request(dtype: str, block_size: int) -> AttentionRequest:
    return AttentionRequest(
        num_heads=HEADS,
        num_kv_heads=KV_HEADS,
        head_dim=DIM,
        dtype=dtype,
        kv_dtype=dtype,
        block_size=block_size,
    )


def _told(device: FakeDevice, result: torch.Tensor) -> Told:
    vendor = {op for op in device.ops if op.startswith(("npu::", "atb::"))}
    return Told(
        ops=tuple(sorted(vendor)),
        h2d=tuple(copy.shape for copy in device.h2d),
        d2h=tuple(copy.shape for copy in device.d2h),
        shape=tuple(result.shape),
    )


STEPS: dict[str, Callable[..., Told]] = {
    "decoder": decoder_step,
    "310p": steps_on_310p,
    "others": other_ops,
}

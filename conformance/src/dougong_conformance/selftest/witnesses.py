"""Legal variants: plugins that the suite must accept."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

import torch
from dougong.contracts import (
    AtMost,
    AttentionLimits,
    AttentionPhase,
    KVBuffer,
    KVCacheSpec,
    KVLayout,
    Platform,
)
from torch.nn import functional as F  # noqa: N812 - torch's own convention

from dougong_conformance.selftest import made
from dougong_conformance.selftest.changes import (
    around_host,
    around_native,
    backwards,
    with_aten,
    with_claims,
    with_op,
    with_platform,
)
from dougong_conformance.selftest.mutant import witness
from dougong_conformance.selftest.plain_attention import PlainBackend, PlainImpl, with_plain
from dougong_conformance.selftest.plain_encoder import with_encoder_attention
from dougong_conformance.selftest.plain_lora import PlainLoRA, with_lora
from dougong_conformance.session import PluginUnderTest

Tensor = torch.Tensor
_TILE = 16
_WRAPPER = tuple(
    f"lora.{name}"
    for name in ("mixed", "scaling", "updates", "shapes", "in_place", "other_slots", "replays")
)
"""Checks that make the wrapper themselves; the others start an engine of the installed plugin."""


@witness("V01", "torch's own kernels, in the storage dtype", "ops")
def _v01(plugin: PluginUnderTest) -> PluginUnderTest:
    def gelu(op: Any, x: Tensor) -> Tensor:
        gate, up = x.chunk(2, dim=-1)
        acted: Tensor = F.gelu(gate, approximate=op.approximate)
        return acted * up

    def silu(op: Any, x: Tensor) -> Tensor:
        gate, up = x.chunk(2, dim=-1)
        return F.silu(gate) * up

    plugin = with_op(plugin, "linear", lambda op, x: F.linear(x, op.weight, op.bias))
    plugin = with_op(plugin, "gelu_and_mul", gelu)
    return with_op(plugin, "silu_and_mul", silu)


@witness(
    "V02",
    "norms rounded once, after the weight",
    "ops.rms",
    "ops.long",
    "ops.rounding",
    "ops.nonfinite",
    "ops.memory",
    "ops.stale",
)
def _v02(plugin: PluginUnderTest) -> PluginUnderTest:
    def compute(op: Any, x: Tensor) -> Tensor:
        wide = x.float()
        scale = torch.rsqrt(wide.square().mean(dim=-1, keepdim=True) + op.eps)
        normed: Tensor = wide * scale * op.weight.float()
        return normed.to(x.dtype)

    return with_op(plugin, "rms_norm", compute)


def _split_product(x: Tensor, weight: Tensor) -> Tensor:
    """Seven uneven parts of the sum, added from the last to the first, in float32."""
    n = x.shape[-1]
    cuts = sorted({0, n, *(n * part // 7 for part in range(7))})
    total = torch.zeros(x.shape[0], weight.shape[0], device=x.device)
    for start, end in reversed(list(pairwise(cuts))):
        total = total + x[:, start:end].float() @ weight[:, start:end].float().T
    return total


@witness(
    "V03", "sums in parts, in another order", "ops.linear", "ops.lm_head", "ops.long", "ops.stale"
)
def _v03(plugin: PluginUnderTest) -> PluginUnderTest:
    def linear(op: Any, x: Tensor) -> Tensor:
        wide = _split_product(x, op.weight)
        if op.bias is not None:
            wide = wide + op.bias.float()
        return wide.to(x.dtype)

    plugin = with_op(plugin, "lm_head", lambda op, x: _split_product(x, op.weight))
    return with_op(plugin, "linear", linear)


@witness("V04", "a bias added to the rounded product", "ops.linear", "ops.rounding_bias")
def _v04(plugin: PluginUnderTest) -> PluginUnderTest:
    def compute(op: Any, x: Tensor) -> Tensor:
        product = F.linear(x, op.weight)
        return product if op.bias is None else product + op.bias

    return with_op(plugin, "linear", compute)


def _tiled(impl: Any, q: Tensor, k: Tensor, v: Tensor, dtype: torch.dtype, *, last: bool) -> Tensor:
    """Online softmax over tiles of keys, shares rounded to the storage dtype."""
    heads = impl._kv_heads(q.shape[1], k.shape[1])
    k, v = k[:, heads], v[:, heads]
    hidden = impl._hidden(q.shape[0], k.shape[0], q.device)
    scores = impl._capped(torch.einsum("qhd,khd->hqk", impl._scaled(q), k))
    shape = (q.shape[1], q.shape[0], 1)
    most = torch.full(shape, -1e30, device=q.device)
    total = torch.zeros(shape, device=q.device)
    out = torch.zeros(q.shape[1], q.shape[0], v.shape[2], device=q.device)
    starts = list(range(0, k.shape[0], _TILE))
    for start in reversed(starts) if last else starts:
        part = slice(start, start + _TILE)
        seen = scores[..., part].masked_fill(hidden[..., part], -1e30)
        larger = torch.maximum(most, seen.amax(dim=-1, keepdim=True))
        weights = torch.exp(seen - larger).masked_fill(hidden[..., part], 0.0)
        factor = torch.exp(most - larger)
        total = total * factor + weights.sum(dim=-1, keepdim=True)
        added = torch.einsum("hqk,khd->hqd", weights.to(dtype).float(), v[part])
        out, most = out * factor + added, larger
    return (out / total).permute(1, 0, 2)


def _with_tiles(plugin: PluginUnderTest, *, last: bool) -> PluginUnderTest:
    def attend(self: Any, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        dtype = getattr(torch, self.request.dtype)
        return _tiled(self, q, k, v, dtype, last=last)

    return with_plain(plugin, _attend=attend)


@witness("V05", "online softmax over tiles, probabilities rounded", "attention", "kv")
def _v05(plugin: PluginUnderTest) -> PluginUnderTest:
    return _with_tiles(plugin, last=False)


@witness("V06", "the same, tiles from the last to the first", "attention", dtype="bfloat16")
def _v06(plugin: PluginUnderTest) -> PluginUnderTest:
    return _with_tiles(plugin, last=True)


@witness("V07", "queries scaled first and rounded", "attention")
def _v07(plugin: PluginUnderTest) -> PluginUnderTest:
    def scaled(self: Any, q: Tensor) -> Tensor:
        dtype = getattr(torch, self.request.dtype)
        scaled: Tensor = q * self._scale()
        return scaled.to(dtype).float()

    return with_plain(plugin, _scaled=scaled)


@witness("V08", "rotation with every product rounded", "ops.rotary", "ops.qkv", "ops.strided")
def _v08(plugin: PluginUnderTest) -> PluginUnderTest:
    def rotate(op: Any, positions: Tensor, x: Tensor) -> Tensor:
        cos, sin = op.cos_sin_cache[positions].to(x.dtype).unsqueeze(1).chunk(2, dim=-1)
        turned, rest = x[..., : op.rotary_dim], x[..., op.rotary_dim :]
        if op.is_neox:
            first, second = turned.chunk(2, dim=-1)
        else:
            first, second = turned[..., 0::2], turned[..., 1::2]
        pair = (first * cos - second * sin, second * cos + first * sin)
        joined = torch.cat(pair, -1) if op.is_neox else torch.stack(pair, -1).flatten(-2)
        return torch.cat((joined, rest), dim=-1)

    return with_op(
        plugin,
        "rotary_embedding",
        lambda op, positions, q, k: (rotate(op, positions, q), rotate(op, positions, k)),
    )


@witness(
    "V09",
    "a fused norm of the sum before it is rounded, in the inputs' memory",
    "ops.fused",
    "ops.memory",
    "ops.subnormals",
)
def _v09(plugin: PluginUnderTest) -> PluginUnderTest:
    def compute(op: Any, x: Tensor, residual: Tensor | None) -> tuple[Tensor, Tensor]:
        wide = x.float() if residual is None else x.float() + residual.float()
        total = wide.to(x.dtype)
        if residual is not None:
            residual.copy_(total)
            total = residual
        else:
            total = total.clone()
        scale = torch.rsqrt(wide.square().mean(dim=-1, keepdim=True) + op.eps)
        x.copy_((wide * scale * op.weight.float()).to(x.dtype))
        return x, total

    return with_op(plugin, "fused_add_rms_norm", compute, mutates=("x", "residual"))


def _one_buffer(spec: KVCacheSpec) -> KVLayout:
    shape = (2, spec.num_kv_heads, spec.block_size, spec.head_dim)
    return KVLayout(
        name="both-in-one",
        buffers=(
            KVBuffer(
                name="kv",
                block_shape=shape,
                dtype=spec.dtype,
                block_axis=1,
                stride_order=(1, 2, 0, 3, 4),
            ),
        ),
        block_sizes=(spec.block_size,),
        alignment_bytes=512,
        slot_dtype="int32",
    )


@witness(
    "V10",
    "keys and values in one buffer, heads outermost in a block",
    "attention",
    "kv",
    dtype="bfloat16",
)
def _v10(plugin: PluginUnderTest) -> PluginUnderTest:
    def split(kv_cache: Sequence[Tensor]) -> tuple[Tensor, Tensor]:
        """As tokens, heads, dim."""
        (both,) = kv_cache
        keys, values = both.unbind(0)
        return keys.transpose(1, 2), values.transpose(1, 2)

    def write_kv(self: Any, k: Tensor, v: Tensor, kv_cache: Any, slot_mapping: Tensor) -> None:
        PlainImpl.write_kv(self, k, v, split(kv_cache), slot_mapping)

    def forward(
        self: Any,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        kv_cache: Any,
        metadata: Any,
        out: Tensor,
    ) -> None:
        PlainImpl.forward(self, q, k, v, split(kv_cache), metadata, out)

    return with_plain(
        plugin,
        backend={"kv_layout": lambda self, spec: _one_buffer(spec)},
        write_kv=write_kv,
        forward=forward,
    )


@witness(
    "V11",
    "two blocks kept for itself, into which padding is written",
    "attention",
    "kv",
    dtype="bfloat16",
)
def _v11(plugin: PluginUnderTest) -> PluginUnderTest:
    def kv_layout(self: Any, spec: KVCacheSpec) -> KVLayout:
        return replace(PlainBackend.kv_layout(self, spec), reserved_blocks=2, alignment_bytes=64)

    return with_plain(
        plugin,
        backend={"kv_layout": kv_layout},
        _slots=lambda self, slots, kv_cache: slots.clamp(min=1),
    )


@witness("V12", "cuts by a sort that is not stable, sums from the far end", "sampling")
def _v12(plugin: PluginUnderTest) -> PluginUnderTest:
    def compute(op: Any, logits: Tensor, top_k: Tensor, top_p: Tensor) -> Tensor:
        # The other way round: ascending, what is cut is summed.
        ordered, _ = backwards(logits).sort(dim=-1)
        vocab_size = logits.shape[-1]
        kth = ordered.gather(1, (vocab_size - top_k).unsqueeze(1))
        probs = ordered.masked_fill(ordered < kth, -torch.inf).softmax(dim=-1)
        rest = 1 - probs.cumsum(dim=-1)
        limit = torch.where(top_p < 1, top_p, torch.full_like(top_p, torch.inf)).unsqueeze(1)
        is_cut = (rest >= limit).to(torch.int64).sum(dim=-1, keepdim=True)
        threshold = ordered.gather(1, is_cut.clamp(max=vocab_size - 1))
        threshold = torch.maximum(threshold, kth)
        return logits.masked_fill(logits < threshold, -torch.inf)

    return with_op(plugin, "top_k_top_p", compute)


@witness("V13", "scales by a reciprocal", "quantization")
def _v13(plugin: PluginUnderTest) -> PluginUnderTest:
    def change(native: Any, op: Any, x: Tensor) -> Any:
        values, scale, minimum = native(x)
        if op.layout.is_packed or op.layout.is_static:
            return values, scale, minimum
        limit = op.layout.limit
        groups = x.float().view(*x.shape[:-1], *op._groups)
        scale = groups.abs().amax(dim=-1) * torch.tensor(1.0 / limit)
        factor = torch.where(scale == 0, torch.zeros_like(scale), 1.0 / scale)
        units = (groups * factor.unsqueeze(-1)).clamp(-limit, limit)
        if op.layout.values is torch.int8:
            units = units.round().nan_to_num(nan=0.0)
        return units.to(op.layout.values).flatten(-2), scale, minimum

    return around_host(plugin, "quantize", change)


@witness(
    "V14",
    "gate, up and activation in float32, rounded once",
    "ops.gate",
    "ops.rounding",
    "ops.stale",
)
def _v14(plugin: PluginUnderTest) -> PluginUnderTest:
    acts: dict[str, Callable[[Tensor], Tensor]] = {
        "silu": F.silu,
        "gelu": F.gelu,
        "gelu_pytorch_tanh": lambda x: F.gelu(x, approximate="tanh"),
    }

    def compute(op: Any, x: Tensor) -> Tensor:
        both: Tensor = x.float() @ op.weight.float().T
        both = both if op.bias is None else both + op.bias.float()
        gate, up = both.chunk(2, dim=-1)
        acted: Tensor = acts[op.activation](gate) * up
        return acted.to(x.dtype)

    return with_op(plugin, "gate_up_act", compute)


@witness("V15", "a cache of 8-bit floats", "kv")
def _v15(plugin: PluginUnderTest) -> PluginUnderTest:
    return with_plain(with_claims(plugin, kv_dtypes=("float8_e4m3fn", "float8_e5m2")))


@witness("V16", "adapters whose narrow product is rounded", *_WRAPPER)
def _v16(plugin: PluginUnderTest) -> PluginUnderTest:
    def add(self: Any, out: Tensor, x: Tensor, a: Tensor, b: Tensor, scale: float) -> None:
        indices = PlainLoRA._used(self)
        for adapter in range(a.shape[0]):
            narrow = (x.float() @ a[adapter].float().T).to(x.dtype)
            added = (scale * (narrow.float() @ b[adapter].float().T)).to(out.dtype)
            out.copy_(torch.where((indices == adapter).unsqueeze(1), out + added, out))

    return with_lora(plugin, add_lora_linear=add)


@witness(
    "V17",
    "a kernel for few tokens, plain torch for more",
    "ops.linear",
    "ops.stale",
    "ops.changing",
)
def _v17(plugin: PluginUnderTest) -> PluginUnderTest:
    def compute(op: Any, x: Tensor) -> Tensor:
        return F.linear(x, op.weight, op.bias)

    return with_op(plugin, "linear", compute, tokens=AtMost(4))


@witness(
    "V18", "one backend for prompts, another for single tokens", "attention", "kv", dtype="bfloat16"
)
def _v18(plugin: PluginUnderTest) -> PluginUnderTest:
    def backend(name: str, *phases: AttentionPhase) -> type[PlainBackend]:
        limits: AttentionLimits = replace(PlainBackend.limits, phases=frozenset(phases))
        return type(
            "PhaseBackend",
            (PlainBackend,),
            {"name": name, "limits": limits, "__module__": __name__},
        )

    classes = [
        backend("changed/prompts", AttentionPhase.PREFILL),
        backend("changed/tokens", AttentionPhase.DECODE),
    ]

    def backends(good: Platform) -> Any:
        return lambda: {one.name: made.publish(one) for one in classes}

    return with_platform(plugin, {"get_attn_backends": backends})


@witness("V19", "sums of probabilities in float64", "sampling")
def _v19(plugin: PluginUnderTest) -> PluginUnderTest:
    def cumsum(good: Any, numbers: Tensor, *rest: Any) -> Any:
        if not numbers.is_floating_point():
            return good(numbers, *rest)
        return numbers.cpu().double().cumsum(*rest).float().to(numbers.device)

    return with_aten(plugin, {"cumsum": cumsum})


@witness(
    "V20",
    "a rotation that leaves its inputs and one that overwrites them",
    "ops.rotary",
    "ops.strided",
    "ops.memory",
)
def _v20(plugin: PluginUnderTest) -> PluginUnderTest:
    def change(native: Any, op: Any, positions: Tensor, q: Tensor, k: Tensor) -> Any:
        turned, keys = native(positions, q, k)
        return q.copy_(turned), k.copy_(keys)

    return around_native(plugin, "rotary_embedding", change, mutates=("q", "k"))


@witness("V21", "adapters one after the other in float32, rounded once", *_WRAPPER)
def _v21(plugin: PluginUnderTest) -> PluginUnderTest:
    return with_lora(plugin)


@witness("V22", "an encoder's step as one masked product", "ops.encoder_attention")
def _v22(plugin: PluginUnderTest) -> PluginUnderTest:
    return with_encoder_attention(plugin)

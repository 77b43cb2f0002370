"""Broken ops."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import torch
from dougong.contracts import AtLeast, Needs
from torch.nn import functional as F  # noqa: N812 - torch's own convention

from dougong_conformance.kit.generate import rotary_table
from dougong_conformance.selftest.changes import (
    NotOnThisBase,
    around_native,
    backwards,
    with_claims,
    with_op,
)
from dougong_conformance.selftest.mutant import mutant
from dougong_conformance.selftest.plain_encoder import other_sequences, with_encoder_attention
from dougong_conformance.session import PluginUnderTest

Tensor = torch.Tensor


def _norm(x: Tensor, weight: Tensor, eps: float, size: int | None = None) -> Tensor:
    wide = x.float()
    mean = wide.square().sum(dim=-1, keepdim=True) / (size or x.shape[-1])
    return (wide * torch.rsqrt(mean + eps)).to(x.dtype) * weight


def _product(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """In float32, rounded once."""
    wide = x.float() @ weight.float().T
    return (wide if bias is None else wide + bias.float()).to(x.dtype)


def _off_host(plugin: PluginUnderTest, what: str) -> None:
    if plugin.make_platform().device_type == "cpu":
        raise NotOnThisBase(f"the device is the host, so {what} cannot be told from its own work")


@mutant("O01", "rms_norm subtracts the mean", killer="ops.rms_norm")
def _o01(plugin: PluginUnderTest) -> PluginUnderTest:
    def compute(op: Any, x: Tensor) -> Tensor:
        return _norm((x.float() - x.float().mean(-1, keepdim=True)).to(x.dtype), op.weight, op.eps)

    return with_op(plugin, "rms_norm", compute)


@mutant("O02", "eps is always 1e-5", killer="ops.rms_norm")
def _o02(plugin: PluginUnderTest) -> PluginUnderTest:
    return with_op(plugin, "rms_norm", lambda op, x: _norm(x, op.weight, 1e-5))


@mutant(
    "O03",
    "the sum of squares is kept in the storage dtype",
    killer="ops.long_reductions",
    dtype="bfloat16",
)
def _o03(plugin: PluginUnderTest) -> PluginUnderTest:
    def compute(op: Any, x: Tensor) -> Tensor:
        total = torch.zeros_like(x[..., :1])
        for start in range(0, x.shape[-1], 32):
            part = x[..., start : start + 32].square()
            total = total + part.sum(dim=-1, keepdim=True)
        scale = torch.rsqrt((total / x.shape[-1]).float() + op.eps)
        normed: Tensor = (x.float() * scale).to(x.dtype) * op.weight
        return normed

    return with_op(plugin, "rms_norm", compute)


@mutant("O04", "the norm's weight is applied as 1 + w", killer="ops.rms_norm")
def _o04(plugin: PluginUnderTest) -> PluginUnderTest:
    return with_op(plugin, "rms_norm", lambda op, x: _norm(x, op.weight + 1, op.eps))


@mutant("O05", "the mean is over a length rounded up to 128", killer="ops.rms_norm")
def _o05(plugin: PluginUnderTest) -> PluginUnderTest:
    return with_op(
        plugin,
        "rms_norm",
        lambda op, x: _norm(x, op.weight, op.eps, -(-x.shape[-1] // 128) * 128),
    )


@mutant("O06", "the fused norm leaves the residual as it was", killer="ops.fused_add_rms_norm")
def _o06(plugin: PluginUnderTest) -> PluginUnderTest:
    def change(native: Any, op: Any, x: Tensor, residual: Tensor | None) -> Any:
        normed, total = native(x, residual)
        return normed, total if residual is None else residual.clone()

    return around_native(plugin, "fused_add_rms_norm", change)


@mutant("O07", "the activation is applied to the second half", killer="ops.activations")
def _o07(plugin: PluginUnderTest) -> PluginUnderTest:
    def compute(op: Any, x: Tensor) -> Tensor:
        gate, up = x.chunk(2, dim=-1)
        return gate * F.silu(up)

    return with_op(plugin, "silu_and_mul", compute)


@mutant("O08", "gelu by the error function where tanh is asked for", killer="ops.activations")
def _o08(plugin: PluginUnderTest) -> PluginUnderTest:
    def compute(op: Any, x: Tensor) -> Tensor:
        gate, up = x.chunk(2, dim=-1)
        return F.gelu(gate) * up

    return with_op(plugin, "gelu_and_mul", compute)


def _rotate(
    op: Any, positions: Tensor, x: Tensor, table: Tensor, rotary_dim: int, is_neox: bool
) -> Tensor:
    cos, sin = table[positions].unsqueeze(1).chunk(2, dim=-1)
    turned, rest = x[..., :rotary_dim].float(), x[..., rotary_dim:]
    if is_neox:
        first, second = turned.chunk(2, dim=-1)
    else:
        first, second = turned[..., 0::2], turned[..., 1::2]
    pair = (first * cos - second * sin, second * cos + first * sin)
    joined = torch.cat(pair, -1) if is_neox else torch.stack(pair, -1).flatten(-2)
    return torch.cat((joined.to(x.dtype), rest), dim=-1)


def _with_rotation(
    plugin: PluginUnderTest, change: Callable[..., dict[str, Any]], *, k_too: bool = True
) -> PluginUnderTest:
    """Rotation with other terms: ``change(op, positions)`` gives those that differ."""

    def compute(op: Any, positions: Tensor, q: Tensor, k: Tensor) -> tuple[Tensor, Tensor]:
        terms = {
            "positions": positions,
            "table": op.cos_sin_cache,
            "rotary_dim": op.rotary_dim,
            "is_neox": op.is_neox,
            **change(op, positions),
        }
        rotated = _rotate(op, x=q, **terms), _rotate(op, x=k, **terms)
        return rotated if k_too else (rotated[0], k.clone())

    return with_op(plugin, "rotary_embedding", compute)


@mutant("O09", "neighbours are rotated where halves are asked for", killer="ops.rotary_embedding")
def _o09(plugin: PluginUnderTest) -> PluginUnderTest:
    return _with_rotation(plugin, lambda op, positions: {"is_neox": False})


@mutant(
    "O10", "rows are numbered from 0 in place of their positions", killer="ops.rotary_embedding"
)
def _o10(plugin: PluginUnderTest) -> PluginUnderTest:
    return _with_rotation(
        plugin,
        lambda op, positions: {
            "positions": torch.arange(positions.shape[0], device=positions.device)
        },
    )


@mutant("O11", "keys are left as they are", killer="ops.rotary_embedding")
def _o11(plugin: PluginUnderTest) -> PluginUnderTest:
    return _with_rotation(plugin, lambda op, positions: {}, k_too=False)


@mutant("O12", "the whole head is rotated where a part is asked for", killer="ops.rotary_embedding")
def _o12(plugin: PluginUnderTest) -> PluginUnderTest:
    def change(op: Any, positions: Tensor) -> dict[str, Any]:
        table = rotary_table(op.cos_sin_cache.shape[0], op.head_dim).to(positions.device)
        return {"table": table, "rotary_dim": op.head_dim}

    return _with_rotation(plugin, change)


@mutant(
    "O13",
    "cosines and sines are rounded to bfloat16",
    killer="ops.rotary_embedding",
    dtype="float32",
)
def _o13(plugin: PluginUnderTest) -> PluginUnderTest:
    return _with_rotation(
        plugin, lambda op, positions: {"table": op.cos_sin_cache.bfloat16().float()}
    )


@mutant("O14", "it rotates the other way round", killer="ops.rotary_embedding")
def _o14(plugin: PluginUnderTest) -> PluginUnderTest:
    def change(op: Any, positions: Tensor) -> dict[str, Any]:
        cos, sin = op.cos_sin_cache.chunk(2, dim=-1)
        return {"table": torch.cat((cos, -sin), dim=-1)}

    return _with_rotation(plugin, change)


@mutant("O15", "the bias is ignored", killer="ops.linear")
def _o15(plugin: PluginUnderTest) -> PluginUnderTest:
    return with_op(plugin, "linear", lambda op, x: _product(x, op.weight, None))


@mutant("O16", "square weights are not transposed", killer="ops.linear")
def _o16(plugin: PluginUnderTest) -> PluginUnderTest:
    def compute(op: Any, x: Tensor) -> Tensor:
        weight = op.weight.T if op.in_features == op.out_features else op.weight
        return _product(x, weight, op.bias)

    return with_op(plugin, "linear", compute)


@mutant(
    "O17",
    "a product keeps the sums of its tiles in the storage dtype",
    killer="ops.long_reductions",
    dtype="bfloat16",
)
def _o17(plugin: PluginUnderTest) -> PluginUnderTest:
    def compute(op: Any, x: Tensor) -> Tensor:
        total = torch.zeros(x.shape[0], op.out_features, dtype=x.dtype, device=x.device)
        for start in range(0, x.shape[1], 64):
            part = slice(start, start + 64)
            total = total + (x[:, part].float() @ op.weight[:, part].float().T).to(x.dtype)
        return total if op.bias is None else total + op.bias

    return with_op(plugin, "linear", compute)


@mutant(
    "O18",
    "rounding to bfloat16 cuts the digits off",
    killer="ops.rounding_bias",
    dtype="bfloat16",
)
def _o18(plugin: PluginUnderTest) -> PluginUnderTest:
    def compute(op: Any, x: Tensor) -> Tensor:
        wide: Tensor = x.float() @ op.weight.float().T
        wide = wide if op.bias is None else wide + op.bias.float()
        if x.dtype is torch.bfloat16:
            wide = (wide.cpu().view(torch.int32) & -65536).view(torch.float32).to(x.device)
        return wide.to(x.dtype)

    return with_op(plugin, "linear", compute)


@mutant("O19", "float32 is multiplied with 10-bit mantissas", killer="ops.linear", dtype="float32")
def _o19(plugin: PluginUnderTest) -> PluginUnderTest:
    def narrow(x: Tensor) -> Tensor:
        bits = x.cpu().contiguous().view(torch.int32)
        return ((bits + 4096) & -8192).view(torch.float32).to(x.device)

    def compute(op: Any, x: Tensor) -> Tensor:
        if x.dtype is not torch.float32:
            return _product(x, op.weight, op.bias)
        return _product(narrow(x), narrow(op.weight), op.bias)

    return with_op(plugin, "linear", compute)


@mutant("O20", "NaN and infinity are replaced in the result", killer="ops.nonfinite")
def _o20(plugin: PluginUnderTest) -> PluginUnderTest:
    def compute(op: Any, x: Tensor) -> Tensor:
        found = _product(x, op.weight, op.bias)
        return torch.where(torch.isfinite(found), found, torch.zeros_like(found))

    return with_op(plugin, "linear", compute)


@mutant("O21", "it computes on the host and copies back", killer="ops.no_hidden_copies")
def _o21(plugin: PluginUnderTest) -> PluginUnderTest:
    _off_host(plugin, "a trip to the host")
    return with_op(
        plugin,
        "rms_norm",
        lambda op, x: _norm(x.cpu(), op.weight.cpu(), op.eps).to(x.device),
    )


@mutant("O22", "a product scales its input in place", killer="ops.linear")
def _o22(plugin: PluginUnderTest) -> PluginUnderTest:
    def compute(op: Any, x: Tensor) -> Tensor:
        found = _product(x, op.weight, op.bias)
        x.mul_(1.0625)
        return found

    return with_op(plugin, "linear", compute)


@mutant("O23", "the result for a shape seen before is given again", killer="ops.stale_output")
def _o23(plugin: PluginUnderTest) -> PluginUnderTest:
    kept: dict[Any, Tensor] = {}

    def compute(op: Any, x: Tensor) -> Tensor:
        key = (id(op), tuple(x.shape))
        if key not in kept:
            kept[key] = _product(x, op.weight, op.bias)
        return kept[key].clone()

    return with_op(plugin, "linear", compute)


@mutant("O24", "the result's memory is never written", killer="ops.stale_output")
def _o24(plugin: PluginUnderTest) -> PluginUnderTest:
    def compute(op: Any, x: Tensor) -> Tensor:
        return torch.empty((*x.shape[:-1], x.shape[-1] // 2), dtype=x.dtype, device=x.device)

    return with_op(plugin, "silu_and_mul", compute)


@mutant("O25", "only whole tiles of 8 rows are written", killer="ops.linear")
def _o25(plugin: PluginUnderTest) -> PluginUnderTest:
    def compute(op: Any, x: Tensor) -> Tensor:
        found = _product(x, op.weight, op.bias)
        whole = x.shape[0] // 8 * 8
        if 0 < whole < x.shape[0]:
            found[whole:] = 0
        return found

    return with_op(plugin, "linear", compute)


@mutant("O26", "a sum leaves out what is beyond a multiple of 16", killer="ops.linear")
def _o26(plugin: PluginUnderTest) -> PluginUnderTest:
    def compute(op: Any, x: Tensor) -> Tensor:
        whole = x.shape[1] // 16 * 16
        return _product(x[:, :whole], op.weight[:, :whole], op.bias)

    return with_op(plugin, "linear", compute)


@mutant("O27", "no rows raise", killer="ops.activations")
def _o27(plugin: PluginUnderTest) -> PluginUnderTest:
    def change(native: Any, op: Any, x: Tensor) -> Any:
        if x.shape[0] == 0:
            raise RuntimeError("invalid launch configuration")
        return native(x)

    return around_native(plugin, "silu_and_mul", change)


@mutant("O28", "slices are read as if they lay together", killer="ops.strided")
def _o28(plugin: PluginUnderTest) -> PluginUnderTest:
    def together(x: Tensor) -> Tensor:
        shape = tuple(x.shape)
        strides = (shape[1] * shape[2], shape[2], 1)
        return x.as_strided(shape, strides, x.storage_offset())

    def change(native: Any, op: Any, positions: Tensor, q: Tensor, k: Tensor) -> Any:
        return native(positions, together(q), together(k))

    return around_native(plugin, "rotary_embedding", change)


@mutant(
    "O29",
    "float32 is given where the storage dtype is due",
    killer="ops.activations",
    dtype="bfloat16",
)
def _o29(plugin: PluginUnderTest) -> PluginUnderTest:
    return around_native(plugin, "silu_and_mul", lambda native, op, x: native(x).float())


@mutant("O30", "token ids are cut to 16 bits", killer="ops.embedding")
def _o30(plugin: PluginUnderTest) -> PluginUnderTest:
    return around_native(plugin, "embedding", lambda native, op, ids: native(ids % 65536))


@mutant("O31", "silu by a coarse table", killer="ops.activations", dtype="float32")
def _o31(plugin: PluginUnderTest) -> PluginUnderTest:
    def compute(op: Any, x: Tensor) -> Tensor:
        gate, up = x.float().chunk(2, dim=-1)
        return (gate * (torch.sigmoid(gate) * 512).round() / 512 * up).to(x.dtype)

    return with_op(plugin, "silu_and_mul", compute)


@mutant("O32", "it compiles anew for each number of tokens", killer="ops.changing_shapes")
def _o32(plugin: PluginUnderTest) -> PluginUnderTest:
    seen: set[Any] = set()

    def compute(op: Any, x: Tensor) -> Tensor:
        if (id(op), x.shape) not in seen:
            seen.add((id(op), x.shape))
            time.sleep(0.05)
        return _product(x, op.weight, op.bias)

    return with_op(plugin, "linear", compute)


@mutant("O33", "of equal logits the highest expert is chosen", killer="ops.moe_route")
def _o33(plugin: PluginUnderTest) -> PluginUnderTest:
    def change(native: Any, op: Any, logits: Tensor) -> Any:
        ids, shares = native(backwards(logits))
        return op.num_experts - 1 - ids, shares

    return around_native(plugin, "moe_route", change)


@mutant("O34", "angles are computed anew, whatever the table says", killer="ops.rotary_scaled")
def _o34(plugin: PluginUnderTest) -> PluginUnderTest:
    def change(op: Any, positions: Tensor) -> dict[str, Any]:
        table = rotary_table(op.cos_sin_cache.shape[0], op.rotary_dim)
        return {"table": table.to(positions.device)}

    return _with_rotation(plugin, change)


@mutant(
    "O35", "subnormals are flushed, and nobody was told", killer="ops.subnormals", dtype="float32"
)
def _o35(plugin: PluginUnderTest) -> PluginUnderTest:
    def change(native: Any, op: Any, x: Tensor, residual: Tensor | None) -> Any:
        normed, total = native(x, residual)
        smallest = torch.finfo(x.dtype).smallest_normal
        return normed, torch.where(total.abs() < smallest, torch.zeros_like(total), total)

    return around_native(plugin, "fused_add_rms_norm", change)


@mutant(
    "O36", "the weight is widened in every call", killer="ops.no_hidden_copies", dtype="bfloat16"
)
def _o36(plugin: PluginUnderTest) -> PluginUnderTest:
    return with_op(plugin, "linear", lambda op, x: _product(x, op.weight, op.bias))


@mutant("O37", "a rotation in place also writes the row after the last", killer="ops.memory_bounds")
def _o37(plugin: PluginUnderTest) -> PluginUnderTest:
    def change(native: Any, op: Any, positions: Tensor, q: Tensor, k: Tensor) -> Any:
        rotated, keys = native(positions, q, k)
        room = q.untyped_storage().nbytes() // q.element_size()
        end = q.storage_offset() + q.numel()
        if q.numel() and q.is_contiguous() and end < room:
            q.as_strided((1,), (1,), end).fill_(1.0)
        return rotated, keys

    return around_native(plugin, "rotary_embedding", change, mutates=("q", "k"))


@mutant("O38", "layer_norm keeps the mean", killer="ops.layer_norm")
def _o38(plugin: PluginUnderTest) -> PluginUnderTest:
    def compute(op: Any, x: Tensor) -> Tensor:
        found = _norm(x, op.weight, op.eps)
        return found if op.bias is None else found + op.bias

    return with_op(plugin, "layer_norm", compute)


@mutant("O39", "the keys' norm uses the queries' weight", killer="ops.qkv_norm_rope")
def _o39(plugin: PluginUnderTest) -> PluginUnderTest:
    def compute(op: Any, qkv: Tensor, positions: Tensor) -> Any:
        parts = (op.num_heads, op.num_kv_heads, op.num_kv_heads)
        heads = qkv.view(qkv.shape[0], sum(parts), op.head_dim)
        q, k, v = heads.split_with_sizes(parts, dim=1)
        if op.q_norm is not None:
            weight = op.q_norm.weight
            q, k = (_norm(one, weight, op.norm_eps) for one in (q, k))
        q, k = op.rotary.forward_native(positions, q, k)
        return q, k, v

    return with_op(plugin, "qkv_norm_rope", compute)


@mutant("O40", "the rows of up are taken for those of gate", killer="ops.gate_up_act")
def _o40(plugin: PluginUnderTest) -> PluginUnderTest:
    def compute(op: Any, x: Tensor) -> Any:
        both = op.linear.forward_native(x)
        gate, up = both.chunk(2, dim=-1)
        return op.act.forward_native(torch.cat((up, gate), dim=-1))

    return with_op(plugin, "gate_up_act", compute)


@mutant("O41", "logits come in the storage dtype", killer="ops.lm_head", dtype="bfloat16")
def _o41(plugin: PluginUnderTest) -> PluginUnderTest:
    return with_op(plugin, "lm_head", lambda op, x: F.linear(x, op.weight))


@mutant("O42", "rows of a tied table are scaled for the head", killer="ops.tied_table")
def _o42(plugin: PluginUnderTest) -> PluginUnderTest:
    def change(native: Any, op: Any, ids: Tensor) -> Any:
        return native(ids) * (op.hidden_size**0.5 if op.head is not None else 1)

    return around_native(plugin, "embedding", change)


@mutant("O43", "a first residual of None is taken for zeros", killer="ops.fused_add_rms_norm")
def _o43(plugin: PluginUnderTest) -> PluginUnderTest:
    def change(native: Any, op: Any, x: Tensor, residual: Tensor | None) -> Any:
        normed, total = native(x, residual)
        return normed, torch.zeros_like(x) if residual is None else total

    return around_native(plugin, "fused_add_rms_norm", change)


@mutant("O44", "a norm reads a number from the device in every call", killer="ops.no_hidden_copies")
def _o44(plugin: PluginUnderTest) -> PluginUnderTest:
    _off_host(plugin, "a wait")

    def compute(op: Any, x: Tensor) -> Tensor:
        largest = float(x.float().abs().max()) if x.numel() else 0.0
        return _norm(x, op.weight, op.eps) if largest >= 0 else x

    return with_op(plugin, "rms_norm", compute)


@mutant(
    "O45", "a kernel for one rare width is wrong at that width", killer="ops.every_implementation"
)
def _o45(plugin: PluginUnderTest) -> PluginUnderTest:
    return with_op(
        plugin,
        "rms_norm",
        lambda op, x: _norm(x, op.weight, op.eps) * 1.5,
        when=Needs(hidden_size=320),
    )


@mutant("O46", "a kernel for many tokens is wrong", killer="ops.linear")
def _o46(plugin: PluginUnderTest) -> PluginUnderTest:
    return with_op(
        plugin,
        "linear",
        lambda op, x: _product(x, op.weight, op.bias) * 1.5,
        tokens=AtLeast(200),
    )


@mutant("O47", "experts are summed without their shares", killer="ops.moe_experts")
def _o47(plugin: PluginUnderTest) -> PluginUnderTest:
    def compute(op: Any, x: Tensor, ids: Tensor, shares: Tensor) -> Tensor:
        total = torch.zeros(x.shape, dtype=torch.float32, device=x.device)
        for expert in range(op.num_experts):
            inner = op.act.forward_native(F.linear(x, op.gate_up_weight[expert]))
            out = F.linear(inner, op.down_weight[expert]).float()
            total = total + out * (ids == expert).sum(dim=1, keepdim=True)
        return total.to(x.dtype)

    return with_op(plugin, "moe_experts", compute)


@mutant("O48", "what it cannot compute in is rounded quietly", killer="ops.unclaimed_dtype")
def _o48(plugin: PluginUnderTest) -> PluginUnderTest:
    def compute(op: Any, x: Tensor) -> Tensor:
        return F.linear(x.to(op.weight.dtype), op.weight, op.bias).to(x.dtype) * 1.0

    return with_op(plugin, "linear", compute)


@mutant(
    "O49",
    "it claims batch invariance and sums a lone row otherwise",
    killer="ops.batch_invariance",
    dtype="float32",
)
def _o49(plugin: PluginUnderTest) -> PluginUnderTest:
    def compute(op: Any, x: Tensor) -> Tensor:
        if x.shape[0] != 1:
            return _product(x, op.weight, op.bias)
        half = x.shape[1] // 2
        first, second = (
            _product(x[:, part], op.weight[:, part], None)
            for part in (slice(0, half), slice(half, None))
        )
        total = first + second
        return total if op.bias is None else total + op.bias

    claimed = with_claims(plugin, features=["batch_invariant.float32"])
    return with_op(claimed, "linear", compute)


@mutant("O50", "tokens of an encoder see none that comes after", killer="ops.encoder_attention")
def _o50(plugin: PluginUnderTest) -> PluginUnderTest:
    def hidden(sequence: Tensor, place: Tensor) -> Tensor:
        return other_sequences(sequence, place) | (place[None, :] > place[:, None])

    return with_encoder_attention(plugin, hidden)


@mutant("O51", "sequences of an encoder's step see one another", killer="ops.encoder_attention")
def _o51(plugin: PluginUnderTest) -> PluginUnderTest:
    def hidden(sequence: Tensor, place: Tensor) -> Tensor:
        return other_sequences(sequence // 2, place)  # two that share a tile

    return with_encoder_attention(plugin, hidden)

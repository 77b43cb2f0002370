"""Each op of the catalogue: from sizes to configuration, weights, arguments, right results."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import cycle, pairwise
from typing import Any

import torch

from dougong_conformance.kit.generate import VALUES, Draw, rotary_table
from dougong_conformance.kit.metric import Expected
from dougong_conformance.kit.oracle import activation, linear, moe, norm, rotary, tokens
from dougong_conformance.kit.oracle.attention import encoder_attention
from dougong_conformance.kit.oracle.quantize import FORMATS
from dougong_conformance.kit.place import part_of, within

Sizes = Mapping[str, Any]
Answer = Expected | torch.Tensor
"""By the error law, or to the bit."""


@dataclass(frozen=True, slots=True)
class OpKind:
    """One op.

    Attributes:
        key: In the catalogue.
        sizes: What it is made with unless a row says otherwise.
        config: From sizes and the dtype's name to the arguments of its class.
        weights: From sizes to its parameters by name.
        arguments: From sizes and a number of tokens to a call's arguments.
        expected: From sizes, weights and arguments to what the call must give.
        may_mutate: Arguments that the contract allows to be overwritten.
    """

    key: str
    sizes: Sizes
    config: Callable[[Sizes, str], dict[str, Any]]
    weights: Callable[[Sizes, Draw], dict[str, torch.Tensor]]
    arguments: Callable[[Sizes, Draw, int], list[Any]]
    expected: Callable[[Sizes, Mapping[str, torch.Tensor], list[Any]], list[Answer]]
    may_mutate: tuple[str, ...] = ()


def _values(sizes: Sizes, draw: Draw, *shape: int) -> torch.Tensor:
    return VALUES[sizes.get("values", "normal")](draw, shape, float(sizes.get("scale", 1.0)))


def _norm_config(sizes: Sizes, dtype: str) -> dict[str, Any]:
    return {"hidden_size": sizes["hidden_size"], "eps": sizes.get("eps", 1e-6), "dtype": dtype}


def _norm_weight(sizes: Sizes, draw: Draw) -> torch.Tensor:
    return draw.normal(sizes["hidden_size"], scale=0.2, shift=1.0)


def _fused_arguments(sizes: Sizes, draw: Draw, n: int) -> list[Any]:
    x = _values(sizes, draw, n, sizes["hidden_size"])
    if sizes.get("no_residual"):
        return [x, None]
    return [x, _values(sizes, draw, n, sizes["hidden_size"])]


def _fused_expected(
    sizes: Sizes, weights: Mapping[str, torch.Tensor], arguments: list[Any]
) -> list[Answer]:
    x, residual = arguments
    return list(
        norm.fused_add_rms_norm(x, residual, weights["norm.weight"], sizes.get("eps", 1e-6))
    )


def _layer_norm_weights(sizes: Sizes, draw: Draw) -> dict[str, torch.Tensor]:
    weights = {"weight": _norm_weight(sizes, draw)}
    if sizes.get("has_bias", True):
        weights["bias"] = draw.normal(sizes["hidden_size"])
    return weights


def _linear_config(sizes: Sizes, dtype: str) -> dict[str, Any]:
    return {
        "in_features": sizes["in_features"],
        "out_features": sizes["out_features"],
        "has_bias": sizes.get("has_bias", False),
        "dtype": dtype,
    }


def _linear_weights(sizes: Sizes, draw: Draw) -> dict[str, torch.Tensor]:
    rows, columns = sizes["out_features"], sizes["in_features"]
    if sizes.get("values") == "cancelling":
        weight = torch.ones(rows, columns)
        weight[:, columns // 2 :] = -1
        weight[:, 0] = 1.5
        found = {"weight": weight.to(draw.dtype)}
    elif sizes.get("values") == "ones":
        found = {"weight": torch.ones(rows, columns, dtype=draw.dtype)}
    else:
        found = {"weight": draw.normal(rows, columns, scale=columns**-0.5)}
    if sizes.get("has_bias"):
        found["bias"] = draw.normal(rows)
    return found


def _linear_arguments(sizes: Sizes, draw: Draw, n: int) -> list[Any]:
    columns = sizes["in_features"]
    if sizes.get("values") == "cancelling":
        return [torch.ones(n, columns, dtype=draw.dtype)]
    if sizes.get("values") == "ones":
        return [torch.full((n, columns), 0.75, dtype=draw.dtype)]
    return [_values(sizes, draw, n, columns)]


def _gate_up_config(sizes: Sizes, dtype: str) -> dict[str, Any]:
    names = ("hidden_size", "intermediate_size", "activation")
    return {
        **{name: sizes[name] for name in names},
        "has_bias": sizes.get("has_bias", False),
        "dtype": dtype,
    }


def _gate_up_weights(sizes: Sizes, draw: Draw) -> dict[str, torch.Tensor]:
    rows, columns = 2 * sizes["intermediate_size"], sizes["hidden_size"]
    found = {"linear.weight": draw.normal(rows, columns, scale=columns**-0.5)}
    if sizes.get("has_bias"):
        found["linear.bias"] = draw.normal(rows)
    return found


def _table_config(sizes: Sizes, dtype: str) -> dict[str, Any]:
    return {
        "vocab_size": sizes["vocab_size"],
        "hidden_size": sizes["hidden_size"],
        "dtype": dtype,
    }


def _table(sizes: Sizes, draw: Draw) -> dict[str, torch.Tensor]:
    shape = sizes["vocab_size"], sizes["hidden_size"]
    return {"weight": draw.normal(*shape, scale=sizes["hidden_size"] ** -0.5)}


def _ids(sizes: Sizes, draw: Draw, n: int) -> list[Any]:
    """Both ends of the table first, then any; one twice."""
    last = sizes["vocab_size"] - 1
    ids = draw.integers(0, last + 1, n)
    edges = torch.tensor([last, 0, last, last // 2])[:n]
    ids[: len(edges)] = edges
    return [ids]


def _cache(sizes: Sizes) -> torch.Tensor:
    table = rotary_table(sizes["num_positions"], sizes["rotary_dim"])
    return table * float(sizes.get("table_scale", 1.0))


def _rotary_config(sizes: Sizes, dtype: str) -> dict[str, Any]:
    counts = ("num_heads", "num_kv_heads") if sizes.get("states_heads") else ()
    return {
        "head_dim": sizes["head_dim"],
        "rotary_dim": sizes["rotary_dim"],
        "cos_sin_cache": _cache(sizes),
        "is_neox": sizes.get("is_neox", True),
        **{name: sizes[name] for name in counts},
    }


def _positions(sizes: Sizes, draw: Draw, n: int) -> torch.Tensor:
    """Both ends of the table first, never in order."""
    last = sizes["num_positions"] - 1
    positions = draw.integers(0, last + 1, n)
    edges = torch.tensor([last, 0, 1, last // 2])[:n]
    positions[: len(edges)] = edges
    return positions


def _rotary_arguments(sizes: Sizes, draw: Draw, n: int) -> list[Any]:
    return [
        _positions(sizes, draw, n),
        draw.normal(n, sizes["num_heads"], sizes["head_dim"]),
        draw.normal(n, sizes["num_kv_heads"], sizes["head_dim"]),
    ]


def _rotary_expected(
    sizes: Sizes, weights: Mapping[str, torch.Tensor], arguments: list[Any]
) -> list[Answer]:
    positions, q, k = arguments
    table, is_neox = _cache(sizes), sizes.get("is_neox", True)
    return [rotary.rotary(one, positions, table, is_neox=is_neox) for one in (q, k)]


def _qkv_config(sizes: Sizes, dtype: str) -> dict[str, Any]:
    names = ("num_heads", "num_kv_heads", "head_dim", "rotary_dim")
    return {
        **{name: sizes[name] for name in names},
        "cos_sin_cache": _cache(sizes),
        "dtype": dtype,
        "norm_eps": sizes.get("eps"),
        "is_neox": sizes.get("is_neox", True),
    }


def _qkv_weights(sizes: Sizes, draw: Draw) -> dict[str, torch.Tensor]:
    if sizes.get("eps") is None:
        return {}
    names = ("q_norm.weight", "k_norm.weight")
    return {name: draw.normal(sizes["head_dim"], scale=0.2, shift=1.0) for name in names}


def _qkv_arguments(sizes: Sizes, draw: Draw, n: int) -> list[Any]:
    width = (sizes["num_heads"] + 2 * sizes["num_kv_heads"]) * sizes["head_dim"]
    return [draw.normal(n, width), _positions(sizes, draw, n)]


def _qkv_expected(
    sizes: Sizes, weights: Mapping[str, torch.Tensor], arguments: list[Any]
) -> list[Answer]:
    return list(
        rotary.qkv_norm_rope(
            arguments[0],
            arguments[1],
            _cache(sizes),
            num_heads=sizes["num_heads"],
            num_kv_heads=sizes["num_kv_heads"],
            q_weight=weights.get("q_norm.weight"),
            k_weight=weights.get("k_norm.weight"),
            eps=sizes.get("eps"),
            is_neox=sizes.get("is_neox", True),
        )
    )


_LENGTHS = (1, 3, 3, 2, 5)
"""Of sequences of a step, time after time."""


def _encoder_config(sizes: Sizes, dtype: str) -> dict[str, Any]:
    scale = sizes.get("qk_scale", sizes["head_dim"] ** -0.5)
    return {"num_heads": sizes["num_heads"], "head_dim": sizes["head_dim"], "scale": scale}


def _encoder_arguments(sizes: Sizes, draw: Draw, n: int) -> list[Any]:
    """Several sequences where there are tokens enough, two of one length among them."""
    lengths, starts = cycle(sizes.get("lengths", _LENGTHS)), [0]
    while starts[-1] < n:
        starts.append(min(n, starts[-1] + next(lengths)))
    longest = max((end - start for start, end in pairwise(starts)), default=0)
    shape = n, sizes["num_heads"], sizes["head_dim"]
    parts: list[Any] = [_values(sizes, draw, *shape) for _ in range(3)]
    if sizes.get("packed"):  # as one product of a projection gives them
        parts = [within(one, 1, at, 2 - at) for at, one in enumerate(parts)]
    where = torch.tensor(starts, dtype=torch.int32)
    return [*parts, where, {"host": where.clone()}, longest]


def _encoder_expected(
    sizes: Sizes, weights: Mapping[str, torch.Tensor], arguments: list[Any]
) -> list[Answer]:
    q, k, v = (part_of(one) if isinstance(one, dict) else one for one in arguments[:3])
    scale = sizes.get("qk_scale", sizes["head_dim"] ** -0.5)
    return [encoder_attention(q, k, v, arguments[3].tolist(), scale)]


def _route_arguments(sizes: Sizes, draw: Draw, n: int) -> list[Any]:
    """One row of equal logits, and pairs of equal ones in another."""
    logits = draw.normal(n, sizes["num_experts"])
    if n > 1:
        logits[1] = 0.5
    if n > 2:
        logits[2] = logits[2, : 1 + sizes["num_experts"] // 2].repeat(2)[: sizes["num_experts"]]
    return [logits]


def _route_expected(
    sizes: Sizes, weights: Mapping[str, torch.Tensor], arguments: list[Any]
) -> list[Answer]:
    return list(moe.route(arguments[0], sizes["top_k"], renormalize=sizes["renormalize"]))


def _experts_config(sizes: Sizes, dtype: str) -> dict[str, Any]:
    names = ("num_experts", "hidden_size", "intermediate_size", "activation")
    return {**{name: sizes[name] for name in names}, "dtype": dtype}


def _experts_weights(sizes: Sizes, draw: Draw) -> dict[str, torch.Tensor]:
    count, hidden, inner = (
        sizes[name] for name in ("num_experts", "hidden_size", "intermediate_size")
    )
    return {
        "gate_up_weight": draw.normal(count, 2 * inner, hidden, scale=hidden**-0.5),
        "down_weight": draw.normal(count, hidden, inner, scale=inner**-0.5),
    }


def _experts_arguments(sizes: Sizes, draw: Draw, n: int) -> list[Any]:
    """Ids never ascending alone, shares that sum to less than 1; where there are more experts than
    a token takes, one is chosen by nobody."""
    top_k, count = sizes["top_k"], sizes["num_experts"]
    chosen = max(count - 1, top_k)
    order = torch.stack([draw.permutation(chosen) for _ in range(n)]) if n else None
    ids = torch.zeros(0, top_k, dtype=torch.int64) if order is None else order[:, :top_k]
    shares = draw.uniform(n, top_k) * 0.5 + 0.1
    return [draw.normal(n, sizes["hidden_size"]), ids.contiguous(), shares]


def _logits(sizes: Sizes, draw: Draw, n: int) -> list[Any]:
    return [draw.normal(n, sizes["vocab_size"], scale=float(sizes.get("scale", 3.0))).float()]


def _penalty_arguments(sizes: Sizes, draw: Draw, n: int) -> list[Any]:
    """Row 0 asks for nothing; some tokens are ruled out already."""
    logits = draw.normal(n, sizes["vocab_size"], scale=3.0).float()
    if n:
        logits[:, 3] = -torch.inf
    counts = draw.integers(-3, 4, n, sizes["vocab_size"]).clamp(min=0).int()
    repetition, frequency, presence = (draw.uniform(n) + start for start in (0.6, -0.5, -0.5))
    if n:
        repetition[0], frequency[0], presence[0] = 1, 0, 0
    in_prompt = draw.uniform(n, sizes["vocab_size"]) < 0.3
    return [logits, in_prompt, counts, repetition, frequency, presence]


def _cut_arguments(sizes: Sizes, draw: Draw, n: int) -> list[Any]:
    logits = draw.normal(n, sizes["vocab_size"], scale=3.0).float()
    return [logits, draw.integers(1, sizes["vocab_size"], n), draw.uniform(n)]


def _stored_numbers(sizes: Sizes, draw: Draw, n: int) -> list[Any]:
    """Rows that came from nowhere, so that nothing in them is symmetric."""
    layout, hidden = FORMATS[sizes["format"]], sizes["hidden_size"]
    shape = [1] if layout.is_static else [n, hidden // (layout.group_size or hidden)]
    scale = torch.tensor([0.7]) if layout.is_static else draw.uniform(*shape) + 0.25
    if layout.is_packed:
        values = draw.integers(0, 256, n, hidden // 2).to(torch.uint8)
        return [values, scale.half(), (draw.uniform(*shape) * 8 - 4).half()]
    if layout.values is torch.int8:
        return [draw.integers(-127, 128, n, hidden).to(torch.int8), scale, None]
    return [(draw.uniform(n, hidden) * 800 - 400).to(layout.values), scale, None]


def _static_scale(sizes: Sizes, draw: Draw) -> dict[str, torch.Tensor]:
    return {"scale": torch.tensor([0.25])} if sizes["format"].endswith("static") else {}


def _no_rule(
    sizes: Sizes, weights: Mapping[str, torch.Tensor], arguments: list[Any]
) -> list[Answer]:
    raise LookupError("judged by a rule of its own")


def _nothing(sizes: Sizes, draw: Draw) -> dict[str, torch.Tensor]:
    return {}


def _no_config(sizes: Sizes, dtype: str) -> dict[str, Any]:
    return {}


KINDS: dict[str, OpKind] = {
    kind.key: kind
    for kind in (
        OpKind(
            "rms_norm",
            {"hidden_size": 64},
            _norm_config,
            lambda sizes, draw: {"weight": _norm_weight(sizes, draw)},
            lambda sizes, draw, n: [_values(sizes, draw, n, sizes["hidden_size"])],
            lambda sizes, w, args: [norm.rms_norm(args[0], w["weight"], sizes.get("eps", 1e-6))],
        ),
        OpKind(
            "fused_add_rms_norm",
            {"hidden_size": 64},
            _norm_config,
            lambda sizes, draw: {"norm.weight": _norm_weight(sizes, draw)},
            _fused_arguments,
            _fused_expected,
            may_mutate=("x", "residual"),
        ),
        OpKind(
            "layer_norm",
            {"hidden_size": 64},
            lambda sizes, dtype: {
                **_norm_config(sizes, dtype),
                "has_bias": sizes.get("has_bias", True),
            },
            _layer_norm_weights,
            lambda sizes, draw, n: [_values(sizes, draw, n, sizes["hidden_size"])],
            lambda sizes, w, args: [
                norm.layer_norm(args[0], w["weight"], w.get("bias"), sizes.get("eps", 1e-6))
            ],
        ),
        OpKind(
            "silu_and_mul",
            {"width": 40},
            _no_config,
            _nothing,
            lambda sizes, draw, n: [_values(sizes, draw, n, 2 * sizes["width"])],
            lambda sizes, w, args: [activation.gated("silu", args[0])],
        ),
        OpKind(
            "gelu_and_mul",
            {"width": 40, "approximate": "tanh"},
            lambda sizes, dtype: {"approximate": sizes["approximate"]},
            _nothing,
            lambda sizes, draw, n: [_values(sizes, draw, n, 2 * sizes["width"])],
            lambda sizes, w, args: [
                activation.gated(
                    "gelu_pytorch_tanh" if sizes["approximate"] == "tanh" else "gelu", args[0]
                )
            ],
        ),
        OpKind(
            "linear",
            {"in_features": 64, "out_features": 48},
            _linear_config,
            _linear_weights,
            _linear_arguments,
            lambda sizes, w, args: [linear.linear(args[0], w["weight"], w.get("bias"))],
        ),
        OpKind(
            "gate_up_act",
            {"hidden_size": 64, "intermediate_size": 48, "activation": "silu"},
            _gate_up_config,
            _gate_up_weights,
            lambda sizes, draw, n: [_values(sizes, draw, n, sizes["hidden_size"])],
            lambda sizes, w, args: [
                linear.gate_up_act(
                    sizes["activation"], args[0], w["linear.weight"], w.get("linear.bias")
                )
            ],
        ),
        OpKind(
            "lm_head",
            {"vocab_size": 97, "hidden_size": 64},
            _table_config,
            _table,
            lambda sizes, draw, n: [_values(sizes, draw, n, sizes["hidden_size"])],
            lambda sizes, w, args: [linear.linear(args[0], w["weight"], dtype=torch.float32)],
        ),
        OpKind(
            "embedding",
            {"vocab_size": 97, "hidden_size": 24},
            _table_config,
            _table,
            _ids,
            lambda sizes, w, args: [w["weight"][args[0]]],
        ),
        OpKind(
            "rotary_embedding",
            {
                "num_heads": 4,
                "num_kv_heads": 2,
                "head_dim": 32,
                "rotary_dim": 32,
                "num_positions": 4096,
            },
            _rotary_config,
            _nothing,
            _rotary_arguments,
            _rotary_expected,
            may_mutate=("q", "k"),
        ),
        OpKind(
            "qkv_norm_rope",
            {
                "num_heads": 4,
                "num_kv_heads": 2,
                "head_dim": 32,
                "rotary_dim": 32,
                "num_positions": 4096,
            },
            _qkv_config,
            _qkv_weights,
            _qkv_arguments,
            _qkv_expected,
            may_mutate=("qkv",),
        ),
        OpKind(
            "encoder_attention",
            {"num_heads": 4, "head_dim": 32},
            _encoder_config,
            _nothing,
            _encoder_arguments,
            _encoder_expected,
        ),
        OpKind(
            "moe_route",
            {"num_experts": 8, "top_k": 2, "renormalize": True},
            lambda sizes, dtype: {
                name: sizes[name] for name in ("num_experts", "top_k", "renormalize")
            },
            _nothing,
            _route_arguments,
            _route_expected,
        ),
        OpKind(
            "moe_experts",
            {
                "num_experts": 5,
                "hidden_size": 24,
                "intermediate_size": 17,
                "activation": "silu",
                "top_k": 2,
            },
            _experts_config,
            _experts_weights,
            _experts_arguments,
            lambda sizes, w, args: [
                moe.experts(
                    sizes["activation"],
                    args[0],
                    args[1],
                    args[2],
                    w["gate_up_weight"],
                    w["down_weight"],
                )
            ],
        ),
        OpKind(
            "greedy_sample",
            {"vocab_size": 97},
            _no_config,
            _nothing,
            _logits,
            lambda sizes, w, args: [tokens.greedy(args[0])],
        ),
        OpKind(
            "logprobs",
            {"vocab_size": 97},
            _no_config,
            _nothing,
            _logits,
            lambda sizes, w, args: [tokens.logprobs(args[0])],
        ),
        OpKind(
            "penalties",
            {"vocab_size": 97},
            _no_config,
            _nothing,
            _penalty_arguments,
            lambda sizes, w, args: [tokens.penalties(*args)],
            may_mutate=("logits",),
        ),
        OpKind("top_k_top_p", {"vocab_size": 97}, _no_config, _nothing, _cut_arguments, _no_rule),
        OpKind(
            "quantize",
            {"hidden_size": 256, "format": "int8_token"},
            lambda sizes, dtype: {name: sizes[name] for name in ("hidden_size", "format")},
            _static_scale,
            lambda sizes, draw, n: [_values(sizes, draw, n, sizes["hidden_size"])],
            _no_rule,
        ),
        OpKind(
            "dequantize",
            {"hidden_size": 256, "format": "int8_token"},
            lambda sizes, dtype: {
                **{name: sizes[name] for name in ("hidden_size", "format")},
                "dtype": dtype,
            },
            _nothing,
            _stored_numbers,
            _no_rule,
        ),
    )
}
"""By key. Cuts and quantization have rules of their own, in their profiles."""

"""What ``quantization_config`` says of the weights, method by method, in words."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from dougong.describe.needs import WeightNeed

_Config = Mapping[str, Any]

# Words that any of these methods may use, as messages show them.
_SHOWN = (
    "bits", "group_size", "sym", "zero_point", "desc_act", "version", "fmt", "format",
    "activation_scheme", "weight_block_size", "quant_algo", "quant_type", "quantization_status",
    "load_in_8bit", "load_in_4bit", "bnb_4bit_quant_type", "bnb_4bit_use_double_quant", "weights",
    "dtype", "backend", "checkpoint_format",
)  # fmt: skip


def declared_quantization(config: _Config) -> _Config | None:
    """The part of a configuration that says how weights are quantized; ``None``: they are not."""
    for name in ("quantization_config", "compression_config", "quantization"):
        found = config.get(name)
        if isinstance(found, Mapping) and found:
            return found
    return None


def describe_quantization(quantization: _Config, num_bytes: int | None = None) -> WeightNeed:
    """The quantized weights of a safetensors checkpoint.

    The core's readers give their tensors as stored, integers and scales apart, and put none
    together: such weights are readable only by a platform that computes the format.

    Args:
        quantization: From `declared_quantization`.
        num_bytes: In the files; ``None``: unknown.
    """
    method = str(quantization.get("quant_method") or "unnamed")
    layout = _LAYOUTS.get(method.replace("-", "_"), _by_group)(quantization)
    return WeightNeed(
        format=method,
        is_quantized=True,
        is_readable=False,
        num_bytes=num_bytes,
        scale_layout=layout,
        options=_options(quantization),
    )


def _options(quantization: _Config) -> dict[str, str]:
    options = {name: _word(quantization[name]) for name in _SHOWN if name in quantization}
    if group := _first_group(quantization):
        named = {"num_bits": "bits", "type": "type", "strategy": "strategy"}
        options |= {new: _word(group[name]) for name, new in named.items() if name in group}
        if group.get("group_size"):
            options["group_size"] = _word(group["group_size"])
    return {name: text for name, text in options.items() if text}


def _word(value: object) -> str:
    """A plain value as JSON would have it; nothing for what has parts of its own."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list | tuple):
        return " x ".join(map(str, value))
    return "" if value is None or isinstance(value, Mapping) else str(value)


def _first_group(quantization: _Config) -> _Config:
    """How the first group of compressed tensors stores its weights; most have one group."""
    groups = quantization.get("config_groups")
    first = next(iter(groups.values()), None) if isinstance(groups, Mapping) else None
    weights = first.get("weights") if isinstance(first, Mapping) else None
    return weights if isinstance(weights, Mapping) else {}


def _group(size: object) -> str:
    if size in (None, "", 0):
        return ""
    return "one per output channel" if size == -1 else f"group {size} along the input"


def _join(*parts: str) -> str:
    return ", ".join(part for part in parts if part)


def _by_group(quantization: _Config) -> str:
    return _group(quantization.get("group_size"))


def _gptq(quantization: _Config) -> str:
    bits = quantization.get("bits", 4)
    order = "channels in the order of activations" if quantization.get("desc_act") else ""
    return _join(_by_group(quantization), "float16 scale", f"{bits}-bit zero point", order)


def _awq(quantization: _Config) -> str:
    size = quantization.get("group_size", quantization.get("q_group_size"))
    bits = quantization.get("bits", quantization.get("w_bit", 4))
    has_zero = quantization.get("zero_point", True)
    return _join(_group(size), "float16 scale", f"{bits}-bit zero point" if has_zero else "")


def _fp8(quantization: _Config) -> str:
    scheme = quantization.get("activation_scheme")
    block = quantization.get("weight_block_size")
    where = f"block {_word(block)}" if block else "one per tensor"
    return _join(where, "float32 scale", f"{scheme} activations" if scheme else "")


def _fp8_by_channel(quantization: _Config) -> str:
    return "one per output channel, float32 scale"


def _mxfp4(quantization: _Config) -> str:
    return "group 32 along the input, scale a power of two in uint8"


def _bitsandbytes(quantization: _Config) -> str:
    if quantization.get("load_in_8bit"):
        return "one per output channel, float32 scale"
    twice = quantization.get("bnb_4bit_use_double_quant")
    return _join("group 64 of the flat weight", "scale quantized again" if twice else "scale")


def _compressed_tensors(quantization: _Config) -> str:
    group = _first_group(quantization)
    strategy = str(group.get("strategy") or "")
    where = {
        "group": _group(group.get("group_size")),
        "tensor_group": _group(group.get("group_size")),
        "channel": "one per output channel",
        "tensor": "one per tensor",
        "block": f"block {_word(group.get('block_structure'))}".strip(),
    }.get(strategy, strategy)
    symmetric = group.get("symmetric")
    return _join(where, "scale" if where else "", "zero point" if symmetric is False else "")


_LAYOUTS: Mapping[str, Callable[[_Config], str]] = {
    "gptq": _gptq,
    "awq": _awq,
    "fp8": _fp8,
    "fbgemm_fp8": _fp8_by_channel,
    "mxfp4": _mxfp4,
    "bitsandbytes": _bitsandbytes,
    "compressed_tensors": _compressed_tensors,
}

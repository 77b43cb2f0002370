"""Formats in which a checkpoint's weights are stored, and what the core's readers make of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dougong.checkpoint import CheckpointFormat, WeightSummary
from dougong.describe.needs import WeightNeed
from dougong.describe.quantization import declared_quantization, describe_quantization

_PLAIN: Mapping[str, str] = {
    "F64": "float64",
    "F32": "float32",
    "F16": "float16",
    "BF16": "bfloat16",
}
_SMALL_FLOATS: Mapping[str, str] = {"F8_E4M3": "float8_e4m3fn", "F8_E5M2": "float8_e5m2"}
_SCALE_NAMES = ("_scale", "_scale_inv")


def describe_weights(
    hf_config: Mapping[str, Any],
    weights: WeightSummary | None,
    *,
    file_format: CheckpointFormat,
    dtype: str,
) -> tuple[WeightNeed, ...]:
    """Formats, those with most bytes first.

    Args:
        hf_config: Of the checkpoint.
        weights: Its summary; ``None``: weight files are missing, so that no bytes are known.
        file_format: Of the files.
        dtype: That the checkpoint is made for; what is not quantized is stored so, as far as is
            known without the files.
    """
    if file_format is CheckpointFormat.GGUF:
        return _gguf_files(weights)
    quantization = declared_quantization(hf_config)
    if weights is None:
        plain = _plain(dtype, None)
        return (plain,) if quantization is None else (describe_quantization(quantization), plain)
    if quantization is None:
        return _undeclared(weights)
    return _declared(quantization, weights)


def _plain(dtype: str, num_bytes: int | None) -> WeightNeed:
    return WeightNeed(format=dtype, is_quantized=False, is_readable=True, num_bytes=num_bytes)


def _gguf_files(weights: WeightSummary | None) -> tuple[WeightNeed, ...]:
    if weights is None:  # a part is missing, and each says its own types only
        return (WeightNeed(format="gguf", is_quantized=True, is_readable=True),)
    return tuple(_gguf(name, share.num_bytes) for name, share in weights.formats.items())


def _gguf(name: str, num_bytes: int) -> WeightNeed:
    if dtype := _PLAIN.get(name):
        return _plain(dtype, num_bytes)
    from dougong.checkpoint.dequantize import is_readable  # torch, for these files only

    return WeightNeed(
        format=name.lower(),
        is_quantized=True,
        is_readable=is_readable(name),
        num_bytes=num_bytes,
        scale_layout=_GGUF_LAYOUTS.get(name, ""),
    )


def _declared(quantization: Mapping[str, Any], weights: WeightSummary) -> tuple[WeightNeed, ...]:
    """Everything that is no plain float belongs to the quantized weights."""
    plain = [
        _plain(_PLAIN[name], share.num_bytes)
        for name, share in weights.formats.items()
        if name in _PLAIN
    ]
    packed = sum(share.num_bytes for name, share in weights.formats.items() if name not in _PLAIN)
    found = [describe_quantization(quantization, packed), *plain]
    return tuple(sorted(found, key=lambda need: need.num_bytes or 0, reverse=True))


def _undeclared(weights: WeightSummary) -> tuple[WeightNeed, ...]:
    has_scales = any(name.endswith(_SCALE_NAMES) for name in weights.names)
    found = []
    for name, share in weights.formats.items():
        dtype = _PLAIN.get(name) or _SMALL_FLOATS.get(name) or name.lower()
        is_scaled = name in _SMALL_FLOATS and has_scales
        found.append(
            WeightNeed(
                format=dtype,
                is_quantized=is_scaled,
                is_readable=not is_scaled,
                num_bytes=share.num_bytes,
                scale_layout="tensors beside the weights; the config says nothing of them"
                if is_scaled
                else "",
            )
        )
    return tuple(found)


_GGUF_LAYOUTS: Mapping[str, str] = {
    "Q4_0": "group 32, float16 scale",
    "Q4_1": "group 32, float16 scale and minimum",
    "Q5_0": "group 32, float16 scale",
    "Q5_1": "group 32, float16 scale and minimum",
    "Q8_0": "group 32, float16 scale",
    "Q2_K": "group 16 of 256, 4-bit scale and minimum, float16 above them",
    "Q3_K": "group 16 of 256, 6-bit scale, float16 above it",
    "Q4_K": "group 32 of 256, 6-bit scale and minimum, float16 above them",
    "Q5_K": "group 32 of 256, 6-bit scale and minimum, float16 above them",
    "Q6_K": "group 16 of 256, 8-bit scale, float16 above it",
    "IQ4_NL": "group 32, float16 scale, values from a table",
    "IQ4_XS": "group 32 of 256, 6-bit scale, float16 above it, values from a table",
    "MXFP4": "group 32, scale a power of two in uint8",
}

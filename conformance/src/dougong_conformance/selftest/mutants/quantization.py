"""Broken numbers of few bits.

No weight is computed in its stored form yet, so Q01 to Q03 stand in ``dequantize``, and Q08, which
kept a dense copy, stores wider numbers than the format says.
"""

from __future__ import annotations

from typing import Any

import torch
from dougong.contracts import QuantizationSupport

from dougong_conformance.selftest.changes import around_host, with_claims
from dougong_conformance.selftest.mutant import mutant
from dougong_conformance.session import PluginUnderTest

Tensor = torch.Tensor


@mutant("Q01", "the minimum of a group is ignored", killer="quantization.dequantize")
def _q01(plugin: PluginUnderTest) -> PluginUnderTest:
    def change(native: Any, op: Any, values: Tensor, scale: Tensor, minimum: Tensor | None) -> Any:
        return native(values, scale, None if minimum is None else minimum * 0)

    return around_host(plugin, "dequantize", change)


@mutant("Q02", "the high half of a byte is taken first", killer="quantization.dequantize")
def _q02(plugin: PluginUnderTest) -> PluginUnderTest:
    def change(native: Any, op: Any, values: Tensor, scale: Tensor, minimum: Tensor | None) -> Any:
        if op.layout.is_packed:
            values = (values >> 4) | ((values & 15) << 4)
        return native(values, scale, minimum)

    return around_host(plugin, "dequantize", change)


@mutant("Q03", "a scale serves two groups", killer="quantization.dequantize")
def _q03(plugin: PluginUnderTest) -> PluginUnderTest:
    def change(native: Any, op: Any, values: Tensor, scale: Tensor, minimum: Tensor | None) -> Any:
        if scale.dim() > 1 and scale.shape[-1] > 1:
            scale = scale[..., ::2].repeat_interleave(2, dim=-1)
        return native(values, scale, minimum)

    return around_host(plugin, "dequantize", change)


@mutant("Q04", "all rows share the largest row's scale", killer="quantization.int8")
def _q04(plugin: PluginUnderTest) -> PluginUnderTest:
    def change(native: Any, op: Any, x: Tensor) -> Any:
        values, scale, minimum = native(x)
        if op.format != "int8_token":
            return values, scale, minimum
        same = scale.amax().expand_as(scale).contiguous()
        units = x.float() / torch.where(same == 0, torch.full_like(same, torch.inf), same)
        return units.round().clamp(-127, 127).to(torch.int8), same, minimum

    return around_host(plugin, "quantize", change)


@mutant("Q05", "halves are rounded away from zero", killer="quantization.rounding")
def _q05(plugin: PluginUnderTest) -> PluginUnderTest:
    def change(native: Any, op: Any, x: Tensor) -> Any:
        values, scale, minimum = native(x)
        if op.format != "int8_token":
            return values, scale, minimum
        units = x.float() / torch.where(scale == 0, torch.full_like(scale, torch.inf), scale)
        away = units.sign() * (units.abs() + 0.5).floor()
        return away.clamp(-127, 127).to(torch.int8), scale, minimum

    return around_host(plugin, "quantize", change)


@mutant("Q06", "a group of zeros has NaN for its scale", killer="quantization.zero_groups")
def _q06(plugin: PluginUnderTest) -> PluginUnderTest:
    def change(native: Any, op: Any, x: Tensor) -> Any:
        values, scale, minimum = native(x)
        if op.layout.is_static:
            return values, scale, minimum
        return values, torch.where(scale == 0, torch.full_like(scale, torch.nan), scale), minimum

    return around_host(plugin, "quantize", change)


@mutant("Q07", "8-bit floats end at 240", killer="quantization.fp8")
def _q07(plugin: PluginUnderTest) -> PluginUnderTest:
    def change(native: Any, op: Any, x: Tensor) -> Any:
        values, scale, minimum = native(x)
        if values.dtype is torch.float8_e4m3fn:
            values = values.float().clamp(-240, 240).to(values.dtype)
        return values, scale, minimum

    return around_host(plugin, "quantize", change)


@mutant("Q08", "values of four bits take a byte each", killer="quantization.int4")
def _q08(plugin: PluginUnderTest) -> PluginUnderTest:
    def change(native: Any, op: Any, x: Tensor) -> Any:
        values, scale, minimum = native(x)
        if op.layout.is_packed:
            groups = values.view(*values.shape[:-1], -1, 16)
            values = torch.cat((groups & 15, groups >> 4), dim=-1).flatten(-2)
        return values, scale, minimum

    return around_host(plugin, "quantize", change)


@mutant("Q09", "NaN counts as zero when a scale is taken", killer="quantization.nonfinite")
def _q09(plugin: PluginUnderTest) -> PluginUnderTest:
    return around_host(
        plugin,
        "quantize",
        lambda native, op, x: native(torch.where(torch.isfinite(x), x, torch.zeros_like(x))),
    )


@mutant(
    "Q10", "codes of four bits are made for one minimum per row", killer="quantization.round_trip"
)
def _q10(plugin: PluginUnderTest) -> PluginUnderTest:
    def change(native: Any, op: Any, x: Tensor) -> Any:
        values, scale, minimum = native(x)
        if op.layout.is_packed:
            minimum = minimum.amin(dim=-1, keepdim=True).expand_as(minimum).contiguous()
        return values, scale, minimum

    # A right way back, where plain torch does not run on the device.
    plugin = around_host(plugin, "dequantize", lambda native, op, *arguments: native(*arguments))
    return around_host(plugin, "quantize", change)


@mutant(
    "Q11", "a format is claimed in one place and not in the other", killer="quantization.claims"
)
def _q11(plugin: PluginUnderTest) -> PluginUnderTest:
    one = QuantizationSupport(
        format="q4_1",
        storage="uint8",
        activation_dtypes=("float32",),
        is_native=True,
        kernel="mutant/q4_1",
    )
    return with_claims(plugin, quantization=(one,))

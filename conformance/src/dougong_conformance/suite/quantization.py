"""Checks of numbers of few bits: scales against the inputs, codes nearest, layouts to the bit."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch

from dougong_conformance.check import check
from dougong_conformance.judging import Judge
from dougong_conformance.kit.metric import F64
from dougong_conformance.kit.oracle import quantize as oracle
from dougong_conformance.outcomes import NotClaimed
from dougong_conformance.subject import Subject
from dougong_conformance.suite.op_under_test import OpUnderTest, Way, for_device

_HIDDEN = 256


class QuantizeUnderTest:
    """The op ``quantize`` in one format, by every implementation.

    Args:
        subject: The plugin.
        judge: Of the case.
        dtype: Of the input.
        format: By name.
        id: Of the check.
    """

    def __init__(
        self, subject: Subject, judge: Judge, dtype: str, format: str, id: str, **sizes: Any
    ) -> None:
        self.judge, self.subject, self.format = judge, subject, format
        self.layout = oracle.FORMATS[format]
        self.op = OpUnderTest(subject, judge, "quantize", dtype, id=id, format=format, **sizes)

    def check(self, x: torch.Tensor) -> None:
        """Finite rows: scale, minimum and codes."""
        right = oracle.quantize(x, self.format, self._static())
        for way in self.op.running_ways():
            (call,) = self.op.run(way, [[x]])
            self.compare(way, x, call, right)

    def compare(
        self, way: Way, x: torch.Tensor, call: Mapping[str, Any], right: oracle.Quantized
    ) -> None:
        """One call's results."""
        at = f"quantize to {self.format} by {way}"
        values, scale, minimum = call["outputs"]
        self.check_storage(at, x, values, scale, minimum)
        if right.scale is not None:
            self.judge.close(scale, for_device(right.scale, self.subject), name="scale")
        if right.minimum is not None:
            self.judge.exact(minimum, right.minimum, f"minimum of {at}")
        numbers = oracle.unpack_int4(values) if self.layout.is_packed else values
        found, limit = numbers.float().to(F64), self.layout.limit
        wanted = right.in_units.clamp(0 if self.layout.is_packed else -limit, limit)
        allowed = oracle.half_step(wanted, self.format) + right.spread + 2.0**-40
        off = (found - wanted).abs() - allowed
        if bool((off > 0).any()) or bool(found.isnan().any()):
            row = int(off.nan_to_num(nan=9e9).flatten(0, -2).amax(dim=-1).argmax())
            worst = int(off.flatten(0, -2)[row].nan_to_num(nan=9e9).argmax())
            self.judge.fail(
                f"{at}: element {worst} of row {row} is stored as "
                f"{found.flatten(0, -2)[row, worst].item():g}; in units of the scale it is "
                f"{wanted.flatten(0, -2)[row, worst].item():.6g}"
            )

    def check_storage(
        self,
        at: str,
        x: torch.Tensor,
        values: torch.Tensor,
        scale: torch.Tensor,
        minimum: torch.Tensor | None,
    ) -> None:
        """Dtypes and shapes are the format's: no number takes more memory than it says."""
        layout, hidden = self.layout, x.shape[-1]
        groups = hidden // (layout.group_size or hidden)
        width = hidden // 2 if layout.is_packed else hidden
        small = torch.float16 if layout.is_packed else torch.float32
        scale_shape = [1] if layout.is_static else [*x.shape[:-1], groups]
        wanted: list[tuple[str, torch.Tensor | None, torch.dtype, list[int]]] = [
            ("values", values, layout.values, [*x.shape[:-1], width]),
            ("scale", scale, small, scale_shape),
        ]
        if layout.is_packed:
            wanted.append(("minimum", minimum, small, scale_shape))
        else:
            self.judge.require(minimum is None, f"{at} gave a minimum, which the format has not")
        for name, found, dtype, shape in wanted:
            is_right = (
                isinstance(found, torch.Tensor)
                and found.dtype is dtype
                and list(found.shape) == shape
            )
            seen = (
                f"{found.dtype} {list(found.shape)}" if isinstance(found, torch.Tensor) else found
            )
            self.judge.require(
                is_right, f"{name} of {at} is {seen}; the format says {dtype} {shape}"
            )

    def _static(self) -> float:
        return float(self.op.weights["scale"]) if self.layout.is_static else 1.0


def _rows(subject: Subject, judge: Judge, dtype: str, format: str, id: str) -> QuantizeUnderTest:
    return QuantizeUnderTest(subject, judge, dtype, format, id, hidden_size=_HIDDEN)


def _each(judge: Judge, formats: Iterable[str], run: Callable[[str], None]) -> None:
    """Every format that anybody computes here; none: nothing is claimed."""
    refused = []
    asked = list(formats)
    for format in asked:
        try:
            run(format)
        except NotClaimed as exc:
            refused.append(exc.reason)
    if len(refused) == len(asked):
        judge.not_claimed(refused[0])
    for reason in refused:
        judge.warn(reason)


@check("quantization.int8", per_dtype=True)
def int8(subject: Subject, judge: Judge, dtype: str) -> None:
    """Per row or per group of 32, the scale is the largest size over 127, of the input itself."""

    def run(format: str) -> None:
        under_test = _rows(subject, judge, dtype, format, "quantization.int8")
        for count in (1, 2, 3, 7, 8):
            (x,) = under_test.op.arguments(count)
            x[0] *= 100
            under_test.check(x)

    _each(judge, ("int8_token", "int8_group32"), run)


@check("quantization.fp8", per_dtype=True)
def fp8(subject: Subject, judge: Judge, dtype: str) -> None:
    """Up to 448 either way; what is beyond, with a static scale, becomes that."""

    def run(format: str) -> None:
        under_test = _rows(subject, judge, dtype, format, "quantization.fp8")
        (x,) = under_test.op.arguments(4)
        x[0, :4] = torch.tensor([20000.0, -20000.0, 200.0, 0.0])
        x[1] *= 30
        under_test.check(x)

    _each(judge, ("fp8_e4m3_token", "fp8_e4m3_group128", "fp8_e4m3_static"), run)


@check("quantization.int4", per_dtype=True)
def int4(subject: Subject, judge: Judge, dtype: str) -> None:
    """Groups of 32 with a minimum; two values per byte, a group's first half in the low halves."""
    under_test = _rows(subject, judge, dtype, "int4_group32", "quantization.int4")
    for count in (1, 3, 8):
        (x,) = under_test.op.arguments(count)
        # Groups that differ in size and place, and a value of each code somewhere.
        x *= torch.arange(1, _HIDDEN + 1).div(32, rounding_mode="floor").add(1).to(x.dtype)
        x += 2.0
        under_test.check(x)


@check("quantization.rounding", per_dtype=True)
def rounding(subject: Subject, judge: Judge, dtype: str) -> None:
    """Halves go to the even neighbour."""
    halves = torch.tensor([0.5, 1.5, 2.5, -0.5, -1.5, 3.5, 4.5, 127.0] * 32)
    under_test = _rows(subject, judge, dtype, "int8_token", "quantization.rounding")
    x = halves.to(under_test.op.draw.dtype).unsqueeze(0)
    even = halves.double().round().to(torch.int8).unsqueeze(0)
    for way in under_test.op.running_ways():
        (call,) = under_test.op.run(way, [[x]])
        judge.exact(call["outputs"][0], even, f"values of halves by {way}")


@check("quantization.zero_groups", per_dtype=True)
def zero_groups(subject: Subject, judge: Judge, dtype: str) -> None:
    """A group of zeros has scale 0 and values 0, and comes back as zeros."""

    def run(format: str) -> None:
        under_test = _rows(subject, judge, dtype, format, "quantization.zero_groups")
        (x,) = under_test.op.arguments(3)
        x[1] = 0
        x[2, :32] = 0
        under_test.check(x)

    _each(judge, oracle.FORMATS, run)


@check("quantization.nonfinite", per_dtype=True)
def nonfinite(subject: Subject, judge: Judge, dtype: str) -> None:
    """A group with NaN or infinity shows it when it comes back, and no other group does."""

    def run(format: str) -> None:
        layout = oracle.FORMATS[format]
        op = OpUnderTest(
            subject, judge, "quantize", dtype, id="quantization.nonfinite", format=format
        )
        (x,) = op.arguments(4)
        x[1, 3], x[2, 40] = torch.nan, torch.inf
        group = layout.group_size or _HIDDEN
        spoilt = torch.zeros(4, _HIDDEN, dtype=torch.bool)
        for row, column in ((1, 3), (2, 40)):
            start = column // group * group
            spoilt[row, start : start + group] = True
        for way in op.running_ways():
            (call,) = op.run(way, [[x]])
            scale, minimum = call["outputs"][1:]
            tells = ~torch.isfinite(scale.float())
            if minimum is not None:
                tells |= ~torch.isfinite(minimum.float())
            found = tells.repeat_interleave(group, dim=-1)
            judge.require(
                torch.equal(found, spoilt),
                f"quantize to {format} by {way}: groups whose scale or minimum is not finite are "
                "not those with a number that is not finite",
            )

    scaled = [name for name, layout in oracle.FORMATS.items() if not layout.is_static]
    _each(judge, scaled, run)


@check("quantization.dequantize", per_dtype=True)
def dequantize(subject: Subject, judge: Judge, dtype: str) -> None:
    """Values times scale, plus the minimum where there is one, rounded once."""

    def run(format: str) -> None:
        op = OpUnderTest(
            subject,
            judge,
            "dequantize",
            dtype,
            id=f"quantization.dequantize {format}",
            format=format,
        )
        calls = [op.arguments(count) for count in (1, 2, 3, 7, 8)]
        for way in op.running_ways():
            taken = [one for one in calls if way.takes(one[0].shape[0])]
            for call, arguments in zip(op.run(way, taken), taken, strict=True):
                values, scale, minimum = arguments
                expected = oracle.dequantize(values, scale, minimum, format, op.draw.dtype)
                judge.close(
                    call["outputs"][0], for_device(expected, subject), name=f"dequantize {format}"
                )

    _each(judge, oracle.FORMATS, run)


@check("quantization.round_trip", per_dtype=True)
def round_trip(subject: Subject, judge: Judge, dtype: str) -> None:
    """What was stored comes back within a step of its group, computed as planned."""

    def run(format: str) -> None:
        layout = oracle.FORMATS[format]
        under_test = _rows(subject, judge, dtype, format, "quantization.round_trip")
        back = OpUnderTest(
            subject, judge, "dequantize", dtype, id="quantization.round_trip", format=format
        )
        under_test.op.running_ways()
        back.running_ways()
        (x,) = under_test.op.arguments(3)
        right = oracle.quantize(x, format, 0.25)
        (call,) = under_test.op.run(Way(""), [[x]])
        (again,) = back.run(Way(""), [call["outputs"]])
        groups = layout.group_size or _HIDDEN
        step = torch.full_like(right.in_units, 0.25)
        if right.scale is not None:
            step = right.scale.value.repeat_interleave(groups, dim=-1)
        half = oracle.half_step(right.in_units, format) + right.spread
        room = half * step * 1.01 + x.to(F64).abs() * 2.0**-7 + 1e-3 * step
        off = ((again["outputs"][0].to(F64) - x.to(F64)).abs() / room).max()
        judge.at_most(f"{format}: distance after storing, in half steps", float(off), 2.0)

    _each(judge, oracle.FORMATS, run)


@check("quantization.claims")
def claims(subject: Subject, judge: Judge) -> None:
    """What the platform says of weight formats agrees in both places, and names real dtypes."""
    said = subject.call("quantization.claimed")
    claimed = subject.facts.claims["quantization"]
    if not said and not claimed:
        judge.not_claimed("no weight format is claimed")
    by_format = {one["format"]: one for one in said}
    for one in claimed:
        judge.require(
            by_format.get(one["format"]) == one,
            f"claims and get_supported_quantization() differ about {one['format']}",
        )
    for one in said:
        judge.require(
            isinstance(getattr(torch, one["storage"], None), torch.dtype),
            f"format {one['format']} is stored as {one['storage']!r}, which is no dtype",
        )
        judge.require(
            bool(set(one["activation_dtypes"]) & set(subject.facts.dtypes)),
            f"format {one['format']} takes {one['activation_dtypes']}, none of which is claimed",
        )

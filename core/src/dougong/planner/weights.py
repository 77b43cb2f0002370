"""What becomes of the weights, per format: computed as stored, converted, or refused."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from dougong.checkpoint.gguf_elements import elements_of_gguf
from dougong.config.memory import GIB
from dougong.contracts import QuantizationSupport, dtype_bytes
from dougong.describe import WeightNeed
from dougong.planner.execution_plan import FallbackLevel, WeightPlan
from dougong.planner.findings import Findings, nested
from dougong.planner.inputs import PlanInputs
from dougong.planner.provenance import origins
from dougong.planner.stored_weights import StoredPlan

AS_STORED = "as stored"
PARTLY = "partly as stored"
CONVERTED = "converted at load"
DEQUANTIZED = "dequantized at load"

_STORAGE_NAMES = {"F64": "float64", "F32": "float32", "F16": "float16", "BF16": "bfloat16"}
"""What weight files call plain dtypes."""


def plan_weights(
    inputs: PlanInputs, findings: Findings, stored: StoredPlan
) -> tuple[WeightPlan, ...]:
    """One per format; what cannot be computed is refused with the formats that can."""
    planned = [_plan_one(need, inputs, findings, stored) for need in inputs.needs.weights]
    return tuple(plan for plan in planned if plan is not None)


def loaded_bytes(inputs: PlanInputs, weights: Sequence[WeightPlan]) -> int | None:
    """Bytes the weights take at least, once loaded; ``None``: nobody can say yet."""
    itemsize = dtype_bytes(inputs.config.compute.dtype)
    by_format = {need.format: need for need in inputs.needs.weights}
    kept = [plan for plan in weights if plan.where in (AS_STORED, PARTLY)
            and by_format[plan.format].is_quantized]  # fmt: skip
    if not kept:
        return inputs.needs.num_parameters * itemsize
    if any(plan.stored_bytes is None for plan in weights):
        return None
    total = 0
    for plan in weights:
        elements = _plain_elements(by_format[plan.format])
        if elements is not None:
            total += elements * itemsize
        elif plan.where == AS_STORED:
            total += plan.stored_bytes or 0
        else:
            total += _partly_kept_bytes(plan, itemsize)
    return total


def _partly_kept_bytes(plan: WeightPlan, itemsize: int) -> int:
    """Of a format of which some or all becomes plain."""
    num_bytes = plan.stored_bytes or 0
    plain = elements_of_gguf(plan.format, num_bytes) or 0
    return round(plan.kept_share * num_bytes + (1 - plan.kept_share) * plain * itemsize)


def plain_dtype(need: WeightNeed) -> str | None:
    """The dtype that a format is, as torch names it; ``None``: it is quantized."""
    return None if need.is_quantized else _STORAGE_NAMES.get(need.format.upper(), need.format)


def _plain_elements(need: WeightNeed) -> int | None:
    """Elements of weights in a plain dtype; ``None``: they are not, or nobody knows."""
    dtype = plain_dtype(need)
    try:
        itemsize = None if dtype is None else dtype_bytes(dtype)
    except ValueError:  # a dtype of tables and indices, which nothing computes in
        return None
    return None if itemsize is None or need.num_bytes is None else need.num_bytes // itemsize


def _plan_one(
    need: WeightNeed, inputs: PlanInputs, findings: Findings, stored: StoredPlan
) -> WeightPlan | None:
    dtype = inputs.config.compute.dtype
    stored_as = plain_dtype(need)
    if stored_as is not None:
        is_same = stored_as == dtype
        return WeightPlan(
            format=need.format,
            stored_bytes=need.num_bytes,
            computed_as=dtype,
            where=AS_STORED if is_same else CONVERTED,
            reason="" if is_same else f"dtype={dtype} is computed",
        )
    if share := stored.shares.get(need.format.lower(), 0.0):
        return _stored(need, share, inputs, findings, stored)
    objections = _told_once(stored.why_not.get(need.format.lower(), {}))
    for support in inputs.candidates.quantization:
        if _is_same_format(support.format, need.format):
            objection = _objection(support, need, inputs)
            if not objection:
                return WeightPlan(
                    format=need.format,
                    stored_bytes=need.num_bytes,
                    computed_as=need.format,
                    where=AS_STORED,
                    kernel=support.kernel,
                    scale_layout=support.scale_layout or need.scale_layout,
                )
            objections[support.kernel or support.format] = objection
    reason = _why_not(need, inputs, objections)
    if need.is_readable:
        findings.fall_back(
            FallbackLevel.PATH, f"weights {need.format}", reason, _cost_hint(need, inputs)
        )
        return WeightPlan(
            format=need.format,
            stored_bytes=need.num_bytes,
            computed_as=dtype,
            where=DEQUANTIZED,
            scale_layout=need.scale_layout,
            reason=reason,
        )
    findings.refuse(nested(_refusal_head(need, inputs), _refusal_lines(inputs, objections)))
    return None


def _stored(
    need: WeightNeed, share: float, inputs: PlanInputs, findings: Findings, stored: StoredPlan
) -> WeightPlan:
    """Weights that kernels read as they are, some of them or all."""
    name = need.format.lower()
    reason = "; ".join(
        f"{count} of them: {why}" for why, count in stored.why_not.get(name, {}).items()
    )
    if reason:
        plain = elements_of_gguf(need.format, need.num_bytes or 0) or 0
        hint = f"{_gib(round((1 - share) * plain) * dtype_bytes(inputs.config.compute.dtype))}"
        findings.fall_back(
            FallbackLevel.PATH, f"weights {need.format}", reason, f"these take {hint} once loaded"
        )
    return WeightPlan(
        format=need.format,
        stored_bytes=need.num_bytes,
        computed_as=need.format,
        where=PARTLY if reason else AS_STORED,
        kernel=", ".join(stored.kernels[name]),
        scale_layout=need.scale_layout,
        reason=reason,
        kept_share=share,
    )


def _told_once(why_not: Mapping[str, int]) -> dict[str, str]:
    """Reasons that name their kernel, by that name."""
    split = (one.partition(": ") for reason in why_not for one in reason.split("; "))
    return {name: why for name, _, why in split if why}


def _objection(support: QuantizationSupport, need: WeightNeed, inputs: PlanInputs) -> str:
    """Why one kernel does not compute the stored form; empty: it does."""
    dtype, kernel = inputs.config.compute.dtype, support.kernel
    reasons = []
    if kernel in inputs.candidates.failed:
        reasons.append(f"failed at its first use: {inputs.candidates.failed[kernel]}")
    if not _is_kept(need.format, inputs):
        reasons.append("this version of the core hands kernels plain weights only")
    if not support.is_native:
        reasons.append(f"it dequantizes {support.dequantized}")
    if dtype not in support.activation_dtypes:
        reasons.append(f"dtype {dtype}; takes {', '.join(support.activation_dtypes) or 'none'}")
    return "; ".join(reasons)


def _why_not(need: WeightNeed, inputs: PlanInputs, objections: dict[str, str]) -> str:
    told = "; ".join(f"{name}: {why}" for name, why in objections.items())
    reason = told or f"platform {inputs.platform} has no kernel for {need.format}"
    return reason + _origin(need, inputs)


def _origin(need: WeightNeed, inputs: PlanInputs) -> str:
    """Where the format came from, in parentheses; what is said of the model is said as that.

    A conversion has one name, and its files may hold several formats beside it.
    """
    origin = origins(inputs).get("weight_format")
    if not origin:
        return ""
    is_alone = sum(one.is_quantized for one in inputs.needs.weights) == 1
    is_named = need.format.casefold() in origin.casefold()
    return f" ({origin})" if is_alone or is_named else f" (as a whole, {origin})"


def _is_kept(name: str, inputs: PlanInputs) -> bool:
    return any(_is_same_format(name, kept) for kept in inputs.candidates.kept_formats)


def _is_same_format(one: str, other: str) -> bool:
    return one.casefold().replace("-", "_") == other.casefold().replace("-", "_")


def _refusal_head(need: WeightNeed, inputs: PlanInputs) -> str:
    options = ", ".join(f"{name}={value}" for name, value in need.options.items())
    return (
        f"The weights are stored as {need.format}" + (f" with {options}" if options else "")
        + _origin(need, inputs)
        + f", which platform {inputs.platform} does not compute in {inputs.config.compute.dtype} "
        "and the core cannot turn into plain weights. Use a checkpoint in another format:"
    )  # fmt: skip


def _refusal_lines(inputs: PlanInputs, objections: dict[str, str]) -> Iterator[str]:
    yield from (f"{name}: {why}" for name, why in objections.items())
    dtype = inputs.config.compute.dtype
    native = [one.format for one in inputs.candidates.quantization
              if one.is_native and dtype in one.activation_dtypes
              and _is_kept(one.format, inputs)]  # fmt: skip
    takes = dict.fromkeys((*inputs.capabilities.claims.dtypes, *native))
    yield f"platform {inputs.platform} takes {', '.join(takes)}"
    reads = dict.fromkeys(one for one in inputs.readable_formats if one not in takes)
    if reads:
        yield f"the core reads {', '.join(reads)}, and makes plain weights of them at load"


def _cost_hint(need: WeightNeed, inputs: PlanInputs) -> str:
    """Bytes of the weights of one format before and after, as far as they are known."""
    itemsize = dtype_bytes(inputs.config.compute.dtype)
    if (elements := _quantized_elements(need, inputs)) is None:
        together = _gib(_all_quantized_elements(inputs) * itemsize)
        return f"with the model's other quantized weights they take {together} once loaded"
    after = elements * itemsize
    if not need.num_bytes:
        return f"they take {_gib(after)} once loaded"
    times = f"{after / need.num_bytes:.1f} times as much"
    return f"{_gib(need.num_bytes)} in the files become {_gib(after)}, {times}"


def _quantized_elements(need: WeightNeed, inputs: PlanInputs) -> int | None:
    """Weights of one format; ``None``: nobody can say how many are its."""
    if len([one for one in inputs.needs.weights if one.is_quantized]) == 1:
        return _all_quantized_elements(inputs)
    return None if need.num_bytes is None else elements_of_gguf(need.format, need.num_bytes)


def _all_quantized_elements(inputs: PlanInputs) -> int:
    plain = sum(_plain_elements(one) or 0 for one in inputs.needs.weights)
    return max(0, inputs.needs.num_parameters - plain)


def _gib(num_bytes: int) -> str:
    return f"{num_bytes / GIB:.2f} GiB"

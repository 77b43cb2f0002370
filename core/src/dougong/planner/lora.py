"""The adapter part of a plan: who computes them, what they take, or why there are none."""

from __future__ import annotations

from dougong.contracts import LoRAAssignment
from dougong.contracts.kv_cache import dtype_bytes
from dougong.planner.execution_plan import LoRAPlan
from dougong.planner.findings import Findings
from dougong.planner.inputs import PlanInputs


def plan_lora(inputs: PlanInputs, findings: Findings) -> LoRAPlan:
    """Adapters as they were asked for; a platform without any, or a model without a projection that
    takes one, is refused where they were."""
    wrapper, asked = inputs.candidates.lora_wrapper, inputs.config.lora
    why_not = _why_not(inputs)
    if asked is None:
        return LoRAPlan(wrapper=wrapper or "", reason=why_not or "not asked for (--enable-lora)")
    if why_not or wrapper is None:
        findings.refuse(f"--enable-lora was asked for, and {why_not}. Leave it out.")
        return LoRAPlan(reason=why_not)
    return LoRAPlan(
        wrapper=wrapper,
        reason="asked for",
        num_bytes=lora_bytes(inputs),
        assignment=LoRAAssignment(
            wrapper=wrapper, max_loras=asked.max_loras, max_rank=asked.max_rank
        ),
    )


def lora_bytes(inputs: PlanInputs) -> int:
    """Device memory of all slots; 0 without adapters."""
    asked = inputs.config.lora
    if asked is None:
        return 0
    elements = asked.max_loras * asked.max_rank * inputs.needs.adapter_elements
    return elements * dtype_bytes(inputs.config.compute.dtype)


def _why_not(inputs: PlanInputs) -> str:
    if inputs.candidates.lora_wrapper is None:
        return (
            f"platform {inputs.platform} computes no adapters "
            "(Platform.get_punica_wrapper names none)"
        )
    if inputs.config.pooling is not None:
        return "this engine embeds texts, which takes no adapters in this version"
    if inputs.needs.ops and not inputs.needs.adapter_elements:
        return f"{inputs.needs.architecture} has no projection that takes one"
    return ""

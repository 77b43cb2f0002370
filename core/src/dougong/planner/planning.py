"""The planner: every part in turn, all problems in one refusal."""

from __future__ import annotations

from dougong.config.decision import Decision
from dougong.planner import attention as attention_part
from dougong.planner.execution_plan import (
    AttentionPlan,
    ExecutionPlan,
    FallbackLevel,
    KVCachePlanned,
)
from dougong.planner.execution_way import plan_execution
from dougong.planner.findings import Findings
from dougong.planner.inputs import PlanInputs
from dougong.planner.kv_cache import plan_kv_cache
from dougong.planner.lora import plan_lora
from dougong.planner.mode import captures_attention, plan_mode
from dougong.planner.ops import find_unmatched, plan_ops
from dougong.planner.stored_weights import plan_stored
from dougong.planner.weights import plan_weights


def plan(inputs: PlanInputs) -> ExecutionPlan:
    """What will run. Pure: the same inputs give the same plan.

    Raises:
        ConfigError: Something cannot work, or ``is_strict`` and there is a fallback; every problem
            is in the one message, each with the option, its value and every candidate's reason.
        PluginError: A backend raised when it was asked, or the platform proposed what cannot work.
    """
    config, candidates = inputs.config, inputs.candidates
    findings = Findings(
        f"{config.model.reference} cannot run as asked on platform {inputs.platform}",
        inputs.platform,
    )
    chosen = attention_part.choose(inputs, findings)
    execution = plan_execution(inputs, findings)
    mode = plan_mode(inputs, chosen, findings)
    stored = plan_stored(inputs)
    inputs = stored.inputs
    ops = plan_ops(inputs, findings)
    weights = plan_weights(inputs, findings, stored)
    lora = plan_lora(inputs, findings)
    attention: tuple[AttentionPlan, ...] = ()
    decisions = inputs.decisions
    block_size = config.kv_cache.block_size
    kv_cache = KVCachePlanned(
        dtype=config.kv_cache.dtype, block_size=block_size, block_bytes=0, padding_bytes=0
    )
    if chosen is not None:
        attention = attention_part.assign(
            chosen,
            inputs.platform,
            config.scheduler.max_num_batched_tokens,
            needs_graph=captures_attention(mode),
        )
        kv_cache = plan_kv_cache(inputs, attention, weights, chosen.terms.block_size, findings)
        decisions = _settle(decisions, attention_part.block_size_decision(chosen, block_size))
    _note_platform_fallback(inputs, findings)
    findings.check(is_strict=inputs.is_strict)
    report = candidates.kernels
    return ExecutionPlan(
        model=config.model.reference,
        architecture=inputs.needs.architecture,
        dtype=config.compute.dtype,
        platform=inputs.platform,
        platform_wheel=inputs.platform_wheel,
        platform_reasons=inputs.platform_reasons,
        arch=inputs.capabilities.facts.arch,
        device=inputs.capabilities.facts.name,
        is_generic=inputs.capabilities.claims.is_generic,
        attention=attention,
        kv_cache=kv_cache,
        ops=ops,
        weights=weights,
        stored=stored.stored,
        execution=execution,
        mode=mode,
        lora=lora,
        decisions=decisions,
        fallbacks=findings.ordered_fallbacks(),
        unmatched=find_unmatched(inputs),
        origins={one.name: one.origin for one in candidates.ops},
        kernels_loaded=None if report is None else report.loaded,
        kernels_missing={} if report is None else dict(report.missing),
        choices=dict(inputs.choices),
        checkpoint=dict(inputs.checkpoint),
        notes=(*candidates.notes, *inputs.notes),
    )


def _settle(decisions: tuple[Decision, ...], later: Decision | None) -> tuple[Decision, ...]:
    """With a value that is known better now."""
    if later is None:
        return decisions
    kept = tuple(later if one.field == later.field else one for one in decisions)
    return kept if later in kept else (*kept, later)


def _note_platform_fallback(inputs: PlanInputs, findings: Findings) -> None:
    if inputs.platforms_not_here:
        told = (f"{name}: {why}" for name, why in inputs.platforms_not_here.items())
        findings.fall_back(
            FallbackLevel.PLATFORM,
            f"platform {inputs.platform}",
            "; ".join(told),
            "nothing of this machine but its processors computes",
        )

"""Plugins whose engine gives other answers once requests are cut, cached, preempted or left."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from dougong_conformance.selftest.mutant import mutant
from dougong_conformance.selftest.reshape import with_kernel, with_platform
from dougong_conformance.selftest.steps import with_common, with_lengths, with_new, with_steps
from dougong_conformance.session import PluginUnderTest


@mutant(
    "E01",
    "blocks that come from the prefix cache are looked up one too far",
    killer="engine.prefix_cache_equality",
)
def e01(plugin: PluginUnderTest) -> PluginUnderTest:
    def change(request: Any) -> Any:
        is_warm = (
            request.num_computed_tokens and len(request.token_ids) == request.num_prompt_tokens
        )
        if not is_warm:
            return request
        blocks = tuple([*one[1:2], *one[1:]] if len(one) > 1 else one for one in request.block_ids)
        return replace(request, block_ids=blocks)

    return with_new(plugin, change)


@mutant(
    "E02",
    "what is computed anew after a preemption starts one token late",
    killer="engine.preemption_equality",
)
def e02(plugin: PluginUnderTest) -> PluginUnderTest:
    def change(request: Any) -> Any:
        if len(request.token_ids) == request.num_prompt_tokens:
            return request
        ids = list(request.token_ids)
        return replace(request, token_ids=[*ids[1:2], *ids[1:]])

    return with_new(plugin, change)


@mutant(
    "E03",
    "a later chunk of a prompt does not see the first tokens",
    killer="engine.chunked_equals_whole",
)
def e03(plugin: PluginUnderTest) -> PluginUnderTest:
    def change(common: Any) -> Any:
        import torch

        starts = common.cu_seqlens_q_cpu
        counts = (starts[1:] - starts[:-1]).clamp(min=0)
        lengths = common.seq_lens_cpu
        is_later = (counts > 1) & (lengths > counts)
        if not bool(is_later.any()):
            return common
        return with_lengths(common, torch.where(is_later, counts.to(lengths.dtype), lengths))

    return with_common(plugin, change)


@mutant(
    "W07",
    "requests that were aborted keep their place in the worker",
    killer="engine.abort_frees",
)
def w07(plugin: PluginUnderTest) -> PluginUnderTest:
    return with_steps(plugin, lambda step: replace(step, finished_req_ids=[]))


@mutant(
    "N43",
    "the second sequence of a batch reads the first one's blocks",
    killer="engine.concurrent_equals_sequential",
)
def n43(plugin: PluginUnderTest) -> PluginUnderTest:
    def change(common: Any) -> Any:
        if common.num_reqs < 4 or int(common.seq_lens_cpu.min()) < 2:
            return common
        common.block_table[1].copy_(common.block_table[0])
        return common

    return with_common(plugin, change)


@mutant(
    "N44",
    "logits come from bfloat16 in every dtype",
    killer="engine.logits_obey_the_law",
    dtype="float32",
)
def n44(plugin: PluginUnderTest) -> PluginUnderTest:
    import torch

    def lm_head(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        return (x.bfloat16() @ weight.bfloat16().t()).float()

    return with_kernel(plugin, "lm_head", lm_head)


@mutant(
    "N45",
    "greedy requests draw with a temperature of one half",
    killer="engine.greedy_equality",
)
def n45(plugin: PluginUnderTest) -> PluginUnderTest:
    import torch

    def greedy_sample(logits: torch.Tensor) -> torch.Tensor:
        steps = torch.arange(logits.shape[1], device=logits.device, dtype=torch.float32)
        noise = torch.sin(steps * 12.9898) * 0.5
        return (logits * 0.2 + noise).argmax(dim=-1)

    return with_kernel(plugin, "greedy_sample", greedy_sample)


@mutant(
    "N46",
    "what is drawn hangs on the place in the batch",
    killer="engine.seeds_repeat",
)
def n46(plugin: PluginUnderTest) -> PluginUnderTest:
    def change(step: Any) -> Any:
        moved = [
            replace(
                one,
                sampling_params=replace(
                    one.sampling_params, seed=(one.sampling_params.seed or 0) + index
                ),
            )
            if one.sampling_params.temperature > 0
            else one
            for index, one in enumerate(step.scheduled_new_reqs)
        ]
        return replace(step, scheduled_new_reqs=moved)

    return with_steps(plugin, change)


@mutant("N47", "the platform overrules a dtype that was asked for", killer="engine.reports_itself")
def n47(plugin: PluginUnderTest) -> PluginUnderTest:
    def members(good: Any) -> dict[str, Any]:
        def check_and_update_config(self: Any, config: Any) -> Any:
            from dougong.contracts import ConfigChange

            proposed = good.check_and_update_config(self, config)
            return (*proposed, ConfigChange("dtype", "bfloat16", "it is faster here"))

        return {"check_and_update_config": check_and_update_config}

    return with_platform(plugin, members)


@mutant(
    "N48",
    "decodes beside prefills are computed as if they were alone",
    killer="engine.mixed_batches",
)
def n48(plugin: PluginUnderTest) -> PluginUnderTest:
    def change(common: Any) -> Any:
        starts = common.cu_seqlens_q_cpu
        counts = starts[1:] - starts[:-1]
        if common.num_reqs < 2 or int(counts.max()) == int(counts.min()):
            return common
        import torch

        lengths = common.seq_lens_cpu
        return with_lengths(common, torch.where(counts == 1, counts.to(lengths.dtype), lengths))

    return with_common(plugin, change)


@mutant(
    "N49",
    "several sequences of one prompt share the blocks that they write",
    killer="engine.several_sequences",
)
def n49(plugin: PluginUnderTest) -> PluginUnderTest:
    first: dict[str, Any] = {}

    def change(request: Any) -> Any:
        key = str(list(request.token_ids))
        kept = first.setdefault(key, request.block_ids)
        is_other = kept is not request.block_ids
        # The first token of a twin is dropped from what it reads.
        return (
            replace(request, token_ids=[2, *list(request.token_ids)[1:]]) if is_other else request
        )

    return with_new(plugin, change)


@mutant(
    "N50",
    "one bad request ends the engine",
    killer="engine.bad_request_harms_nobody",
)
def n50(plugin: PluginUnderTest) -> PluginUnderTest:
    def change(step: Any) -> Any:
        from dougong.contracts import DeviceLost

        seen["steps"] += bool(step.scheduled_new_reqs)
        raise_it = seen["steps"] >= 1 and len(step.scheduled_new_reqs) == 3
        if raise_it:
            raise DeviceLost("the queue was closed by an earlier request", device_index=0)
        return step

    seen = {"steps": 0}
    return with_steps(plugin, change)


@mutant("N51", "the engine runs on a device of another name", killer="engine.reports_itself")
def n51(plugin: PluginUnderTest) -> PluginUnderTest:
    from dougong.contracts import Available

    from dougong_conformance.selftest.reshape import with_descriptor

    good = plugin.descriptor.probe
    turns = {"count": 0}

    def probe() -> Any:
        answer = good()
        turns["count"] += 1
        if not isinstance(answer, Available):
            return answer
        number = turns["count"]
        return Available(tuple(replace(one, name=f"{one.name} {number}") for one in answer.devices))

    return with_descriptor(plugin, probe=probe)

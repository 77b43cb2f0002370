"""Plugins whose engine mixes up what requests ask of sampling."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from dougong_conformance.selftest.mutant import mutant
from dougong_conformance.selftest.reshape import with_worker
from dougong_conformance.selftest.steps import with_new, with_outputs, with_steps
from dougong_conformance.session import PluginUnderTest


@mutant(
    "E05",
    "frequency and presence penalties are read the other way round",
    killer="engine.penalties",
)
def e05(plugin: PluginUnderTest) -> PluginUnderTest:
    def change(request: Any) -> Any:
        params = request.sampling_params
        changed = replace(
            params,
            frequency_penalty=params.presence_penalty,
            presence_penalty=params.frequency_penalty,
        )
        return replace(request, sampling_params=changed)

    return with_new(plugin, change)


@mutant(
    "E06",
    "requests that begin together share the first one's allowed tokens",
    killer="engine.mixed_sampling",
)
def e06(plugin: PluginUnderTest) -> PluginUnderTest:
    def change(step: Any) -> Any:
        new = step.scheduled_new_reqs
        asked = [one.sampling_params.allowed_token_ids for one in new]
        shared = next((one for one in asked if one is not None), None)
        if shared is None or all(one is not None for one in asked):
            return step
        params = [replace(one.sampling_params, allowed_token_ids=shared) for one in new]
        changed = [replace(one, sampling_params=own) for one, own in zip(new, params, strict=True)]
        return replace(step, scheduled_new_reqs=changed)

    return with_steps(plugin, change)


@mutant(
    "E07",
    "the log-probability of a prompt's token is that of the likeliest one",
    killer="engine.prompt_logprobs",
)
def e07(plugin: PluginUnderTest) -> PluginUnderTest:
    def likeliest(told: list[Any]) -> list[Any]:
        return [replace(one, logprob=one.top[0][1]) for one in told]

    def change(output: Any) -> Any:
        changed = {name: likeliest(told) for name, told in output.prompt_logprobs.items()}
        return replace(output, prompt_logprobs=changed)

    return with_outputs(plugin, change)


@mutant(
    "E08",
    "a request with a grammar is free of it every fourth step",
    killer="engine.structured_output",
)
def e08(plugin: PluginUnderTest) -> PluginUnderTest:
    seen = {"steps": 0}

    def members(good: Any) -> dict[str, Any]:
        def sample(self: Any, handle: Any, grammar: Any = None) -> Any:
            seen["steps"] += 1
            return good.sample(self, handle, None if seen["steps"] % 4 == 0 else grammar)

        return {"sample": sample}

    return with_worker(plugin, members)


@mutant(
    "E13",
    "after a preemption what was generated counts as the prompt",
    killer="engine.penalties",
)
def e13(plugin: PluginUnderTest) -> PluginUnderTest:
    return with_new(
        plugin, lambda request: replace(request, num_prompt_tokens=len(request.token_ids))
    )

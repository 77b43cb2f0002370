"""Broken sampling: the pieces, and torch's own ops that the core's sampler draws with."""

from __future__ import annotations

import math
from typing import Any

import torch

from dougong_conformance.selftest.changes import around_native, backwards, with_aten, with_op
from dougong_conformance.selftest.mutant import mutant
from dougong_conformance.session import PluginUnderTest

Tensor = torch.Tensor


@mutant("P01", "of equal logits the highest id wins", killer="sampling.greedy_ties")
def _p01(plugin: PluginUnderTest) -> PluginUnderTest:
    def change(native: Any, op: Any, logits: Tensor) -> Tensor:
        last: Tensor = logits.shape[-1] - 1 - native(backwards(logits))
        return last

    return around_native(plugin, "greedy_sample", change)


@mutant("P02", "seeds are ignored", killer="sampling.seeds")
def _p02(plugin: PluginUnderTest) -> PluginUnderTest:
    def search(good: Any, cumulative: Tensor, target: Tensor, *rest: Any) -> Any:
        return good(cumulative, cumulative[:, -1:] * 0.37, *rest)

    return with_aten(plugin, {"searchsorted": search})


@mutant("P03", "one token more than k stays", killer="sampling.top_k")
def _p03(plugin: PluginUnderTest) -> PluginUnderTest:
    def change(native: Any, op: Any, logits: Tensor, top_k: Tensor, top_p: Tensor) -> Any:
        return native(logits, (top_k + 1).clamp(max=logits.shape[-1]), top_p)

    return around_native(plugin, "top_k_top_p", change)


@mutant("P04", "the token that crosses p is cut", killer="sampling.top_p")
def _p04(plugin: PluginUnderTest) -> PluginUnderTest:
    def compute(op: Any, logits: Tensor, top_k: Tensor, top_p: Tensor) -> Tensor:
        ordered, _ = logits.sort(dim=-1, descending=True)
        kth = ordered.gather(1, (top_k - 1).unsqueeze(1))
        kept = ordered.masked_fill(ordered < kth, -torch.inf)
        reached = kept.softmax(dim=-1).cumsum(dim=-1)
        limit = torch.where(top_p < 1, top_p, torch.full_like(top_p, torch.inf)).unsqueeze(1)
        count = (reached <= limit).sum(dim=-1, keepdim=True).clamp(min=1)
        threshold = torch.maximum(ordered.gather(1, count - 1), kth)
        return logits.masked_fill(logits < threshold, -torch.inf)

    return with_op(plugin, "top_k_top_p", compute)


@mutant("P05", "the temperature is not applied", killer="sampling.distribution")
def _p05(plugin: PluginUnderTest) -> PluginUnderTest:
    def divide(good: Any, numbers: Tensor, divisor: Any) -> Any:
        is_by_row = isinstance(divisor, Tensor) and divisor.dim() == 2 and divisor.shape[1] == 1
        return numbers.clone() if is_by_row else good(numbers, divisor)

    return with_aten(plugin, {"div": divide})


@mutant("P06", "a fifth of the rows take the likeliest token", killer="sampling.distribution")
def _p06(plugin: PluginUnderTest) -> PluginUnderTest:
    def search(good: Any, cumulative: Tensor, target: Tensor, *rest: Any) -> Any:
        found = good(cumulative, target, *rest)
        previous = torch.cat((torch.zeros_like(cumulative[:, :1]), cumulative[:, :-1]), dim=1)
        likeliest = (cumulative - previous).argmax(dim=-1)
        found[::5, 0] = likeliest[::5]
        return found

    return with_aten(plugin, {"searchsorted": search})


@mutant("P07", "all rows use the number of the first one", killer="sampling.seeds")
def _p07(plugin: PluginUnderTest) -> PluginUnderTest:
    def search(good: Any, cumulative: Tensor, target: Tensor, *rest: Any) -> Any:
        return good(cumulative, target[:1].expand_as(target).contiguous(), *rest)

    return with_aten(plugin, {"searchsorted": search})


@mutant("P08", "a step gives the tokens of the one before", killer="sampling.each_step")
def _p08(plugin: PluginUnderTest) -> PluginUnderTest:
    kept: dict[Any, Tensor] = {}

    def change(native: Any, op: Any, logits: Tensor) -> Tensor:
        found: Tensor = native(logits)
        key = (id(op), logits.shape[0])
        before = kept.get(key, found)
        kept[key] = found.clone()
        return before

    return around_native(plugin, "greedy_sample", change)


@mutant("P09", "logprobs are those of a temperature of 2", killer="sampling.logprobs")
def _p09(plugin: PluginUnderTest) -> PluginUnderTest:
    return around_native(plugin, "logprobs", lambda native, op, logits: native(logits / 2))


@mutant("P10", "probabilities are summed in bfloat16", killer="sampling.draws")
def _p10(plugin: PluginUnderTest) -> PluginUnderTest:
    def cumsum(good: Any, numbers: Tensor, *rest: Any) -> Any:
        return (
            good(numbers, *rest).bfloat16().float()
            if numbers.is_floating_point()
            else good(numbers, *rest)
        )

    return with_aten(plugin, {"cumsum": cumsum})


@mutant("P11", "of logits equal to the last of k only the first stay", killer="sampling.top_k")
def _p11(plugin: PluginUnderTest) -> PluginUnderTest:
    def change(native: Any, op: Any, logits: Tensor, top_k: Tensor, top_p: Tensor) -> Any:
        order = logits.argsort(dim=-1, descending=True, stable=True)
        place = torch.empty_like(order).scatter_(
            1,
            order,
            torch.arange(logits.shape[1], device=logits.device).expand_as(order).contiguous(),
        )
        kept = logits.masked_fill(place >= top_k.unsqueeze(1), -torch.inf)
        return native(kept, torch.full_like(top_k, logits.shape[1]), top_p)

    return around_native(plugin, "top_k_top_p", change)


@mutant("P12", "rows that ask for no cut lose what is very unlikely", killer="sampling.no_cut")
def _p12(plugin: PluginUnderTest) -> PluginUnderTest:
    def change(native: Any, op: Any, logits: Tensor, top_k: Tensor, top_p: Tensor) -> Any:
        return native(logits, top_k, top_p.clamp(max=0.9999))

    return around_native(plugin, "top_k_top_p", change)


@mutant("P13", "presence is counted as often as a token occurs", killer="sampling.penalties")
def _p13(plugin: PluginUnderTest) -> PluginUnderTest:
    def change(
        native: Any, op: Any, logits: Tensor, in_prompt: Tensor, counts: Tensor, *rest: Any
    ) -> Any:
        repetition, frequency, presence = rest
        return native(logits, in_prompt, counts, repetition, frequency + presence, presence * 0)

    return around_native(plugin, "penalties", change)


@mutant("P14", "repetition divides logits below zero too", killer="sampling.penalties")
def _p14(plugin: PluginUnderTest) -> PluginUnderTest:
    def compute(op: Any, logits: Tensor, in_prompt: Tensor, counts: Tensor, *rest: Any) -> Tensor:
        repetition, frequency, presence = rest
        seen = in_prompt | (counts > 0)
        divided = torch.where(seen, logits / repetition.unsqueeze(1), logits)
        found: Tensor = divided - counts * frequency.unsqueeze(1)
        found = found - (counts > 0) * presence.unsqueeze(1)
        return found

    return with_op(plugin, "penalties", compute)


@mutant("P15", "tokens that are ruled out are chosen all the same", killer="sampling.suppressed")
def _p15(plugin: PluginUnderTest) -> PluginUnderTest:
    def put(good: Any, tensor: Tensor, *rest: Any) -> Any:
        return tensor if tensor.is_floating_point() else good(tensor, *rest)

    return with_aten(plugin, {"index_put_": put})


@mutant("P16", "drawn tokens go to the first rows of the step", killer="sampling.mixed_rows")
def _p16(plugin: PluginUnderTest) -> PluginUnderTest:
    def put(good: Any, tensor: Tensor, indices: Any, values: Tensor, *rest: Any) -> Any:
        if tensor.is_floating_point():
            return good(tensor, indices, values, *rest)
        tensor[: values.shape[0]].copy_(values)
        return tensor

    return with_aten(plugin, {"index_put_": put})


@mutant("P17", "reported tokens come worst first", killer="sampling.reported_logprobs")
def _p17(plugin: PluginUnderTest) -> PluginUnderTest:
    def topk(good: Any, numbers: Tensor, *rest: Any) -> Any:
        values, ids = good(numbers, *rest)
        return backwards(values), backwards(ids)

    return with_aten(plugin, {"topk": topk})


@mutant("P18", "min-p is compared in logarithms to base 2", killer="sampling.min_p")
def _p18(plugin: PluginUnderTest) -> PluginUnderTest:
    return with_aten(plugin, {"log": lambda good, numbers: good(numbers) / math.log(2)})


@mutant("P19", "a token that was generated often counts once", killer="sampling.penalised_rows")
def _p19(plugin: PluginUnderTest) -> PluginUnderTest:
    def add(good: Any, tensor: Tensor, dim: int, index: Tensor, source: Tensor, *rest: Any) -> Any:
        return tensor.index_put_((index,), source)

    return with_aten(plugin, {"index_add_": add})


@mutant("P20", "a bias takes the logit's place", killer="sampling.logit_bias")
def _p20(plugin: PluginUnderTest) -> PluginUnderTest:
    def put(good: Any, tensor: Tensor, indices: Any, values: Tensor, *rest: Any) -> Any:
        if rest and tensor.is_floating_point():
            return tensor.index_put_(tuple(indices), values)
        return good(tensor, indices, values, *rest)

    return with_aten(plugin, {"index_put_": put})


@mutant("P21", "of the rows with allowed tokens only the first is ruled", killer="sampling.allowed")
def _p21(plugin: PluginUnderTest) -> PluginUnderTest:
    def put(good: Any, tensor: Tensor, indices: Any, values: Tensor, *rest: Any) -> Any:
        if len(indices) == 1 and values.dim() == 0 and tensor.is_floating_point():
            return good(tensor, [indices[0][:1]], values, *rest)
        return good(tensor, indices, values, *rest)

    return with_aten(plugin, {"index_put_": put})


@mutant("P22", "the bits of a mask are read from the highest on", killer="sampling.structured")
def _p22(plugin: PluginUnderTest) -> PluginUnderTest:
    def select(good: Any, table: Tensor, *rest: Any) -> Any:
        found = good(table, *rest)
        is_of_bits = tuple(table.shape) == (256, 8)  # what each byte of a mask does to eight logits
        return backwards(found) if is_of_bits else found

    return with_aten(plugin, {"index_select": select})

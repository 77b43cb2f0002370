"""Adapters as front ends know them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from dougong.contracts import LoRAAssignment
from dougong.engine.adapter_names import AdapterNames
from dougong.engine.start_report import MemoryReport, StartReport
from dougong.errors import RequestError
from dougong.messages import LoRARef
from dougong.planner import LoRAPlan
from dougong.scheduler import RequestLimits
from tests.support.made_up_plans import plain_plan


def report(*loras: LoRARef, is_enabled: bool = True) -> StartReport:
    assignment = LoRAAssignment(wrapper="acme:Wrapper", max_loras=2, max_rank=8)
    lora = LoRAPlan(assignment=assignment if is_enabled else None)
    return StartReport(
        model="m",
        architecture="LlamaForCausalLM",
        vocab_size=8,
        dtype="float32",
        platform="null",
        devices=(),
        platform_reasons=(),
        decisions=(),
        memory=MemoryReport(limit=1, budget=1, weights=1, kv_cache=1),
        num_kv_blocks=8,
        block_size=16,
        plan=replace(plain_plan(), lora=lora),
        limits=RequestLimits(max_model_len=8, num_token_slots=8),
        loras=loras,
    )


def test_names_are_those_of_the_start_and_what_came_and_went_since() -> None:
    first, second = LoRARef("a", 0, 1), LoRARef("b", 1, 2)
    names = AdapterNames(report(first))
    names.add(second)
    assert names.names() == ("a", "b")
    assert names.find("b") == second
    names.remove("a")
    names.remove("a")
    assert names.names() == ("b",)
    with pytest.raises(RequestError, match="no adapter 'a'; loaded: b") as caught:
        names.find("a")
    assert caught.value.field == "lora"


def test_a_long_name_is_told_in_part() -> None:
    with pytest.raises(RequestError) as caught:
        AdapterNames(report()).find("x" * 100_000)
    assert len(str(caught.value)) < 200


def test_without_adapters_the_option_is_named() -> None:
    with pytest.raises(RequestError, match="--enable-lora"):
        AdapterNames(report(is_enabled=False)).find("a")

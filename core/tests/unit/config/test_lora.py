"""Options for adapters: read, bounded, held against each other."""

from __future__ import annotations

from typing import Any

import pytest

from dougong.config import EngineArgs
from dougong.config.lora import LoRAConfig, resolve_lora
from dougong.config.wishes import Wishes


def resolved(**options: Any) -> tuple[LoRAConfig | None, Wishes]:
    wishes = Wishes.of_user(EngineArgs(model="m", **options))
    return resolve_lora(wishes), wishes


def test_without_options_there_are_none() -> None:
    lora, wishes = resolved()
    assert lora is None
    assert wishes.problems == []
    assert [(one.field, one.value, one.is_default) for one in wishes.decisions] == [
        ("enable_lora", False, True)
    ]


def test_what_was_asked_for_is_taken_and_an_adapter_asks_for_adapters() -> None:
    lora, wishes = resolved(lora=["a=./x", "b = /y=z "], max_lora_rank=64)
    assert lora == LoRAConfig(max_loras=4, max_rank=64, adapters=(("a", "./x"), ("b", "/y=z")))
    assert wishes.problems == []
    told = {one.field: one.value for one in wishes.decisions}
    assert told == {"enable_lora": True, "max_loras": 4, "max_lora_rank": 64, "lora": "a, b"}
    assert resolved(enable_lora=True)[0] == LoRAConfig(max_loras=4, max_rank=16)


def test_there_are_as_many_slots_as_adapters_are_named() -> None:
    lora, _ = resolved(lora=[f"{index}=x" for index in range(6)])
    assert lora is not None
    assert lora.max_loras == 6


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"lora": ["x"]}, "takes NAME=PATH"),
        ({"lora": ["=x"]}, "takes NAME=PATH"),
        ({"lora": ["a= "]}, "takes NAME=PATH"),
        ({"lora": ["a=x", "a=y"]}, "names 'a' twice"),
        ({"lora": ["a=x", "b=y"], "max_loras": 1}, "--max-loras 2"),
        ({"enable_lora": True, "max_loras": 0}, "max_loras=0; it takes 1 to 256"),
        ({"enable_lora": True, "max_lora_rank": 5000}, "max_lora_rank=5000"),
        ({"max_loras": 2}, "--max-loras says something of adapters"),
        ({"max_lora_rank": 2}, "--max-lora-rank says something of adapters"),
        ({"enable_lora": False, "lora": ["a=x"]}, "--lora says something of adapters"),
    ],
)
def test_what_cannot_be_is_refused_with_the_option(options: dict[str, Any], why: str) -> None:
    _, wishes = resolved(**options)
    assert any(why in problem for problem in wishes.problems), wishes.problems

"""Names and slots of loaded adapters."""

from __future__ import annotations

from pathlib import Path

import pytest

from dougong.contracts import LoRAWeights
from dougong.engine.adapters import LoadedAdapters, load_at_start, read_at_start
from dougong.errors import CapacityError, ConfigError, RequestError
from dougong.messages import LoRARef
from tests.support.tiny_adapters import write_adapter
from tests.support.tiny_models import tiny_config

WEIGHTS = LoRAWeights(1, {})


class Engine:
    """Slots that note what was put into them, and who uses them."""

    def __init__(self, max_loras: int = 2) -> None:
        self.slots: dict[int, LoRAWeights | None] = {}
        self.users: dict[LoRARef, int] = {}
        self.refusal: Exception | None = None
        self.adapters = LoadedAdapters(max_loras, self.set_lora, lambda ref: self.users.get(ref, 0))

    def set_lora(self, slot: int, weights: LoRAWeights | None) -> None:
        if self.refusal is not None:
            raise self.refusal
        self.slots[slot] = weights


def test_each_adapter_has_a_slot_of_its_own_until_there_is_none() -> None:
    engine = Engine()
    first, second = engine.adapters.load("a", WEIGHTS), engine.adapters.load("b", WEIGHTS)
    assert {first.slot, second.slot} == {0, 1}
    assert engine.adapters.refs == (first, second)
    with pytest.raises(CapacityError, match="2 adapters hold a slot, as many as --max-loras"):
        engine.adapters.load("c", WEIGHTS)
    engine.adapters.unload("a")
    assert engine.slots[first.slot] is None
    assert engine.adapters.load("c", WEIGHTS).slot == first.slot


def test_a_slot_is_free_once_its_last_request_has_ended() -> None:
    engine = Engine(max_loras=1)
    first = engine.adapters.load("a", WEIGHTS)
    engine.users[first] = 1
    engine.adapters.unload("a")
    assert engine.slots[0] is WEIGHTS
    with pytest.raises(CapacityError, match="1 of them until their last request ends"):
        engine.adapters.load("a", WEIGHTS)
    engine.users.clear()
    again = engine.adapters.load("a", WEIGHTS)
    assert again.load_number != first.load_number


def test_a_request_for_an_adapter_that_is_gone_or_another_is_refused() -> None:
    engine = Engine()
    first = engine.adapters.load("a", WEIGHTS)
    engine.adapters.check(first)
    engine.adapters.unload("a")
    for _ in range(2):
        with pytest.raises(RequestError, match="was unloaded before"):
            engine.adapters.check(first)
        engine.adapters.load(f"a{_}", WEIGHTS)


def test_what_fails_leaves_name_and_slot_free() -> None:
    engine = Engine(max_loras=1)
    engine.refusal = RequestError("it does not fit", field="lora_path")
    with pytest.raises(RequestError, match="does not fit"):
        engine.adapters.load("a", WEIGHTS)
    assert engine.adapters.refs == ()
    engine.refusal = None
    engine.adapters.load("a", WEIGHTS)


@pytest.mark.parametrize("name", ["", "x" * 257, "a\nb", "\0"])
def test_what_cannot_be_a_name_is_refused(name: str) -> None:
    with pytest.raises(RequestError, match="printable") as caught:
        Engine().adapters.load(name, WEIGHTS)
    assert caught.value.field == "lora_name"


def test_a_name_is_one_adapters_and_an_unknown_one_nobodys() -> None:
    engine = Engine()
    engine.adapters.load("a", WEIGHTS)
    with pytest.raises(RequestError, match="'a' is loaded already"):
        engine.adapters.load("a", WEIGHTS)
    with pytest.raises(RequestError, match="no adapter 'b'; loaded: a"):
        engine.adapters.unload("b")


def test_an_engine_without_slots_names_the_option() -> None:
    with pytest.raises(RequestError, match="--enable-lora"):
        Engine(max_loras=0).adapters.load("a", WEIGHTS)


def test_at_the_start_all_that_cannot_be_read_is_told_together(tmp_path: Path) -> None:
    good = str(write_adapter(tmp_path / "good", tiny_config()))
    assert [name for name, _ in read_at_start([("a", good)])] == ["a"]
    with pytest.raises(ConfigError) as caught:
        read_at_start([("a", good), ("b", "/nowhere"), ("c\0", good)])
    assert len(caught.value.problems) == 2
    engine = Engine()
    engine.refusal = RequestError("it does not fit")
    with pytest.raises(ConfigError, match="--lora a: it does not fit"):
        load_at_start(engine.adapters, read_at_start([("a", good)]))

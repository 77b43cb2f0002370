from __future__ import annotations

from dougong.config.args import EngineArgs
from dougong.config.wishes import Wishes
from dougong.contracts import ConfigChange


def test_a_wish_is_settled_with_its_author_and_reason() -> None:
    wishes = Wishes.of_user(EngineArgs(model="m", seed=3))
    assert wishes.settle_or("seed", 0, "core", "default") == 3
    assert str(wishes.decisions[0]) == "seed = 3 [user] asked for"


def test_an_unasked_value_is_settled_with_the_default() -> None:
    wishes = Wishes.of_user(EngineArgs(model="m"))
    assert wishes.settle_or("seed", 0, "core", "default") == 0
    assert wishes.decisions[0].author == "core"


def test_a_whole_number_may_stand_for_a_share() -> None:
    wishes = Wishes.of_user(EngineArgs(model="m"))
    wishes.apply_changes("paper", [ConfigChange("device_memory_utilization", 1, "why")])
    assert wishes.get("device_memory_utilization", float) == 1

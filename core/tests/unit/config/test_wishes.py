from __future__ import annotations

import pytest

from dougong.config.args import CommandDefault, EngineArgs
from dougong.config.wishes import Wishes
from dougong.contracts import ConfigChange
from dougong.errors import PluginError


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


def test_a_platforms_proposal_goes_over_a_commands_default_and_says_so() -> None:
    default = CommandDefault("max_num_seqs", 1, "command generate", "one prompt")
    wishes = Wishes.of_user(EngineArgs(model="m", defaults=(default,)))
    wishes.apply_changes("paper", [ConfigChange("max_num_seqs", 8, "its graph holds eight")])
    assert wishes.settle_or("max_num_seqs", 5, "core", "default") == 8
    (decision,) = wishes.decisions
    assert decision.author == "platform paper"
    assert "its graph holds eight, and not 1 as command generate (one prompt)" in decision.reason


def test_the_user_goes_over_a_commands_default() -> None:
    default = CommandDefault("max_num_seqs", 1, "command generate", "one prompt")
    wishes = Wishes.of_user(EngineArgs(model="m", max_num_seqs=3, defaults=(default,)))
    assert wishes.asked["max_num_seqs"].author == "user"


def test_a_refused_value_is_the_fault_of_whoever_asked_for_it() -> None:
    wishes = Wishes.of_user(EngineArgs(model="m", block_size=3))
    wishes.apply_changes("paper", [ConfigChange("dtype", "int3", "it is small")])
    wishes.refuse("block_size=3 is odd.", of="block_size")
    wishes.check()
    assert wishes.problems == ["block_size=3 is odd."]
    wishes.refuse("int3 is no dtype.", of="dtype")
    with pytest.raises(PluginError) as caught:
        wishes.check()
    assert caught.value.plugin == "paper"
    told = "platform paper proposes dtype=int3 (it is small): int3 is no dtype."
    assert told in str(caught.value)

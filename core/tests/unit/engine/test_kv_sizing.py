from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from dougong.config import EngineArgs, EngineConfig, resolve
from dougong.contracts import (
    ConfigChange,
    KVBuffer,
    KVCacheGroup,
    KVCacheSpec,
    KVLayout,
    LoadReport,
)
from dougong.engine.kv_sizing import check_block_sizes, size_kv_cache, with_block_size
from dougong.errors import DougongError, PluginError
from dougong.executor import LoadedRanks
from tests.support.made_up_cards import GIB, made_up_card, made_up_model

WEIGHTS = 2 * GIB


def config(**wishes: Any) -> EngineConfig:
    args = EngineArgs(model="made-up/model", **wishes)
    return resolve(args, made_up_model(), made_up_card(), platform="paper").config


def group(*layers: int, block_size: int = 16) -> tuple[KVCacheGroup, KVLayout]:
    spec = KVCacheSpec(num_kv_heads=4, head_dim=64, dtype="bfloat16", block_size=block_size)
    buffers = tuple(
        KVBuffer(name=name, block_shape=(block_size, 4, 64), dtype="bfloat16") for name in "kv"
    )
    layout = KVLayout(name="plain", buffers=buffers, block_sizes=(block_size,))
    return KVCacheGroup(spec, layers), layout


def ranks(*groups: tuple[KVCacheGroup, KVLayout], available_bytes: int = 100 * GIB) -> LoadedRanks:
    load = LoadReport(weight_bytes=WEIGHTS, seconds=0.0)
    return LoadedRanks((load,), groups or (group(*range(22)),), available_bytes)


def test_weights_and_cache_stay_inside_the_budget_whatever_a_rank_says() -> None:
    asked = config(max_num_seqs=10**6, max_num_batched_tokens=10**6)
    sized = size_kv_cache(asked, ranks())
    block_bytes = 22 * 2 * 16 * 4 * 64 * 2
    assert WEIGHTS + sized.size.num_bytes <= asked.memory.budget_bytes
    assert WEIGHTS + sized.size.num_bytes + block_bytes > asked.memory.budget_bytes
    assert sized.worker.num_blocks == sized.scheduler.num_blocks == sized.size.num_blocks


def test_what_a_rank_has_left_counts_where_it_is_less() -> None:
    sized = size_kv_cache(config(), ranks(available_bytes=GIB))
    assert sized.size.num_bytes <= GIB


def test_no_more_than_can_be_in_use_is_taken() -> None:
    sized = size_kv_cache(config(max_num_seqs=1, max_model_len=100), ranks())
    assert sized.size.num_blocks == 7


def test_every_group_has_every_block_in_its_own_buffers() -> None:
    one = size_kv_cache(config(num_kv_blocks=100), ranks(group(*range(22))))
    two = size_kv_cache(config(num_kv_blocks=100), ranks(group(*range(11)), group(*range(11, 22))))
    assert one.size.num_bytes == two.size.num_bytes
    assert two.scheduler.num_groups == 2


def test_the_planned_block_size_is_the_schedulers_and_the_workers() -> None:
    planned = with_block_size(config(), 64)
    sized = size_kv_cache(planned, ranks(group(*range(22), block_size=64)))
    assert sized.scheduler.block_size == 64
    assert sized.worker.groups[0].spec.block_size == 64


def test_a_group_with_other_blocks_than_planned_is_the_workers_fault() -> None:
    with pytest.raises(PluginError, match=r"blocks of 64 tokens \(layers 1, .*plan .* says 16"):
        size_kv_cache(config(), ranks(group(0), group(1, block_size=64)))


def test_a_scheduler_that_counts_in_other_blocks_is_refused() -> None:
    groups = (group(0), group(1, block_size=16))
    check_block_sizes(16, groups)
    with pytest.raises(DougongError, match=r"blocks of 8 tokens.*layers 0 .*layout plain"):
        check_block_sizes(8, groups)


def test_a_layout_that_does_not_take_its_own_groups_blocks_is_refused() -> None:
    kv_group, layout = group(0)
    with pytest.raises(DougongError, match="which takes 32, 64"):
        check_block_sizes(16, [(kv_group, replace(layout, block_sizes=(32, 64)))])


def test_reserved_blocks_are_not_for_requests() -> None:
    kv_group, layout = group(*range(22))
    sized = size_kv_cache(
        config(num_kv_blocks=10), ranks((kv_group, replace(layout, reserved_blocks=2)))
    )
    assert sized.scheduler.num_usable_blocks == 8


def test_two_cards_give_two_pools_and_two_block_sizes() -> None:
    def pool(total_bytes: int, block_sizes: tuple[int, ...]) -> tuple[int, int]:
        facts = {"memory_total_bytes": total_bytes, "memory_free_bytes": total_bytes}
        card = made_up_card(facts=facts, claims={"kv_block_sizes": block_sizes})
        args = EngineArgs(model="made-up/model")
        settled = resolve(args, made_up_model(), card, platform="paper").config
        size = settled.kv_cache.block_size
        sized = size_kv_cache(settled, ranks(group(*range(22), block_size=size)))
        return sized.scheduler.num_blocks, sized.scheduler.block_size

    small, large, coarse = pool(4 * GIB, (16,)), pool(8 * GIB, (16,)), pool(4 * GIB, (64, 16))
    assert small[0] < large[0]
    assert (small[1], large[1], coarse[1]) == (16, 16, 64)
    assert coarse[0] == small[0] // 4


def test_a_number_of_blocks_that_the_platform_proposed_is_signed_by_it_and_its_fault() -> None:
    change = ConfigChange("num_kv_blocks", 100, "its table has so many")
    args = EngineArgs(model="made-up/model")
    asked = resolve(args, made_up_model(), made_up_card(), platform="paper", changes=[change])
    sized = size_kv_cache(asked.config, ranks())
    assert sized.decision.author == "platform paper"
    with pytest.raises(PluginError, match="platform paper proposed") as caught:
        size_kv_cache(asked.config, ranks(available_bytes=1000))
    assert caught.value.plugin == "paper"


def test_a_model_without_a_cache_is_sized_with_none() -> None:
    load = LoadReport(weight_bytes=WEIGHTS, seconds=0.0)
    sized = size_kv_cache(config(), LoadedRanks((load,), (), 100 * GIB))
    assert (sized.worker.num_blocks, sized.worker.groups) == (0, ())
    assert (sized.scheduler.num_blocks, sized.scheduler.num_groups) == (0, 0)
    assert (sized.size.num_bytes, sized.decision.value) == (0, 0)

from __future__ import annotations

from typing import Any

import pytest

from dougong.contracts import ConfigError, PluginError, QuantizationSupport
from dougong.describe import WeightNeed
from dougong.planner import KVCachePlanned, plan
from tests.unit.planner.paper import PaperBackend, named, need, paper_inputs

BLOCK = 2 * 16 * 2 * 64 * 2  # K and V of 16 tokens, 2 heads of 64 elements in bfloat16
MIB = 1 << 20
WEIGHTS = 2_000_000


def planned(**changes: Any) -> KVCachePlanned:
    backend = PaperBackend("paper/fast", **changes.pop("layout", {}))
    candidates = {"attention": named(backend), **changes.pop("candidates", {})}
    return plan(paper_inputs(candidates=candidates, **changes)).kv_cache


def refused(**changes: Any) -> str:
    with pytest.raises(ConfigError) as caught:
        planned(**changes)
    return str(caught.value)


def test_a_block_counts_all_layers_and_what_alignment_wastes() -> None:
    made = planned(needs={"attention": (need(0, 1), need(2, sliding_window=8))})
    assert (made.block_bytes, made.padding_bytes) == (3 * BLOCK, 0)
    odd = planned(layout={"alignment_bytes": 4096 + 1024})
    assert odd.block_bytes == 2 * 2 * 5120
    assert odd.padding_bytes == 2 * 2 * 1024


def test_the_number_of_blocks_is_what_was_asked_for_or_what_the_budget_leaves() -> None:
    assert planned(config={"asked_blocks": 77}).num_blocks == 77
    assert planned(config={"asked_bytes": 10 * 2 * BLOCK + 5}).num_blocks == 10
    left = 10 * MIB - WEIGHTS
    assert planned(config={"memory_bytes": 10 * MIB}).num_blocks == left // (2 * BLOCK)


def test_weights_kept_as_stored_leave_more_and_unknown_ones_leave_it_open() -> None:
    kernel = QuantizationSupport(
        format="q4_1", storage="uint8", activation_dtypes=("bfloat16",), is_native=True, kernel="k"
    )
    for num_bytes, expected in ((500_000, (10 * MIB - 500_000) // (2 * BLOCK)), (None, None)):
        need_q4 = WeightNeed(
            format="q4_1", is_quantized=True, is_readable=True, num_bytes=num_bytes
        )
        made = planned(
            needs={"weights": (need_q4,)},
            candidates={"quantization": (kernel,), "kept_formats": frozenset({"q4_1"})},
            config={"memory_bytes": 10 * MIB},
        )
        assert made.num_blocks == expected


def test_an_automatic_number_stops_where_narrow_slots_end() -> None:
    made = planned(layout={"slot_dtype": "int32"}, config={"memory_bytes": 1 << 50})
    assert made.num_blocks == 2**27


def test_an_explicit_number_that_slots_cannot_hold_is_refused_in_blocks_and_in_bytes() -> None:
    config: dict[str, Any] = {"asked_blocks": 2**27 + 1, "memory_bytes": 1 << 50}
    told = refused(layout={"slot_dtype": "int32"}, config=config)
    assert "num_kv_blocks=134217729 was asked for" in told
    assert "a smaller num_kv_blocks" in told
    config = {"asked_bytes": (2**27 + 1) * 2 * BLOCK, "memory_bytes": 1 << 50}
    told = refused(layout={"slot_dtype": "int32"}, config=config)
    assert "kv_cache_memory_bytes=" in told
    assert "more than the slots of the KV layout can number" in told


def test_another_backend_serves_where_slots_of_the_first_are_too_narrow() -> None:
    backends = named(
        PaperBackend("paper/narrow", slot_dtype="int32"), PaperBackend("reference/torch")
    )
    made = plan(
        paper_inputs(
            candidates={"attention": backends},
            config={"asked_blocks": 2**27 + 1, "memory_bytes": 1 << 50},
        )
    )
    assert made.attention[0].assignment.backend == "reference/torch"


def test_a_cache_that_holds_no_token_is_refused() -> None:
    told = refused(layout={"reserved_blocks": 4}, config={"asked_blocks": 4})
    assert "num_kv_blocks=4 holds no token" in told
    assert "reserves 4 blocks" in told
    told = refused(config={"memory_bytes": WEIGHTS + 2 * BLOCK - 1})
    assert "a KV cache of 0 blocks holds no token" in told


def test_a_size_above_the_budget_is_refused_with_what_would_fit() -> None:
    told = refused(config={"asked_blocks": 1000, "memory_bytes": 10 * MIB})
    assert "num_kv_blocks=1000 takes" in told
    assert f"Ask for at most {(10 * MIB - WEIGHTS) // (2 * BLOCK)} blocks" in told


def test_a_size_that_the_platform_asked_for_is_its_vendors_fault() -> None:
    config = {"asked_blocks": 1000, "asked_by": "platform paper", "memory_bytes": 10 * MIB,
              "explicit": frozenset()}  # fmt: skip
    with pytest.raises(PluginError, match=r"(?s)proposes what cannot work.*num_kv_blocks=1000"):
        planned(config=config)

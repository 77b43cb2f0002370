from __future__ import annotations

from dougong.contracts import KernelReport
from dougong.planner.compare import Difference, differences
from tests.unit.planner.compare_harness import planned, told
from tests.unit.planner.paper import PaperBackend, named, need


def test_a_missing_library_is_told_as_what_it_changes() -> None:
    fast, slow = PaperBackend("paper/fast", library="kit"), PaperBackend("reference/torch")
    old = planned(candidates={"attention": named(fast, slow)})
    missing = KernelReport(missing={"kit": "no such file"})
    new = planned(candidates={"attention": named(fast, slow), "kernels": missing})
    assert told(old, new) == [
        "attention backend was paper/fast and is reference/torch: needs kit: no such file",
        "kernel libraries was kit 2 and is none: kit: no such file",
        "path fallback of attention was not there and is there: reference/torch runs, not "
        "paper/fast: needs kit: no such file",
    ]


def test_attention_is_compared_layer_by_layer() -> None:
    kinds = (need(0, 2), need(1, sliding_window=8))
    old = planned(needs={"attention": kinds})
    new = planned(needs={"attention": (need(0, 2), need(1, sliding_window=9))})
    (one,) = differences(old, new)
    assert one == Difference(
        "attention of layers 1",
        "8 heads, 2 KV heads, head size 64, window 8",
        "8 heads, 2 KV heads, head size 64, window 9",
    )


def test_a_block_size_is_told_with_its_reason_and_a_layout_where_it_alone_changed() -> None:
    made = planned()
    backends = named(PaperBackend("paper/fast", block_sizes=(64,)))
    assert "block size was 16 and is 64: takes no blocks of 16 tokens" in told(
        made, planned(candidates={"attention": backends})
    )
    aligned = named(PaperBackend("paper/fast", alignment_bytes=512))
    (one,) = differences(made, planned(candidates={"attention": aligned}))
    assert one.field == "KV layout"
    assert one.new.endswith("aligned to 512 bytes)")

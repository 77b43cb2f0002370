from __future__ import annotations

from dougong.engine.structured_requests import StructuredStats
from dougong.server.grammar_metrics import grammar_families


def test_each_number_of_the_engine_has_a_metric_of_its_own() -> None:
    stats = StructuredStats(
        num_compiling=1, num_following=2, num_compiled=3, compile_s=4.5, num_masks=5, mask_s=6.5,
        waited_s=7.5,
    )  # fmt: skip
    found = {family.name: family.samples[0].value for family in grammar_families(stats)}
    assert sorted(found.values()) == [1, 2, 3, 4.5, 5, 6.5, 7.5]
    assert found["dougong_grammar_wait_seconds"] == 7.5

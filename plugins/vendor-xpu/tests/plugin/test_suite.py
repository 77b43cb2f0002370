"""The conformance suite on the simulated device, over references of the vendor's ops.

The vendor's runtime is replaced, so this reaches no rung. A few checks run every time, all of them
with ``pytest -m extra``.
"""

from __future__ import annotations

from dataclasses import replace

import pytest
from dougong_conformance.ladder.installed_double import installed_double
from dougong_conformance.ladder.own_process import call
from dougong_conformance.ladder.stand_in import StandIn
from dougong_conformance.ladder.suite_on_double import failures, judge

from tests.plugin.test_engine import DOUBLE

FEW = ("attention.chunked", "kv.padding_slots", "ops.fused_add_rms_norm")


def test_a_few_checks_of_ops_attention_and_cache_pass(library: StandIn) -> None:
    with installed_double(DOUBLE) as name:
        chosen = FEW.__contains__
        ends = judge(name, ("ops", "attention", "kv"), chosen=chosen, dtypes=("bfloat16",))
    assert {end.id.partition("[")[0] for end in ends} == set(FEW)
    assert failures(ends) == ()
    assert library.calls["_vllm_fa2_C::varlen_fwd"] > 0


def failing(profile: str) -> tuple[str, ...]:
    """Of all checks of a profile; children find the references, too."""
    with installed_double(replace(DOUBLE, references="tests.references:install")) as name:
        return failures(judge(name, (profile,)))


@pytest.mark.extra
@pytest.mark.timeout(300)
@pytest.mark.parametrize("profile", ["ops", "attention", "kv"])
def test_every_check_of_a_profile_passes(profile: str) -> None:
    assert call(failing, profile) == ()

"""The conformance suite's checks of ops, attention and KV cache, over the vendor's references.

What the plugin computes with the vendor's ops is held against the suite's own oracle, in the
dtype that a family prefers, on the simulated device.
"""

from __future__ import annotations

import pytest
from dougong_conformance.ladder.installed_double import installed_double
from dougong_conformance.ladder.suite_on_double import failures, judge

from tests.doubles import over_sim
from tests.references import stand_ins

QUICK = ("ops.every_implementation", "ops.rotary", "ops.silu", "ops.gelu", "ops.rms", "ops.moe")


@pytest.mark.parametrize(("arch", "dtype"), [("910b", "bfloat16"), ("310p", "float16")])
def test_attention_is_right_by_the_suites_oracle(arch: str, dtype: str) -> None:
    with installed_double(over_sim(arch)) as name:
        ends = judge(name, ("attention", "kv"), dtypes=(dtype,))
    assert failures(ends) == ()
    assert len(ends) > 15


@pytest.mark.parametrize("arch", ["910b", "310p"])
def test_every_kernel_is_right_by_the_suites_oracle(arch: str) -> None:
    with installed_double(over_sim(arch)) as name:
        stand_ins.made().calls.clear()
        ends = judge(name, ("ops",), chosen=lambda id: id.startswith(QUICK))
    assert failures(ends) == ()
    assert stand_ins.made().calls["npu::npu_rms_norm"] > 0


def test_a_fault_in_a_kernel_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    from dougong_ascend import attention

    monkeypatch.setattr(attention, "_CAUSAL", 4)  # a band of all keys, before and after
    with installed_double(over_sim("910b")) as name:
        ends = judge(name, ("attention",), chosen=lambda id: "causal" in id or "prefill" in id)
    assert failures(ends), "keys after the query were seen, and nobody said so"

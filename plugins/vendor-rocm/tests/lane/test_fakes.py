"""L2: AITER's own fakes answer for shapes and dtypes on a fake device; nothing leaks to the
host."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from dougong.contracts import CommonAttentionMetadata
from dougong_conformance.ladder.fake_device import DeviceRuleBroken, FakeDevice, fake_device

from dougong_rocm import library
from dougong_rocm.attention_aiter import AiterAttentionBackend
from tests.lane.conftest import Imported
from tests.lane.stand_in_rocm import ARCH
from tests.rungs import scenarios
from tests.shown import shows

pytestmark = pytest.mark.lane
WITHOUT_FAKES = {"unified_attention"}
"""A launcher of Triton: it has no fake, and is run by the interpreter instead."""


@pytest.fixture
def device(aiter: Imported) -> Iterator[FakeDevice]:
    library.bind([ARCH])
    with fake_device("cuda") as fake:
        yield fake


def test_aiters_own_fakes_take_every_call(device: FakeDevice) -> None:
    with shows("L2", "AITER's own fakes take the calls on a fake device") as shown:
        scenarios.run_plain_ops()
        scenarios.run_prepared_ops()
        scenarios.run_int8_linear()
        scenarios.run_attention(AiterAttentionBackend(), 128, scenarios.keep)
        assert (device.h2d, device.d2h) == ([], [])
        called = {op.partition("::")[2] for op in device.ops if op.startswith("aiter::")}
        expected = {name for name, call in library.CALLS.items() if not call.module}
        assert expected <= called
        shown.what = (
            f"AITER's own fakes accept {len(library.CALLS) - len(WITHOUT_FAKES)} of "
            f"{len(library.CALLS)} calls on a fake cuda device, with no copy to or from the host "
            f"and no wait; {', '.join(sorted(WITHOUT_FAKES))} has no fake"
        )
        shown.details = {"ops": sorted(called)}


def test_a_planted_slot_mapping_on_the_host_is_caught(device: FakeDevice) -> None:
    def on_host(step: CommonAttentionMetadata) -> None:
        step.slot_mapping = torch.empty(5, dtype=torch.int64, device="cpu")

    with pytest.raises(DeviceRuleBroken, match="reshape_and_cache_flash"):
        scenarios.run_attention(AiterAttentionBackend(), 128, on_host)


def test_a_planted_argument_that_aiter_does_not_have_is_refused(device: FakeDevice) -> None:
    with pytest.raises(TypeError, match="gate_mode"):
        library.AITER.fused_moe(*(scenarios.empty(1) for _ in range(5)), gate_mode=1)

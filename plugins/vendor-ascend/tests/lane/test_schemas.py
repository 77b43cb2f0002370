"""L0 and L1: the wheel's own schemas are those of the golden file, and take the plugin's calls."""

from __future__ import annotations

import pytest
import torch
from dougong_conformance.ladder import calls
from dougong_conformance.ladder.golden import Golden, compare, registered

from tests.lane.shown import shows
from tests.references import REFERENCES
from tests.references.stand_ins import golden
from tests.rungs.vendor_calls import NAMESPACES, of_the_plugin

pytestmark = pytest.mark.lane


def test_the_wheel_registers_what_the_golden_file_says() -> None:
    with shows("beside", "the wheel's schemas have not drifted from the golden file") as said:
        now = registered(NAMESPACES)
        said.what = f"{len(now)} schemas of torch_npu 2.13.0 are those of {golden().name}: no drift"
        assert compare(golden(), now) == ()


def test_a_schema_that_drifts_is_told() -> None:
    now = registered(NAMESPACES)
    now["npu::npu_swiglu"] = "npu::npu_swiglu(Tensor x, int dim=-1) -> Tensor"
    del now["npu::npu_mrope"]
    now["npu::npu_new"] = "npu::npu_new(Tensor x) -> Tensor"
    told = " ".join(compare(golden(), now))
    assert "npu_swiglu was" in told
    assert "npu_mrope is gone" in told
    assert "npu_new is new" in told


def test_every_call_binds_to_the_golden_file() -> None:
    with shows("L0", "every call of the vendor's ops binds") as said:
        made = [call for call in of_the_plugin() if not call.is_question]
        ops = {call.op for call in made}
        said.what = (
            f"{len(made)} calls of {len(ops)} ops bind to the {len(golden().schemas)} schemas of "
            f"{golden().name}"
        )
        assert calls.bind(of_the_plugin(), golden(), NAMESPACES) == ()


def test_every_call_binds_to_what_the_wheel_registers() -> None:
    with shows("L1", "every call binds to the wheel's schemas in torch's dispatcher") as said:
        here = Golden(registered(NAMESPACES), "", name="the wheel")
        made = [call for call in of_the_plugin() if not call.is_question]
        said.what = (
            f"{len(made)} calls bind to the schemas that torch_npu 2.13.0 and its ATB library "
            "register in torch's dispatcher"
        )
        assert calls.bind(of_the_plugin(), here, NAMESPACES) == ()


def test_the_vendors_dispatcher_refuses_a_wrong_keyword() -> None:
    with pytest.raises(RuntimeError, match="eps"):
        torch.ops.npu.npu_rms_norm(torch.ones(2, 32), torch.ones(32), eps=1e-5)


def test_every_reference_stands_for_an_op_with_a_kernel_for_the_device() -> None:
    kernels = set(torch._C._dispatch_get_registrations_for_dispatch_key("PrivateUse1"))
    assert set(REFERENCES) <= kernels

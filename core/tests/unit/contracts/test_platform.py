"""What a platform answers that says no more than it must."""

from __future__ import annotations

import pytest

from dougong.contracts import Claims, DeviceFacts, DeviceRuntime, KernelReport, Platform


class Bare(Platform):
    """Only what is required."""

    name = "bare"
    device_type = "bare"
    dispatch_key = "PrivateUse1"
    dist_backend = ""
    visible_devices_env = ""

    def claims(self, arch: str) -> Claims:
        """One dtype."""
        return Claims(arch=arch, dtypes=("float32",))

    def facts(self, device_index: int) -> DeviceFacts:
        """Of no device."""
        raise AssertionError

    @property
    def runtime(self) -> DeviceRuntime:
        """None."""
        raise AssertionError


def test_a_platform_that_says_no_more_than_it_must_offers_nothing_of_its_own() -> None:
    bare = Bare()
    assert bare.facts_open_context
    assert bare.families() == ()
    assert bare.import_kernels() == KernelReport()
    assert list(bare.get_attn_backends()) == ["reference/torch"]
    assert bare.get_graph_runner_cls() is None
    assert bare.get_supported_quantization() == ()
    assert bare.classify_error(RuntimeError("x")) is None
    wrapper = bare.get_punica_wrapper()
    assert wrapper is not None
    for named in (bare.get_worker_cls(), bare.get_device_communicator_cls(), wrapper):
        assert named.startswith("dougong.reference:")


def test_identity_claims_facts_and_runtime_are_required() -> None:
    assert Platform.__abstractmethods__ == {"claims", "facts", "runtime"}
    with pytest.raises(TypeError):
        Platform()  # type: ignore[abstract]  # what a caller without a type checker would do

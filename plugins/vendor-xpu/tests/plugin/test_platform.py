"""Identity, and what the platform proposes and names."""

from __future__ import annotations

from importlib import import_module

import pytest
from dougong.contracts import AttentionBackend, ConfigView

from dougong_xpu.platform import XpuPlatform
from dougong_xpu.plugin import plugin

PLATFORM = XpuPlatform()


def test_names_are_those_of_torch_and_level_zero() -> None:
    assert (PLATFORM.name, PLATFORM.device_type, PLATFORM.dispatch_key) == ("xpu", "xpu", "XPU")
    assert PLATFORM.dist_backend == "xccl"
    assert PLATFORM.visible_devices_env == "ZE_AFFINITY_MASK"
    assert plugin.name == PLATFORM.name
    assert plugin.auto_select


def test_every_class_that_is_named_is_there() -> None:
    named = (*PLATFORM.get_attn_backends().values(), PLATFORM.get_device_communicator_cls())
    for target in (*named, plugin.platform or ""):
        module, _, attribute = target.partition(":")
        assert hasattr(import_module(module), attribute), target


def test_backends_bear_the_names_they_are_listed_under_and_the_reference_is_last() -> None:
    backends = PLATFORM.get_attn_backends()
    assert list(backends)[-1] == "reference/torch"
    for name, target in backends.items():
        module, _, attribute = target.partition(":")
        backend: AttentionBackend = getattr(import_module(module), attribute)()
        assert backend.name == name


@pytest.mark.parametrize(("asked", "num_changes"), [(None, 1), (True, 0), (False, 0)])
def test_no_capture_is_proposed_and_nobody_is_overruled(
    asked: bool | None, num_changes: int
) -> None:
    changes = PLATFORM.check_and_update_config(ConfigView(model="m", enforce_eager=asked))
    assert len(changes) == num_changes
    assert all((one.field, one.value) == ("enforce_eager", True) for one in changes)


def test_no_graph_runner_is_named() -> None:
    assert PLATFORM.get_graph_runner_cls() is None

"""The probe names every missing piece and what to install; importing it imports nothing."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from dougong.contracts import Available, ConfigError, NotHere

from dougong_xpu import driver, plugin, providers
from tests.plugin.machine import A770, B580, Machine

Versions = dict[str, str]


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    """Asked by the probe in the place of this one."""
    made = Machine(tmp_path)
    environment: dict[str, str] = {}
    for module, name in (
        (plugin, "find_cards"),
        (plugin, "find_loader"),
        (plugin, "find_compute_driver"),
    ):
        asked: Callable[[Path], object] = getattr(driver, name)
        monkeypatch.setattr(module, name, lambda asked=asked: asked(made.root))
    monkeypatch.setattr(plugin, "list_devices", lambda: driver.list_devices(made.root, environment))
    return made


@pytest.fixture
def installed(monkeypatch: pytest.MonkeyPatch) -> Versions:
    """Distributions and their versions; torch is built for the device."""
    versions = {"torch": "2.14.0+xpu"}
    monkeypatch.setattr(providers, "version_of", lambda name: versions.get(name, ""))
    monkeypatch.setattr(providers, "oldest_torch", lambda: "2.10")
    monkeypatch.setattr(
        providers, "_has_device_library", lambda: versions["torch"].endswith("+xpu")
    )
    return versions


def reason() -> str:
    answer = plugin.probe()
    assert isinstance(answer, NotHere)
    return answer.reason


def test_a_machine_without_the_device_says_so_alone(machine: Machine, installed: Versions) -> None:
    installed["torch"] = "2.13.0+cpu"
    assert reason().startswith("no Intel GPU: /sys/class/drm has no render node")
    assert "torch" not in reason(), "whoever has no device needs none of it"


def test_every_missing_piece_is_named_with_what_to_install(
    machine: Machine, installed: Versions
) -> None:
    machine.add_card("0000:03:00.0", B580)
    installed["torch"] = "2.13.0+cpu"
    for said in (
        "no libze_loader.so.1 in LD_LIBRARY_PATH or the system's folders: install the Level Zero",
        "no libze_intel_gpu.so.1 in LD_LIBRARY_PATH or the system's folders: install Intel's",
        "torch 2.13.0+cpu is built without support for Intel GPUs",
        "--index-url https://download.pytorch.org/whl/xpu",
    ):
        assert said in reason()
    machine.add_drivers()
    assert "libze" not in reason()


def test_an_old_torch_beside_the_old_extension_is_refused_with_both_versions(
    machine: Machine, installed: Versions
) -> None:
    machine.add_card("0000:03:00.0", B580)
    machine.add_drivers()
    installed |= {"torch": "2.8.0+xpu", "intel-extension-for-pytorch": "2.8.10+xpu"}
    assert "torch 2.8.0+xpu is installed, beside intel-extension-for-pytorch 2.8.10" in reason()
    assert "the core needs torch 2.10 or later" in reason()


def test_a_closed_render_node_is_named(
    machine: Machine, installed: Versions, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    machine.add_card("0000:03:00.0", B580)
    machine.add_drivers()
    assert reason() == (
        "/dev/dri/renderD128 cannot be opened by this user: add it to the group that owns it "
        "(render), in a container with --device /dev/dri and --group-add"
    )


def test_a_whole_machine_has_its_devices(machine: Machine, installed: Versions) -> None:
    machine.add_card("0000:03:00.0", B580)
    machine.add_drivers()
    answer = plugin.probe()
    assert isinstance(answer, Available)
    assert [(one.index, one.arch) for one in answer.devices] == [(0, "bmg")]


def test_devices_whose_numbers_are_not_sure_make_the_probe_raise(
    machine: Machine, installed: Versions
) -> None:
    machine.add_card("0000:03:00.0", B580)
    machine.add_card("0000:44:00.0", A770)
    machine.add_drivers()
    with pytest.raises(ConfigError, match="unlike devices"):
        plugin.probe()


def test_the_probe_and_the_platform_import_neither_torch_nor_a_vendor_library() -> None:
    script = (
        "import sys\n"
        "from dougong_xpu.plugin import plugin\n"
        "plugin.probe()\n"
        "from dougong_xpu.platform import XpuPlatform\n"
        "platform = XpuPlatform()\n"
        "platform.claims('bmg'), platform.families(), platform.get_attn_backends()\n"
        "bad = {'torch', 'vllm_xpu_kernels', 'intel_extension_for_pytorch'} & set(sys.modules)\n"
        "assert not bad, bad\n"
    )
    subprocess.run([sys.executable, "-c", script], check=True)

"""Two libraries, told apart by what is installed; versions that do not fit are refused."""

from __future__ import annotations

import importlib

import pytest
from dougong.contracts import KernelReport

from dougong_xpu import ipex_library, platform, providers

KERNELS, EXTENSION = providers.KERNELS, providers.EXTENSION


@pytest.fixture
def versions(monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """Distributions and their versions."""
    made = {"torch": "2.14.0+xpu", KERNELS: "0.1.16.2"}
    for module in (providers, platform):
        monkeypatch.setattr(module, "version_of", lambda name: made.get(name, ""))
    monkeypatch.setattr(providers, "oldest_torch", lambda: "2.10")
    return made


@pytest.fixture
def imported(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What was imported; nothing really is."""
    names: list[str] = []
    monkeypatch.setattr(importlib, "import_module", names.append)

    def load() -> str:
        names.append("extension")
        return ""

    monkeypatch.setattr(ipex_library, "load", load)
    return names


def report() -> KernelReport:
    return platform.XpuPlatform().import_kernels()


def test_the_kernels_are_loaded_and_the_extension_is_left_alone(
    versions: dict[str, str], imported: list[str]
) -> None:
    assert report().loaded == (f"{KERNELS} 0.1.16.2",)
    assert imported == [
        f"vllm_xpu_kernels.{one}" for one in ("_C", "_moe_C", "_vllm_fa2_C", "_xpu_C")
    ]
    assert "its development has ended" in report().missing[EXTENSION]


def test_only_one_of_the_two_is_ever_loaded(
    versions: dict[str, str], imported: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    versions[EXTENSION] = "2.10.0"  # as if there were one for a torch that the core takes
    assert f"{KERNELS} is used in its place" in report().missing[EXTENSION]
    assert "extension" not in imported
    del versions[KERNELS]
    assert report().loaded == (f"{EXTENSION} 2.10.0",)
    assert "extension" in imported


def test_the_extension_is_refused_with_both_versions_of_torch(
    versions: dict[str, str], imported: list[str]
) -> None:
    del versions[KERNELS]
    versions[EXTENSION] = "2.8.10+xpu"
    missing = report().missing
    assert "needs torch 2.8, and the core needs torch 2.10 or later" in missing[EXTENSION]
    assert "its development has ended" in missing[EXTENSION]
    assert "not installed" in missing[KERNELS]
    assert imported == []


@pytest.mark.parametrize("version", ["0.1.15.4", "0.1.17", "0.2.0", "1.1.16"])
def test_kernels_of_other_signatures_are_refused(
    versions: dict[str, str], imported: list[str], version: str
) -> None:
    versions[KERNELS] = version
    assert (
        f"{version} is installed, and the calls made here are those of 0.1.16"
        in (report().missing[KERNELS])
    )
    assert imported == []


def test_a_library_that_does_not_load_is_reported_and_not_raised(
    versions: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(name: str) -> None:
        raise ImportError("libsycl.so.9: cannot open shared object file")

    monkeypatch.setattr(importlib, "import_module", fail)
    assert "libsycl.so.9: cannot open shared object file" in report().missing[KERNELS]


def test_the_oldest_torch_is_what_the_core_states() -> None:
    from importlib.metadata import requires

    stated = next(one for one in requires("dougong") or () if one.startswith("torch"))
    assert f">={providers.oldest_torch()}" in stated


def test_an_extension_that_cannot_be_imported_says_why() -> None:
    assert "cannot be loaded beside this torch" in ipex_library.load()

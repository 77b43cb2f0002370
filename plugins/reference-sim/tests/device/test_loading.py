"""When the device may be loaded into a process, and when it may not."""

from __future__ import annotations

import importlib.metadata
from pathlib import Path

import pytest
import torch
from torch.utils import backend_registration

from dougong_sim.device import LoadError, find_library, load, loading


@pytest.fixture
def _not_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loading, "_is_loaded", False)


def test_loading_again_does_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SIM_MODE", "not even read")
    load()


def test_the_library_is_found() -> None:
    found = find_library()
    assert found is not None
    assert found.suffix == ".so"


@pytest.mark.usefixtures("_not_loaded")
def test_a_library_that_was_not_built_says_how_to_build_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(loading, "_LIBRARY", tmp_path / "libdougong_sim.so")
    assert find_library() is None
    with pytest.raises(LoadError, match=r"was not built.*--no-build-isolation"):
        load()


@pytest.mark.usefixtures("_not_loaded")
def test_another_build_of_torch_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.version, "git_version", "0000")
    with pytest.raises(LoadError, match=r"was built for torch .* and this is torch .*\(0000\)"):
        load()


@pytest.mark.usefixtures("_not_loaded")
def test_another_backend_in_torchs_one_place_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch._C, "_get_privateuse1_backend_name", lambda: "npu")
    with pytest.raises(LoadError, match="another device backend, 'npu', is loaded"):
        load()


@pytest.mark.usefixtures("_not_loaded")
def test_the_place_is_taken_before_anything_is_installed_on_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A backend that comes between the check and the renaming finds none of our kernels."""

    def refuse(name: str) -> None:
        raise RuntimeError(f"{name}: the name has already been set")

    def fail(path: str) -> None:
        pytest.fail("the library was loaded")

    monkeypatch.setattr(loading, "_check_place_is_free", lambda: None)
    monkeypatch.setattr(backend_registration, "rename_privateuse1_backend", refuse)
    monkeypatch.setattr(torch.ops, "load_library", fail)
    with pytest.raises(RuntimeError, match="already been set"):
        load()


def test_torch_never_loads_it_by_itself() -> None:
    entry_points = importlib.metadata.entry_points(group="torch.backends")
    assert not [point for point in entry_points if "sim" in point.value]

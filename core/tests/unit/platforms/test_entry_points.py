from __future__ import annotations

import logging
from pathlib import Path

import pytest

from dougong.platforms.entry_points import find_entry_points
from tests.support.stub_plugins import Stub


def test_the_first_copy_on_the_path_counts_and_the_others_name_it(tmp_path: Path) -> None:
    old, new = tmp_path / "a", tmp_path / "b"
    first = Stub(version="0.1").write_installed(old)
    second = Stub(version="0.2").write_installed(new)
    found = find_entry_points([str(old), str(new)])
    assert [(point.version, point.shadowed_by) for point in found] == [
        ("0.1", None),
        ("0.2", str(first)),
    ]
    assert found[1].path == str(second)
    swapped = find_entry_points([str(new), str(old)])
    assert [point.version for point in swapped if point.shadowed_by is None] == ["0.2"]


def test_a_copy_without_the_entry_point_still_hides_a_later_one(tmp_path: Path) -> None:
    first = Stub().write_installed(tmp_path / "a")
    (first / "entry_points.txt").unlink()
    Stub().write_installed(tmp_path / "b")
    (point,) = find_entry_points([str(tmp_path / "a"), str(tmp_path / "b")])
    assert point.shadowed_by == str(first)


def test_names_that_differ_in_spelling_only_are_one_distribution(tmp_path: Path) -> None:
    Stub(distribution="Fake-Plat").write_installed(tmp_path / "a")
    Stub(distribution="fake_plat").write_installed(tmp_path / "b")
    found = find_entry_points([str(tmp_path / "a"), str(tmp_path / "b")])
    assert [point.shadowed_by is None for point in found] == [True, False]


def test_a_folder_that_is_reached_twice_is_one_copy(tmp_path: Path) -> None:
    Stub().write_installed(tmp_path / "a")
    (tmp_path / "link").symlink_to(tmp_path / "a")
    found = find_entry_points([str(tmp_path / "a"), str(tmp_path / "link")])
    assert [point.shadowed_by for point in found] == [None]


def test_the_debug_log_names_both_paths(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    first = Stub().write_installed(tmp_path / "a")
    second = Stub().write_installed(tmp_path / "b")
    with caplog.at_level(logging.DEBUG, "dougong"):
        find_entry_points([str(tmp_path / "a"), str(tmp_path / "b")])
    assert f"{first} counts, {second} is shadowed" in caplog.text


def test_metadata_without_a_name_hides_nobody(tmp_path: Path) -> None:
    (tmp_path / "half_removed-1.0.dist-info").mkdir()
    Stub().write_installed(tmp_path)
    assert [point.name for point in find_entry_points([str(tmp_path)])] == ["fake"]


def test_the_cpu_platform_is_installed_like_any_other() -> None:
    (cpu,) = [point for point in find_entry_points() if point.name == "cpu"]
    assert (cpu.distribution, cpu.value) == ("dougong", "dougong.cpu.plugin:plugin")

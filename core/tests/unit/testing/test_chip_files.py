"""Files of a wheel's families are held against the wheel; each fault they can have is told."""

from __future__ import annotations

from pathlib import Path

import pytest

from dougong.cli.capabilities_description import describe_family
from dougong.describe import write_capability_file
from dougong.platforms import open_for_description
from dougong.testing.chip_files import chip_file_problems
from tests.support.claimed_plugin import CLAIMS, install_claimed
from tests.support.tiny_models import tiny_config, write_tiny_checkpoint


class Chips:
    """Files of a platform, as its wheel has them."""

    def __init__(self, root: Path, platform: str) -> None:
        self.platform, self.folder, self._root = platform, root / "chips", root
        self.folder.mkdir()
        write_tiny_checkpoint(root / "model", tiny_config())
        for arch in ("one", "two"):
            self.write(arch)

    def write(self, arch: str) -> None:
        """As ``dougong capabilities --arch`` does."""
        loaded = open_for_description(self.platform)
        assert loaded is not None
        file = describe_family(loaded, arch, 64 * 2**30)
        write_capability_file(self.folder / f"{arch}.json", file)

    def problems(self) -> list[str]:
        """What is wrong with them."""
        scratch, model = self._root / "scratch", str(self._root / "model")
        scratch.mkdir()
        return chip_file_problems(self.platform, self.folder, scratch, model)


@pytest.fixture
def chips(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Chips:
    """Of two families, all well."""
    return Chips(tmp_path, install_claimed(tmp_path / "installed", monkeypatch))


def test_files_that_the_wheel_would_write_now_have_no_problem(chips: Chips) -> None:
    assert chips.problems() == []


def test_a_family_without_a_file_and_a_file_without_a_family_are_told(chips: Chips) -> None:
    (chips.folder / "one.json").rename(chips.folder / "won.json")
    stray, missing = chips.problems()
    assert stray == "won.json is of no family that the platform lists"
    assert "family one has no file; make it with: dougong capabilities" in missing


def test_a_file_of_another_time_is_told(chips: Chips) -> None:
    path = chips.folder / "one.json"
    path.write_text(path.read_text().replace('"kv_alignment_bytes": 1', '"kv_alignment_bytes": 2'))
    (problem,) = chips.problems()
    assert "one.json is not what the wheel says now" in problem
    path.write_text("{}")
    (chips.folder.parent / "scratch" / "no-such-family.json").unlink()
    (chips.folder.parent / "scratch").rmdir()
    assert any("is no capability file" in one for one in chips.problems())


def test_a_family_that_cannot_be_planned_for_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    claims = CLAIMS.replace("[family.two]", "[family.two]\nmax_head_size = 4")
    chips = Chips(tmp_path, install_claimed(tmp_path / "installed", monkeypatch, claims))
    (problem,) = chips.problems()
    assert problem.startswith("two.json: no plan for")


def test_a_platform_that_is_not_installed_is_told(tmp_path: Path) -> None:
    assert chip_file_problems("nowhere", tmp_path, tmp_path) == [
        "platform 'nowhere' is not installed"
    ]

from __future__ import annotations

from pathlib import Path

import pytest

from dougong.cli.new_file import check_new_file
from dougong.errors import ConfigError


def test_only_a_new_file_in_a_folder_that_is_there_may_be_written(tmp_path: Path) -> None:
    def check(file: Path | None) -> None:
        check_new_file(file, kept="what somebody wrote", instead="keep it")

    check(None)
    check(tmp_path / "new")
    (tmp_path / "old").write_text("")
    with pytest.raises(
        ConfigError, match=r"old: the file exists, and what somebody wrote .*keep i"
    ):
        check(tmp_path / "old")
    with pytest.raises(ConfigError, match="there is no folder"):
        check(tmp_path / "nowhere" / "new")

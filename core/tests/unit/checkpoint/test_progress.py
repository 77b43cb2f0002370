from __future__ import annotations

from pathlib import Path

import pytest
import torch

from dougong.checkpoint import loading_progress, open_tensors, resolve_reference
from dougong.checkpoint.progress import is_shown
from tests.support.checkpoints import write_shards


@pytest.mark.parametrize("shown", [None, True, False])
def test_names_come_in_order_and_bars_only_on_stderr_and_when_asked(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], shown: bool | None
) -> None:
    write_shards(tmp_path, [{"a": torch.ones(2), "b": torch.ones(2)}])
    source = open_tensors(resolve_reference(str(tmp_path)))
    assert tuple(loading_progress(source, shown)) == source.names()
    written = capsys.readouterr()
    assert written.out == ""
    assert ("Loading weights" in written.err) is (shown is True)


def test_without_a_wish_a_terminal_decides(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stderr.isatty", lambda: True, raising=False)
    assert is_shown(None)
    assert not is_shown(False)

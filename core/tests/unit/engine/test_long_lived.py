from __future__ import annotations

import gc

from dougong.engine.long_lived import keep_for_good


def test_what_was_there_is_not_looked_at_again() -> None:
    before = gc.get_freeze_count()
    mine: list[object] = []
    try:
        keep_for_good()
        assert gc.get_freeze_count() > before + 10_000
        assert not any(one is mine for one in gc.get_objects())
        later: list[object] = []
        assert any(one is later for one in gc.get_objects())
    finally:
        gc.unfreeze()

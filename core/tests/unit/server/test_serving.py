from __future__ import annotations

import pytest

from dougong.errors import RequestError
from dougong.server import serving as serving_module
from tests.unit.server.conftest import Served


async def test_a_prompt_that_is_too_long_is_refused_before_its_ids_are_looked_at(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    def look(*_: object) -> None:
        raise AssertionError("the event loop walks through it")

    monkeypatch.setattr(serving_module, "check_token_ids", look)
    with pytest.raises(RequestError, match="at most 63") as caught:
        served.serving.check_prompt("prompt", range(64))
    assert caught.value.field == "prompt"


async def test_without_a_name_the_first_one_is_shown(served: Served) -> None:
    assert served.serving.check_model(None).name == "tiny"

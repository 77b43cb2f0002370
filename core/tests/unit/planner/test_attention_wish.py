from __future__ import annotations

import pytest

from tests.unit.planner.attention_harness import (
    refused,
)
from tests.unit.planner.paper import PaperBackend


def test_an_unknown_backend_is_refused_with_the_known_ones() -> None:
    told = refused(PaperBackend("paper/fast"), config={"attention_backend": "paper/none"})
    assert "attention_backend=paper/none names paper/none" in told
    assert "among those of platform 'paper': paper/fast" in told


@pytest.mark.parametrize("text", ["prefill=a", "prefill=a,decode=", "prefill=a,prefill=b", "a=b,c"])
def test_a_malformed_wish_is_refused(text: str) -> None:
    told = refused(PaperBackend("a"), config={"attention_backend": text})
    assert f"attention_backend={text} is malformed" in told
    assert "prefill=NAME,decode=NAME" in told

from __future__ import annotations

import asyncio
import threading

import pytest

from dougong.engine.tokenizer import Tokenizer
from dougong.server.text_work import TextWork


async def test_a_long_text_does_not_hold_up_the_event_loop(
    tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    may_end = threading.Event()

    def encode(text: str, *, add_special_tokens: bool = True) -> list[int]:
        assert may_end.wait(20)
        return [1]

    monkeypatch.setattr(tokenizer, "encode", encode)
    work = TextWork(tokenizer, 288)
    encoding = asyncio.create_task(work.encode("long"))
    for _ in range(10):
        await asyncio.sleep(0.001)  # with the text encoded here, the loop would never come to this
    assert not encoding.done()
    may_end.set()
    assert await encoding == [1]
    work.close()

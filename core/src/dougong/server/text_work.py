"""Tokenizing beside the event loop: a long text holds up no other client."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, ParamSpec, TypeVar

from dougong.engine.prompts import check_token_ids
from dougong.engine.tokenizer import Tokenizer

_NUM_THREADS = 2

P = ParamSpec("P")
T = TypeVar("T")


class TextWork:
    """A tokenizer in threads of its own. The library lets go of the interpreter while it works.

    Args:
        tokenizer: Of the model.
        vocab_size: Token ids run from 0 to ``vocab_size - 1``.
    """

    def __init__(self, tokenizer: Tokenizer, vocab_size: int) -> None:
        self.tokenizer = tokenizer
        self._vocab_size = vocab_size
        self._threads = ThreadPoolExecutor(_NUM_THREADS, thread_name_prefix="dougong-text")

    async def encode(self, text: str, *, add_special_tokens: bool = True) -> list[int]:
        """See `Tokenizer.encode`."""
        encode = self.tokenizer.encode
        return await self._apart(encode, text, add_special_tokens=add_special_tokens)

    async def encode_chat(
        self,
        messages: Sequence[Mapping[str, Any]],
        *,
        add_generation_prompt: bool = True,
        tools: Sequence[Mapping[str, Any]] | None = None,
        variables: Mapping[str, Any] | None = None,
    ) -> list[int]:
        """See `Tokenizer.encode_chat`."""
        return await self._apart(
            self.tokenizer.encode_chat,
            messages,
            add_generation_prompt=add_generation_prompt,
            tools=tools,
            variables=variables,
        )

    async def decode(self, token_ids: Sequence[int]) -> str:
        """Text of ids, special tokens included.

        Raises:
            RequestError: One of them is outside the vocabulary; names ``tokens``.
        """
        return await self._apart(self._decode, token_ids)

    def close(self) -> None:
        """End the threads once they have nothing to do."""
        self._threads.shutdown(wait=False, cancel_futures=True)

    def _decode(self, token_ids: Sequence[int]) -> str:
        check_token_ids("tokens", token_ids, self._vocab_size)
        return self.tokenizer.decode(token_ids, skip_special_tokens=False)

    async def _apart(self, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._threads, lambda: work(*args, **kwargs))

"""Grammars compiled beside the steps, each once."""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING

from dougong.grammar.compiling import compiled
from dougong.grammar.follower import GrammarFollower
from dougong.grammar.vocabulary import GrammarVocabulary, library_tokenizer
from dougong.messages import StructuredOutput

if TYPE_CHECKING:
    from llguidance import LLTokenizer

_NUM_THREADS = 2  # a slow grammar does not hold up a quick one
_NUM_KEPT = 64


class GrammarCompiler:
    """Compiles in threads of its own; the model's vocabulary is made ready there too, at first use.

    Its methods are called by one thread.

    Args:
        make_vocabulary: Called once, in one of the threads.

    Attributes:
        num_compiled: Grammars so far; one that was kept counts once.
        seconds: That compiling took, added up.
    """

    def __init__(self, make_vocabulary: Callable[[], GrammarVocabulary]) -> None:
        self._make_vocabulary = make_vocabulary
        self._pool = ThreadPoolExecutor(_NUM_THREADS, thread_name_prefix="dougong-grammar")
        self._lock = threading.Lock()
        self._tokenizer: LLTokenizer | None = None
        self._kept: OrderedDict[StructuredOutput, Future[GrammarFollower]] = OrderedDict()
        self.num_compiled = 0
        self.seconds = 0.0

    def compile(self, wish: StructuredOutput) -> Future[GrammarFollower]:
        """A follower at the start of a text, to be copied; or the `RequestError` that refuses."""
        future = self._kept.get(wish)
        if future is None:
            future = self._kept[wish] = self._pool.submit(self._compile, wish)
            if len(self._kept) > _NUM_KEPT:
                self._kept.popitem(last=False)
        else:
            self._kept.move_to_end(wish)
        return future

    def close(self) -> None:
        """Compile nothing more; what is being compiled is let go."""
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _compile(self, wish: StructuredOutput) -> GrammarFollower:
        tokenizer = self._ready_tokenizer()
        began = time.perf_counter()
        try:
            return compiled(wish, tokenizer)
        finally:
            with self._lock:
                self.num_compiled += 1
                self.seconds += time.perf_counter() - began

    def _ready_tokenizer(self) -> LLTokenizer:
        with self._lock:
            if self._tokenizer is None:
                self._tokenizer = library_tokenizer(self._make_vocabulary())
            return self._tokenizer

"""The masks of one step, computed while its forward runs."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor

import numpy as np
import numpy.typing as npt

from dougong.grammar.follower import GrammarFollower

_ALL = -1  # every bit of a word


class MaskJob:
    """Masks that are being computed.

    Attributes:
        req_ids: Requests, in row order.
    """

    def __init__(
        self, maker: MaskMaker, followers: Mapping[str, GrammarFollower], num_words: int
    ) -> None:
        self.req_ids = tuple(followers)
        self._maker = maker
        self._followers = tuple(followers.values())
        self._bits = np.zeros((len(followers), num_words), np.int32)
        self._future: Future[None] = maker.pool.submit(self._fill)

    def result(self) -> npt.NDArray[np.int32]:
        """Wait for them: int32 ``[len(req_ids), num_words]``; a set bit allows a token.

        A row whose grammar failed allows every token; what is drawn there is thrown away.
        """
        began = time.perf_counter()
        self._future.result()
        self._maker.waited_s += time.perf_counter() - began
        return self._bits

    def _fill(self) -> None:
        began = time.perf_counter()
        bits = self._bits
        rows = [(one.matcher, index) for index, one in enumerate(self._followers)]
        num_rows, num_words = bits.shape
        self._maker.library.unsafe_compute_mask_ptr(
            rows, bits.ctypes.data, num_words * bits.itemsize, num_rows
        )
        for row, follower in zip(bits, self._followers, strict=True):
            follower.note_mask(row)
            if follower.error is not None:
                row[:] = _ALL
        self._maker.num_masks += num_rows
        self._maker.seconds += time.perf_counter() - began


class MaskMaker:
    """Computes masks in a thread of its own, the rows of a step side by side.

    Attributes:
        num_masks: Rows so far.
        seconds: That they took, added up.
        waited_s: Of these, what a step waited for.
    """

    def __init__(self) -> None:
        from llguidance import LLExecutor

        self.library = LLExecutor(num_threads=_num_threads())
        self.pool = ThreadPoolExecutor(1, thread_name_prefix="dougong-masks")
        self.num_masks = 0
        self.seconds = 0.0
        self.waited_s = 0.0

    def start(self, followers: Mapping[str, GrammarFollower], num_words: int) -> MaskJob:
        """Begin with the masks of these texts; none of them is touched until they are there."""
        return MaskJob(self, followers, num_words)

    def close(self) -> None:
        """Compute nothing more."""
        self.pool.shutdown(wait=False, cancel_futures=True)


def _num_threads() -> int:
    """A quarter of what this process may use, 8 at most: the rest is the forward's."""
    return max(1, min(8, len(os.sched_getaffinity(0)) // 4))

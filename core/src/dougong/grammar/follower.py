"""One text that follows a grammar, token by token."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from dougong.grammar.refusal import refusal

if TYPE_CHECKING:
    from llguidance import LLMatcher

    from dougong.errors import RequestError

_DEAD_END = "NoExtension"  # how the library's reason begins


class GrammarFollower:
    """Where one text stands in its grammar; used by one thread at a time.

    Args:
        matcher: At the start of the text.
        kind: The client's field, for errors.
        quiet_ids: Tokens that may not end the text yet, while others are left.
        min_tokens: Tokens before which they may not.

    Attributes:
        kind: The client's field.
        matcher: The library's.
    """

    def __init__(
        self,
        matcher: LLMatcher,
        kind: str,
        *,
        quiet_ids: Sequence[int] = (),
        min_tokens: int = 0,
    ) -> None:
        self.matcher = matcher
        self.kind = kind
        self._mask: npt.NDArray[np.int32] | None = None
        self._has_choice = True
        self._quiet_ids = np.array(sorted(quiet_ids), np.int64)
        self._num_quiet = min_tokens if quiet_ids else 0
        self._num_tokens = 0

    def copy(self, *, quiet_ids: Sequence[int] = (), min_tokens: int = 0) -> GrammarFollower:
        """Another text at the same place."""
        return GrammarFollower(
            self.matcher.deep_copy(), self.kind, quiet_ids=quiet_ids, min_tokens=min_tokens
        )

    def note_mask(self, mask: npt.NDArray[np.int32]) -> None:
        """Take the mask of the next token, as the library computed it.

        Args:
            mask: ``[num_words]``; written: quiet tokens go, unless no other one is left.
        """
        if self._num_tokens < self._num_quiet:
            self._quieten(mask)
        self._mask = mask
        self._has_choice = bool(mask.any())

    def allows(self, token_id: int) -> bool:
        """Whether the next token may be this one."""
        mask = self._mask
        return mask is None or bool(int(mask[token_id // 32]) >> (token_id % 32) & 1)

    def advance(self, token_ids: Sequence[int]) -> RequestError | None:
        """Take in tokens that were drawn; why the text cannot go on, if so."""
        self._num_tokens += len(token_ids)
        self._mask = None
        for token_id in token_ids:
            self.matcher.consume_token(token_id)
        return self.error

    @property
    def is_complete(self) -> bool:
        """Whether nothing may follow: the text ends here."""
        return self.matcher.is_stopped() and self.matcher.is_accepting()

    @property
    def error(self) -> RequestError | None:
        """Why the text cannot go on: it has grown too costly, or into a dead end."""
        reason = self.matcher.get_error()
        if reason.startswith(_DEAD_END) or not self._has_choice:
            reason = "no text fits it, or none that begins as what was generated"
        return refusal(self.kind, reason) if reason else None

    def _quieten(self, mask: npt.NDArray[np.int32]) -> None:
        bits = np.left_shift(np.uint32(1), (self._quiet_ids % 32).astype(np.uint32))
        left = mask.view(np.uint32).copy()
        np.bitwise_and.at(left, self._quiet_ids // 32, ~bits)
        if left.any():
            mask.view(np.uint32)[:] = left

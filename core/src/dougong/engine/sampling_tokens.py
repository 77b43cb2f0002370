"""Sampling parameters against the model's vocabulary: what the ids may be, what words become."""

from __future__ import annotations

from dataclasses import dataclass, replace

from dougong.engine.prompts import check_token_ids
from dougong.engine.tokenizer import Tokenizer
from dougong.errors import RequestError
from dougong.messages import SamplingParams
from dougong.messages.request import MAX_BAD_SEQUENCE


@dataclass(frozen=True, slots=True)
class SamplingTokens:
    """Checks what only the vocabulary shows to be wrong.

    Attributes:
        tokenizer: Of the model.
        vocab_size: Of the model; ids run from 0 to below it.
        eos_token_ids: Ids that end a text unless a request ignores them.
    """

    tokenizer: Tokenizer
    vocab_size: int
    eos_token_ids: frozenset[int]

    def resolve(self, params: SamplingParams) -> SamplingParams:
        """The parameters with ``bad_words`` as token ids, checked.

        Raises:
            RequestError: An id is outside the vocabulary, a word has too many tokens, or some
                output would leave no token to go on with. Names the field.
        """
        for field in ("stop_token_ids", "allowed_token_ids"):
            check_token_ids(field, getattr(params, field) or (), self.vocab_size)
        check_token_ids("logit_bias", list(dict(params.logit_bias)), self.vocab_size)
        for token_ids in params.bad_token_ids:
            check_token_ids("bad_token_ids", token_ids, self.vocab_size)
        if params.bad_words:
            words = [ids for word in params.bad_words for ids in self._spellings(word)]
            sequences = dict.fromkeys((*params.bad_token_ids, *words))
            params = replace(params, bad_token_ids=tuple(sequences))
        if params.allowed_token_ids is not None or params.bad_token_ids:
            self._check_some_token_is_left(params)
        return params

    def _spellings(self, word: str) -> list[tuple[int, ...]]:
        """Tokens of a word alone and after a space."""
        spellings = [
            tuple(self.tokenizer.encode(text, add_special_tokens=False))
            for text in (word, f" {word}")
        ]
        for token_ids in spellings:
            check_token_ids("bad_words", token_ids, self.vocab_size)
            if not 1 <= len(token_ids) <= MAX_BAD_SEQUENCE:
                raise RequestError(
                    f"bad_words has {word!r}, which becomes {len(token_ids)} tokens; a word can "
                    f"have 1 to {MAX_BAD_SEQUENCE}. Give a shorter part of it.",
                    field="bad_words",
                )
        return spellings

    def _check_some_token_is_left(self, params: SamplingParams) -> None:
        """Whatever was generated before: a row without any choice has no right token."""
        forbidden = {token_ids[-1] for token_ids in params.bad_token_ids}
        if params.min_tokens:
            forbidden |= set(params.stop_token_ids)
            if not params.ignore_eos:
                forbidden |= self.eos_token_ids
        allowed = params.allowed_token_ids
        if allowed is None:
            is_left = len(forbidden) < self.vocab_size
        else:
            is_left = not forbidden.issuperset(allowed)
        if not is_left:
            field = "bad_words" if allowed is None else "allowed_token_ids"
            raise RequestError(
                f"{field} can leave no token to go on with: bad words, and stop tokens before "
                "min_tokens, may forbid each that is allowed. Allow one token that neither "
                "forbids.",
                field=field,
            )

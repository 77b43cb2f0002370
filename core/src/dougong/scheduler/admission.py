"""What can never be served is refused before it waits."""

from __future__ import annotations

from dataclasses import dataclass

from dougong.config.cache import CacheConfig
from dougong.config.scheduler import SchedulerConfig
from dougong.errors import RequestError
from dougong.messages import Request


@dataclass(frozen=True, slots=True)
class RequestLimits:
    """How long one request can get.

    Attributes:
        max_model_len: Prompt and generated tokens together.
        num_token_slots: Tokens the KV cache holds when one request has all usable blocks.
    """

    max_model_len: int
    num_token_slots: int

    @classmethod
    def of(cls, scheduler: SchedulerConfig, cache: CacheConfig) -> RequestLimits:
        """The limits under these settings."""
        return cls(scheduler.max_model_len, cache.num_token_slots)

    @property
    def max_len(self) -> int:
        """Prompt and generated tokens at most; the last one is never fed back, so needs no slot."""
        return min(self.max_model_len, self.num_token_slots + 1)

    @property
    def max_prompt_len(self) -> int:
        """Prompt tokens at most: one token is always generated."""
        return self.max_len - 1

    @property
    def max_pooled_len(self) -> int:
        """Tokens of a text that becomes a vector, at most: nothing is generated."""
        return min(self.max_model_len, self.num_token_slots)

    def check_request(self, request: Request) -> None:
        """Refuse what can never be served.

        Raises:
            RequestError: The prompt is empty or too long; the message gives the usable limit.
        """
        num_tokens = len(request.prompt_token_ids)
        if not num_tokens:
            raise RequestError(
                "The prompt has no tokens, so there is nothing to go on from. Send one token at "
                "least, such as the beginning-of-text token.",
                field="prompt",
            )
        if request.pooling_params is not None:
            self._check_pooled(num_tokens)
        elif num_tokens > self.max_prompt_len:
            raise RequestError(
                f"The prompt has {num_tokens} tokens and can have at most {self.max_prompt_len}: "
                f"{self._reason()}. Shorten the prompt.",
                field="prompt",
            )

    def _check_pooled(self, num_tokens: int) -> None:
        most = self.max_pooled_len
        if num_tokens > most:
            is_model = most == self.max_model_len
            why = "the model length" if is_model else "what the KV cache has room for"
            raise RequestError(
                f"The text has {num_tokens} tokens and can have at most {most}, {why}. Shorten it.",
                field="input",
            )

    def max_len_of(self, request: Request) -> int:
        """Prompt and generated tokens at which ``request`` ends."""
        max_tokens = request.sampling_params.max_tokens
        if max_tokens is None:
            return self.max_len
        return min(self.max_len, len(request.prompt_token_ids) + max_tokens)

    def _reason(self) -> str:
        if self.max_model_len <= self.num_token_slots + 1:
            return f"the model length is {self.max_model_len}, one of them to be generated"
        return f"the KV cache has room for {self.num_token_slots} tokens"

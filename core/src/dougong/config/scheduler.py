"""The resolved scheduler settings: every value settled before the first request."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

from dougong.errors import ConfigError

SchedulingPolicy = Literal["fcfs", "priority"]
"""``fcfs``: by arrival. ``priority``: lowest ``Request.priority`` first, then by arrival."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SchedulerConfig:
    """How many requests and tokens one step may hold, and in which order requests come.

    Attributes:
        max_num_seqs: Requests running at once.
        max_num_batched_tokens: Tokens computed per step over all requests; at least
            ``max_num_seqs``, so that every running request moves in every step.
        max_model_len: Prompt and generated tokens of one request together.
        policy: See `SchedulingPolicy`.
        long_prefill_token_threshold: Tokens of one prompt computed per step at most, so that a
            long prompt leaves room for others; ``None``: as many as the budget has.
        has_whole_prompts: A prompt is computed in one step or not at all, since its tokens see
            those after them.

    Raises:
        ConfigError: A value is out of range; all problems in one message.
    """

    max_num_seqs: int
    max_num_batched_tokens: int
    max_model_len: int
    policy: SchedulingPolicy = "fcfs"
    long_prefill_token_threshold: int | None = None
    has_whole_prompts: bool = False

    def __post_init__(self) -> None:
        """Check every field."""
        problems = tuple(self._problems())
        if problems:
            raise ConfigError("The scheduler configuration cannot work:", problems)

    def _problems(self) -> list[str]:
        problems = []
        if self.max_num_seqs < 1:
            problems.append(f"max_num_seqs={self.max_num_seqs} must be at least 1.")
        if self.max_num_batched_tokens < self.max_num_seqs:
            problems.append(
                f"max_num_batched_tokens={self.max_num_batched_tokens} is below "
                f"max_num_seqs={self.max_num_seqs}: a step could not hold one token of every "
                "running request. Raise the first or lower the second."
            )
        if self.has_whole_prompts and self.max_num_batched_tokens < self.max_model_len:
            problems.append(
                f"max_num_batched_tokens={self.max_num_batched_tokens} is below "
                f"max_model_len={self.max_model_len}, and this model reads a whole text in one "
                "step. Raise the first or lower the second."
            )
        if self.max_model_len < 2:
            problems.append(
                f"max_model_len={self.max_model_len} must be at least 2: one prompt token and "
                "one generated token."
            )
        if self.policy not in get_args(SchedulingPolicy):
            known = ", ".join(get_args(SchedulingPolicy))
            problems.append(f"policy={self.policy!r} is unknown; it takes one of: {known}.")
        threshold = self.long_prefill_token_threshold
        if threshold is not None and threshold < 1:
            problems.append(
                f"long_prefill_token_threshold={threshold} must be at least 1; leave it unset "
                "for no threshold."
            )
        return problems

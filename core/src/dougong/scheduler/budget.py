"""How many tokens of a prompt one step computes."""

from __future__ import annotations


def chunk_size(num_uncomputed: int, *, num_left: int, threshold: int | None) -> int:
    """Tokens to compute now.

    Args:
        num_uncomputed: Known tokens without keys and values.
        num_left: What is left of the step's token budget.
        threshold: ``SchedulerConfig.long_prefill_token_threshold``.
    """
    size = min(num_uncomputed, num_left)
    return size if threshold is None else min(size, threshold)

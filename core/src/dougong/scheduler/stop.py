"""When a sequence has ended."""

from __future__ import annotations

from dougong.messages import FinishReason
from dougong.scheduler.state import SequenceState


def finish_reason(state: SequenceState) -> FinishReason | None:
    """Why ``state`` ends with its last token, which was just generated; ``None`` when it goes on.

    A stop token drawn before ``min_tokens`` others exist is a token like any other. Stop strings
    are the front end's: it reads the text and aborts.
    """
    num_tokens = len(state.token_ids)
    if num_tokens > state.min_stop_len and state.token_ids[-1] in state.stop_token_ids:
        return FinishReason.STOP
    return FinishReason.LENGTH if num_tokens >= state.max_len else None

"""What a step brought to a text that follows a grammar: more, its completion, or a dead end."""

from __future__ import annotations

import msgspec

from dougong.errors import DougongError, RequestError
from dougong.grammar import GrammarFollower
from dougong.messages import FinishReason, RequestDelta


def followed(follower: GrammarFollower, delta: RequestDelta) -> RequestDelta:
    """A delta of a text that goes on, or its end."""
    error: DougongError | None = follower.error
    if error is None:
        is_allowed = all(map(follower.allows, delta.new_token_ids))
        error = follower.advance(delta.new_token_ids) if is_allowed else _not_allowed(delta)
    if error is not None:
        return ended_by(error, delta.request_id)
    if delta.finish_reason is None and follower.is_complete:
        return msgspec.structs.replace(delta, finish_reason=FinishReason.STOP)
    return delta


def _not_allowed(delta: RequestDelta) -> DougongError:
    return DougongError(
        f"The platform's worker drew token {delta.new_token_ids[-1]}, which the request's "
        "structured_output forbids, so the request was ended; others go on. Ask for none on this "
        "platform, and report it to its vendor."
    )


def ended_by(error: DougongError, request_id: str) -> RequestDelta:
    """The end of a request that cannot be served."""
    return RequestDelta(
        request_id,
        [],
        finish_reason=FinishReason.ABORT,
        error=str(error),
        error_field=getattr(error, "field", None),
        is_internal=not isinstance(error, RequestError),
    )

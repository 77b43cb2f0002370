"""Requests that repeat the prompt of another one, so that it is computed once."""

from __future__ import annotations

from collections.abc import Mapping

from dougong.errors import RequestError
from dougong.messages import Request
from dougong.scheduler.state import Phase, SequenceState


def parent_of(request: Request, live: Mapping[str, SequenceState]) -> SequenceState | None:
    """The live request whose prompt ``request`` repeats, if it has one.

    Raises:
        RequestError: The two prompts or adapters differ.
    """
    if request.fork_of is None:
        return None
    parent = live.get(request.fork_of)
    if parent is None:
        return None
    own, other = ((one.prompt_token_ids, one.lora) for one in (request, parent.request))
    if own != other:
        raise RequestError(
            f"fork_of={request.fork_of!r} names a request with another prompt or adapter, so there "
            "is nothing to share. Fork a request of the same prompt, or leave fork_of unset.",
            field="fork_of",
        )
    return parent


def try_hold(fork: SequenceState, parent: SequenceState) -> bool:
    """Tie ``fork`` to ``parent``; hold it back, and say so, while the prompt is not computed."""
    fork.parent = parent
    if parent.num_generated_tokens:
        return False
    fork.phase = Phase.HELD
    parent.forks.append(fork)
    return True


def release(parent: SequenceState) -> list[SequenceState]:
    """Forks that may queue up now that ``parent`` has its prompt computed, or is gone.

    Where it is gone before that, the first fork takes its place and the others go on waiting.
    """
    forks = [fork for fork in parent.forks if fork.phase is Phase.HELD]
    parent.forks = []
    if forks and not parent.num_generated_tokens:
        heir, *others = forks
        heir.parent, heir.forks = None, heir.forks + others
        for fork in others:
            fork.parent = heir
        forks = [heir]
    for fork in forks:
        fork.phase = Phase.WAITING
    return forks

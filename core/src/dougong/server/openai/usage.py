"""How many tokens a request took."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from dougong.messages import RequestOutput


def usage(outputs: Iterable[RequestOutput]) -> dict[str, Any]:
    """Over all prompts of a request; each prompt counts once, whatever ``n`` is."""
    prompt, cached, generated = 0, 0, 0
    for output in outputs:
        prompt += len(output.prompt_token_ids)
        cached += output.num_cached_tokens
        generated += sum(len(one.token_ids) for one in output.outputs)
    return {
        "prompt_tokens": prompt,
        "completion_tokens": generated,
        "total_tokens": prompt + generated,
        "prompt_tokens_details": {"cached_tokens": cached},
    }

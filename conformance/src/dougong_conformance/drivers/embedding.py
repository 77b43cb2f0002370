"""Vectors of texts by the real engine."""

from __future__ import annotations

from typing import Any

from dougong_conformance.drivers.engine import opened
from dougong_conformance.procedures import procedure
from dougong_conformance.session import Session


@procedure("engine.embed")
def embed(
    session: Session,
    model: str,
    dtype: str,
    texts: list[list[int]],
    options: dict[str, Any] | None = None,
    one_by_one: bool = False,
    repeats: int = 1,
) -> dict[str, Any]:
    """Vectors.

    Args:
        session: The plugin.
        model: An embedder of the zoo.
        dtype: Compute dtype.
        texts: Token ids.
        options: Of the engine, beside the suite's.
        one_by_one: Each text alone instead of all together.
        repeats: The same again, so many times; the vectors are those of the last.

    Returns:
        ``vectors``, one per text, and ``cached``: tokens found in the cache.
    """
    llm = opened(session, model, dtype, **(options or {}))
    for _ in range(repeats):
        if one_by_one:
            outputs = [llm.embed([text], progress=False)[0] for text in texts]
        else:
            outputs = llm.embed(texts, progress=False)
    return {
        "vectors": [[float(number) for number in one.embedding] for one in outputs],
        "cached": [one.num_cached_tokens for one in outputs],
    }

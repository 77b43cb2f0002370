"""What can be asked of a model that makes vectors, and of one that does not."""

from __future__ import annotations

from dougong.config.pooling import PoolingConfig
from dougong.errors import RequestError
from dougong.messages import PoolingParams


def check_makes_text(pooling: PoolingConfig | None) -> None:
    """Refuse a request for text where vectors are made.

    Raises:
        RequestError: Names ``model``.
    """
    if pooling is not None:
        raise RequestError(
            "This model makes vectors and generates no text (runner=pooling). Ask it for "
            "embeddings, or send the request to a model that generates.",
            field="model",
        )


def check_makes_vectors(pooling: PoolingConfig | None) -> PoolingConfig:
    """Refuse a request for a vector where text is generated.

    Raises:
        RequestError: Names ``model``.
    """
    if pooling is None:
        raise RequestError(
            "This model generates text and makes no vectors. Send the request to an embedding "
            "model, or start this one with --runner pooling.",
            field="model",
        )
    return pooling


def check_pooling(params: PoolingParams, pooling: PoolingConfig) -> None:
    """Refuse a length that the checkpoint was not trained for.

    Raises:
        RequestError: Names ``dimensions``.
    """
    size, spec = params.dimensions, pooling.spec
    if size is None or size == pooling.embedding_size:
        return
    if not spec.is_matryoshka:
        raise RequestError(
            f"dimensions={size}: this model's vectors have {pooling.embedding_size} elements, and "
            "its checkpoint does not say that they may be cut (is_matryoshka or "
            "matryoshka_dimensions in its config.json). Leave dimensions out.",
            field="dimensions",
        )
    if size > pooling.embedding_size or (spec.dimensions and size not in spec.dimensions):
        takes = ", ".join(map(str, spec.dimensions)) or f"1 to {pooling.embedding_size}"
        raise RequestError(f"dimensions={size}: this model takes {takes}.", field="dimensions")


def prompt_of(name: str | None, pooling: PoolingConfig) -> str:
    """The text that goes before a client's.

    Raises:
        RequestError: The checkpoint has none of that name; names ``prompt_name``.
    """
    name = pooling.default_prompt if name is None else name
    if name is None:
        return ""
    if name not in pooling.prompts:
        known = ", ".join(pooling.prompts) or "none"
        raise RequestError(
            f"prompt_name={name!r} is not among the checkpoint's prompts: {known}.",
            field="prompt_name",
        )
    return pooling.prompts[name]

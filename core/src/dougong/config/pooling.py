"""What a model is used for, and how its hidden states become one vector."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from dougong.config.decision import CHECKPOINT, CORE, USER
from dougong.config.model import ModelConfig
from dougong.config.wishes import Wishes
from dougong.messages.pooling import PoolingMethod, PoolingSpec

_AUTO, _GENERATE, _POOLING = "auto", "generate", "pooling"


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolingConfig:
    """How vectors are made.

    Attributes:
        spec: From hidden states.
        embedding_size: Elements of a vector that is not cut.
        prompts: Texts to put before a client's, by the name that the checkpoint gives them.
        default_prompt: Name of the one that is put before every text; ``None``: none is.
    """

    spec: PoolingSpec
    embedding_size: int
    prompts: Mapping[str, str] = field(default_factory=dict)
    default_prompt: str | None = None


def resolve_pooling(wishes: Wishes, model: ModelConfig) -> PoolingConfig | None:
    """How the model is used: ``None`` to generate text.

    Args:
        wishes: All of them; decisions and problems are noted there.
        model: As its checkpoint describes it.
    """
    asked = wishes.get("runner", str) or _AUTO
    if asked not in (_AUTO, _GENERATE, _POOLING):
        wishes.refuse(f"runner={asked!r} is unknown; it takes auto, generate or pooling.")
        asked = _AUTO
    if asked == _GENERATE and model.is_encoder:
        wishes.refuse(
            f"runner=generate was asked for, and {model.architecture} is an encoder: each of its "
            "tokens sees those after it, so it predicts none. Leave runner unset, or choose a "
            "model that generates text."
        )
        asked = _POOLING
    runner, author, reason = _choose_runner(asked, model)
    wishes.settle("runner", runner, author, reason, is_default=runner == _GENERATE)
    return _pooling(wishes, model) if runner == _POOLING else None


def _choose_runner(asked: str, model: ModelConfig) -> tuple[str, str, str]:
    if asked != _AUTO:
        return asked, USER, "asked for"
    if model.is_encoder:
        return _POOLING, CHECKPOINT, f"{model.architecture} is an encoder"
    if model.pooling.source:
        return _POOLING, CHECKPOINT, f"{model.pooling.source} says how texts become vectors"
    return _GENERATE, CHECKPOINT, f"{model.architecture} predicts tokens"


def _pooling(wishes: Wishes, model: ModelConfig) -> PoolingConfig:
    stated = model.pooling
    for problem in stated.problems:
        wishes.refuse(f"{model.reference} cannot give vectors: {problem}")
    usual: PoolingMethod = "mean" if model.is_encoder else "last"
    method = stated.method or usual
    if stated.method:
        wishes.settle("pooling", method, CHECKPOINT, f"{stated.source} of the checkpoint")
    else:
        seen = "every token sees the whole text" if model.is_encoder else (
            "the last token alone has seen the whole text"
        )  # fmt: skip
        wishes.settle("pooling", method, CORE, f"the checkpoint does not say, and {seen}")
    is_normalized = stated.is_normalized
    if is_normalized is None:
        is_normalized = True
        wishes.settle("normalize", True, CORE, "the checkpoint does not say")
    else:
        wishes.settle("normalize", is_normalized, CHECKPOINT, f"{stated.source} of the checkpoint")
    spec = PoolingSpec(
        method=method,
        is_normalized=is_normalized,
        dimensions=stated.dimensions,
        is_matryoshka=stated.is_matryoshka or bool(stated.dimensions),
    )
    return PoolingConfig(
        spec=spec,
        embedding_size=model.hidden_size,
        prompts=stated.prompts,
        default_prompt=stated.default_prompt,
    )


def refuse_beside_pooling(wishes: Wishes, model: ModelConfig, pooling: PoolingConfig) -> None:
    """Refuse options that have no meaning for this use of the model."""
    refused = {"enable_lora": "adapters are for models that generate text", "lora": "the same"}
    if model.is_encoder:
        kept = f"{model.architecture} keeps no keys and values"
        refused |= dict.fromkeys(
            ("block_size", "kv_cache_dtype", "kv_cache_memory_bytes", "num_kv_blocks"), kept
        )
        refused["attention_backend"] = f"{kept}: its attention is the op encoder_attention"
        refused["long_prefill_token_threshold"] = "an encoder reads a whole text in one step"
    for name, why in refused.items():
        value = wishes.asked.get(name)
        if value is not None and value.value not in (None, False) and not value.is_default:
            if value.plugin is None:
                wishes.refuse(f"{name}={value.value} was asked for, and {why}. Leave it unset.")
            wishes.drop(name)
    if reads_every_token(pooling.spec) and wishes.get("enable_prefix_caching", bool):
        if wishes.is_explicit("enable_prefix_caching"):
            wishes.refuse(
                f"enable_prefix_caching=True was asked for, and pooling={pooling.spec.method} "
                "needs hidden states that a cached block does not have. Leave it unset."
            )
        wishes.drop("enable_prefix_caching")


def reads_every_token(spec: PoolingSpec) -> bool:
    """Whether tokens of a cached prefix would be missing."""
    return spec.method != "last"

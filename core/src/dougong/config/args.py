"""The user's wishes, under the names operators know; nothing is decided here."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any, TypedDict

from dougong.config.scheduler import SchedulingPolicy
from dougong.errors import ConfigError


class EngineOptions(TypedDict, total=False):
    """The fields of `EngineArgs` but ``model``, as keyword arguments."""

    revision: str | None
    platform: str | None
    devices: str | None
    dtype: str | None
    max_model_len: int | None
    block_size: int | None
    kv_cache_dtype: str | None
    kv_cache_memory_bytes: int | None
    num_kv_blocks: int | None
    max_num_seqs: int | None
    max_num_batched_tokens: int | None
    long_prefill_token_threshold: int | None
    enable_prefix_caching: bool | None
    scheduling_policy: SchedulingPolicy | None
    attention_backend: str | None
    enforce_eager: bool | None
    device_memory_utilization: float | None
    seed: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineArgs:
    """What the user asked for. ``None`` leaves a value to the core, the platform or the checkpoint.

    Attributes:
        model: Local folder, ``.gguf`` path, Hugging Face id, or ``demo``.
        revision: Commit, tag or branch of a Hugging Face id.
        platform: Name of the platform; obeyed, or the start fails.
        devices: Indices or uuids of its devices, comma-separated; obeyed, or the start fails.
        dtype: Compute dtype; ``auto`` is the same as unset: the checkpoint's, where claimed.
        max_model_len: Prompt and generated tokens of one request together.
        block_size: Tokens per KV block.
        kv_cache_dtype: Dtype of the stored KV cache; ``auto`` is the same as unset.
        kv_cache_memory_bytes: Size of the KV cache.
        num_kv_blocks: Size of the KV cache in blocks, instead of bytes.
        max_num_seqs: Requests in one step.
        max_num_batched_tokens: Tokens in one step.
        long_prefill_token_threshold: Tokens of one prompt in one step.
        enable_prefix_caching: Reuse the KV of equal prefixes.
        scheduling_policy: ``fcfs`` or ``priority``.
        attention_backend: Namespaced key of the attention backend.
        enforce_eager: No graph capture and no compilation.
        device_memory_utilization: Share of the device's memory limit to use, above 0 and at most 1.
        seed: Of everything that draws without a seed of its own.
    """

    model: str
    revision: str | None = None
    platform: str | None = None
    devices: str | None = None
    dtype: str | None = None
    max_model_len: int | None = None
    block_size: int | None = None
    kv_cache_dtype: str | None = None
    kv_cache_memory_bytes: int | None = None
    num_kv_blocks: int | None = None
    max_num_seqs: int | None = None
    max_num_batched_tokens: int | None = None
    long_prefill_token_threshold: int | None = None
    enable_prefix_caching: bool | None = None
    scheduling_policy: SchedulingPolicy | None = None
    attention_backend: str | None = None
    enforce_eager: bool | None = None
    device_memory_utilization: float | None = None
    seed: int | None = None

    @classmethod
    def from_options(cls, options: Mapping[str, Any]) -> EngineArgs:
        """Wishes by name, as Python callers write them.

        Raises:
            ConfigError: A name is unknown; the message lists the known ones.
        """
        known = [field.name for field in fields(cls)]
        unknown = sorted(set(options) - set(known))
        if unknown:
            raise ConfigError(
                f"Unknown engine option{'s' if len(unknown) > 1 else ''} {', '.join(unknown)}. "
                f"Known ones: {', '.join(known)}."
            )
        return cls(**options)

    @property
    def explicit(self) -> frozenset[str]:
        """Names of the fields that were set; a dtype of ``auto`` counts as unset."""
        return frozenset(
            name for name, value in asdict(self).items() if value is not None and value != "auto"
        )

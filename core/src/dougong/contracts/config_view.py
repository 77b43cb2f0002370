"""The configuration as a plugin sees it, and the changes it may propose: data, never a side
effect."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from dougong.messages.pooling import PoolingSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigView:
    """A frozen copy of the engine's configuration.

    In `Platform.check_and_update_config` a field nobody decided yet is ``None``. In a worker every
    field has its final value, but for an automatic ``num_kv_blocks``: `Worker.initialize_kv_cache`
    brings that number once memory was measured.

    Attributes:
        model: The reference as the user wrote it.
        architecture: From the checkpoint (``"LlamaForCausalLM"``).
        hf_config: The checkpoint's configuration in Hugging Face's vocabulary.
        dtype: Compute dtype.
        kv_cache_dtype: Dtype of the stored KV cache.
        max_model_len: Prompt and output tokens of one request, at most.
        block_size: Tokens per KV block.
        num_kv_blocks: Schedulable KV blocks.
        max_num_seqs: Requests in one step, at most.
        max_num_batched_tokens: Tokens in one step, at most.
        enable_prefix_caching: Blocks of equal prefixes are shared.
        attention_backend: A namespaced key, where one was asked for or chosen.
        tensor_parallel_size: Ranks that split each layer.
        enforce_eager: No graph capture and no compilation.
        device_memory_utilization: Share of the device's memory limit the engine may use.
        seed: Of everything that draws.
        pooling: How hidden states become one vector; ``None``: the model generates text.
        explicit: Names of the fields the user set; proposing another value for one is an error.
    """

    model: str
    architecture: str | None = None
    hf_config: Mapping[str, Any] = field(default_factory=dict)
    dtype: str | None = None
    kv_cache_dtype: str | None = None
    max_model_len: int | None = None
    block_size: int | None = None
    num_kv_blocks: int | None = None
    max_num_seqs: int | None = None
    max_num_batched_tokens: int | None = None
    enable_prefix_caching: bool | None = None
    attention_backend: str | None = None
    tensor_parallel_size: int = 1
    enforce_eager: bool | None = None
    device_memory_utilization: float | None = None
    seed: int = 0
    pooling: PoolingSpec | None = None
    explicit: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class ConfigChange:
    """A platform's proposal for one field of `ConfigView`; the core applies it and reports it.

    Attributes:
        field: Name of the field.
        value: The value this platform needs or prefers.
        reason: The sentence the operator reads beside it.
    """

    field: str
    value: Any
    reason: str

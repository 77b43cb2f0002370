"""Models and devices that exist on paper only."""

from __future__ import annotations

from typing import Any

from dougong.config import AttentionLayerKind, ModelConfig
from dougong.contracts import Capabilities, Claims, DeviceFacts

GIB = 1024**3


def made_up_model(**changes: Any) -> ModelConfig:
    """A model of a billion parameters in bfloat16."""
    values: dict[str, Any] = {
        "reference": "made-up/model",
        "path": "/nowhere",
        "architecture": "LlamaForCausalLM",
        "vocab_size": 32_000,
        "hidden_size": 2048,
        "intermediate_size": 5632,
        "num_layers": 22,
        "num_heads": 32,
        "num_kv_heads": 4,
        "head_dim": 64,
        "attention_layers": (AttentionLayerKind(tuple(range(22))),),
        "max_position": 4096,
        "dtype": "bfloat16",
        "num_parameters": 1_000_000_000,
        "stored_bytes": 2_000_000_000,
        "hf_config": {"architectures": ["LlamaForCausalLM"]},
    }
    return ModelConfig(**(values | changes))


def made_up_card(
    *, facts: dict[str, Any] | None = None, claims: dict[str, Any] | None = None
) -> Capabilities:
    """A card of 24 GiB with known rates; ``facts`` and ``claims`` change single values."""
    claim_values: dict[str, Any] = {
        "arch": "paper1",
        "dtypes": ("bfloat16", "float32"),
        "kv_dtypes": ("bfloat16", "float32"),
        "kv_block_sizes": (16, 32),
        "memory_bandwidth": 1e12,
        "compute_rate": {"bfloat16": 200e12, "float32": 50e12},
    }
    fact_values: dict[str, Any] = {
        "device_index": 0,
        "name": "Paper 1",
        "arch": "paper1",
        "memory_total_bytes": 24 * GIB,
        "memory_free_bytes": 24 * GIB,
    }
    return Capabilities(
        Claims(**(claim_values | (claims or {}))), DeviceFacts(**(fact_values | (facts or {})))
    )

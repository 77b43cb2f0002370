"""A tiny random Llama as a GGUF file, its linear weights quantized."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from gguf import GGMLQuantizationType

from tests.support.checkpoints import (
    LLAMA_CONFIG,
    byte_level_metadata,
    byte_level_tokenizer,
    random_rows,
    write_gguf,
)

VOCAB_SIZE = 400


def write_tiny_gguf(path: Path, kind: GGMLQuantizationType = GGMLQuantizationType.Q8_0) -> Path:
    """Two layers; norms in float32, everything else in ``kind``."""
    hidden, inner = LLAMA_CONFIG["hidden_size"], LLAMA_CONFIG["intermediate_size"]
    kv_rows = hidden // LLAMA_CONFIG["num_attention_heads"] * LLAMA_CONFIG["num_key_value_heads"]
    shapes = {
        "attn_q": (hidden, hidden),
        "attn_k": (kv_rows, hidden),
        "attn_v": (kv_rows, hidden),
        "attn_output": (hidden, hidden),
        "ffn_gate": (inner, hidden),
        "ffn_up": (inner, hidden),
        "ffn_down": (hidden, inner),
    }
    norm = (np.ones(hidden, np.float32), GGMLQuantizationType.F32)
    tokenizer = byte_level_tokenizer(vocab_size=VOCAB_SIZE)
    tensors = {"output_norm.weight": norm}
    names = {"token_embd": (tokenizer.get_vocab_size(), hidden)}
    names["output"] = names["token_embd"]
    for layer in range(LLAMA_CONFIG["num_hidden_layers"]):
        for part in ("attn_norm", "ffn_norm"):
            tensors[f"blk.{layer}.{part}.weight"] = norm
        names |= {f"blk.{layer}.{part}": shape for part, shape in shapes.items()}
    for seed, (name, (rows, columns)) in enumerate(names.items(), start=1):
        tensors[f"{name}.weight"] = (random_rows(rows, columns, seed=seed), kind)
    return write_gguf(path, tensors, metadata=byte_level_metadata(tokenizer))

"""Small checkpoints written for tests: safetensors folders and GGUF files."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import safetensors.torch
import tokenizers
import torch
from gguf import GGMLQuantizationType
from tokenizers import decoders, models, pre_tokenizers, processors, trainers

LLAMA_CONFIG: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 128,
    "rms_norm_eps": 1e-5,
    "rope_theta": 10000.0,
    "vocab_size": 128,
    "tie_word_embeddings": False,
}

# head_dim 64, theta 500,000: plain over scaled frequencies, as transformers 5.24 computes them
LLAMA3_TABLE = (1.0,) * 15 + (1.65133, 3.29226, 9.66673) + (32.0,) * 14
LLAMA3 = {
    "rope_type": "llama3",
    "factor": 32.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 8192,
}


def write_shards(
    folder: Path,
    shards: Sequence[Mapping[str, torch.Tensor]],
    *,
    config: Mapping[str, Any] = LLAMA_CONFIG,
    with_index: bool = True,
) -> list[Path]:
    """Write a folder with config.json, numbered shards and, by default, their index."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config))
    paths = []
    weight_map: dict[str, str] = {}
    for number, tensors in enumerate(shards, start=1):
        path = folder / f"model-{number:05d}-of-{len(shards):05d}.safetensors"
        safetensors.torch.save_file(dict(tensors), path)
        weight_map |= dict.fromkeys(tensors, path.name)
        paths.append(path)
    if with_index:
        index = {"metadata": {}, "weight_map": weight_map}
        (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    return paths


def write_gguf(
    path: Path,
    tensors: Mapping[str, tuple[np.ndarray, GGMLQuantizationType]],
    *,
    architecture: str = "llama",
    config: Mapping[str, Any] = LLAMA_CONFIG,
    metadata: Mapping[str, Any] | None = None,
) -> Path:
    """Write a GGUF file.

    Args:
        path: The file.
        tensors: GGUF name to (float32 values, or the bytes of quantised rows; storage type).
        architecture: ``general.architecture``.
        config: Source of the usual metadata.
        metadata: More keys; strings, numbers, bools, and lists of them.
    """
    writer = gguf.GGUFWriter(path, architecture)
    writer.add_block_count(config["num_hidden_layers"])
    writer.add_context_length(config["max_position_embeddings"])
    writer.add_embedding_length(config["hidden_size"])
    writer.add_feed_forward_length(config["intermediate_size"])
    writer.add_head_count(config["num_attention_heads"])
    writer.add_head_count_kv(config["num_key_value_heads"])
    writer.add_layer_norm_rms_eps(config["rms_norm_eps"])
    writer.add_rope_freq_base(config["rope_theta"])
    for key, value in (metadata or {}).items():
        _add_value(writer, key, value)
    for name, (values, kind) in tensors.items():
        is_quantised = values.dtype == np.uint8
        data = values if is_quantised else gguf.quants.quantize(values, kind)
        writer.add_tensor(name, data, raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def _add_value(writer: gguf.GGUFWriter, key: str, value: Any) -> None:
    if isinstance(value, bool):
        writer.add_bool(key, value)
    elif isinstance(value, int):
        writer.add_uint32(key, value)
    elif isinstance(value, float):
        writer.add_float32(key, value)
    elif isinstance(value, str):
        writer.add_string(key, value)
    else:
        writer.add_array(key, value)


def random_rows(num_rows: int, num_columns: int, *, seed: int = 0) -> np.ndarray:
    """float32 values of the size weights have."""
    rows = np.random.default_rng(seed).standard_normal((num_rows, num_columns)) * 0.05
    return rows.astype(np.float32)


def random_blocks(kind: GGMLQuantizationType, num_rows: int, num_columns: int) -> np.ndarray:
    """Bytes of quantised rows: every bit random but the scales', which stay small and finite."""
    block_size, block_bytes = gguf.GGML_QUANT_SIZES[kind]
    shape = (num_rows * num_columns // block_size, block_bytes)
    raw = np.random.default_rng(int(kind)).integers(0, 256, shape, dtype=np.uint8)
    for offset in _SCALE_OFFSETS[kind.name]:
        raw[:, offset + 1] = 0x20 | (raw[:, offset + 1] & 0x8F)  # float16 exponents near 1/128
    return raw.reshape(num_rows, -1)


_SCALE_OFFSETS = {
    "Q4_0": (0,),
    "Q4_1": (0, 2),
    "Q5_0": (0,),
    "Q5_1": (0, 2),
    "Q8_0": (0,),
    "Q2_K": (80, 82),
    "Q3_K": (108,),
    "Q4_K": (0, 2),
    "Q5_K": (0, 2),
    "Q6_K": (208,),
}


def byte_level_tokenizer(*, vocab_size: int = 400) -> tokenizers.Tokenizer:
    """A small byte-level BPE tokenizer, trained on a few lines, with three special tokens."""
    backend = tokenizers.Tokenizer(models.BPE())
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        special_tokens=["<|bos|>", "<|end|>", "<|user|>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    lines = ["the quick brown fox jumps over the lazy dog", "def main():\n    return 12345"] * 9
    backend.train_from_iterator(lines, trainer)
    return backend


def byte_level_metadata(backend: tokenizers.Tokenizer, *, pre: str = "gpt-2") -> dict[str, Any]:
    """The same tokenizer as GGUF metadata."""
    model = json.loads(backend.to_str())["model"]
    tokens = sorted(model["vocab"], key=model["vocab"].__getitem__)
    return {
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": pre,
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.token_type": [3, 3, 3] + [1] * (len(tokens) - 3),
        "tokenizer.ggml.merges": [" ".join(merge) for merge in model["merges"]],
        "tokenizer.ggml.bos_token_id": 0,
        "tokenizer.ggml.eos_token_id": 1,
        "tokenizer.ggml.eot_token_id": 2,
    }


TOKENIZER_SETTINGS: dict[str, Any] = {
    "bos_token": "<|bos|>",
    "eos_token": {"content": "<|end|>"},
}


def write_tokenizer_folder(folder: Path, **files: Any) -> Path:
    """Write a checkpoint with `byte_level_tokenizer`, which adds BOS, truncates and pads.

    Args:
        folder: Where.
        files: Contents of JSON files by name without suffix; ``tokenizer_config`` has a default.
    """
    write_shards(folder, [{"w": torch.ones(2)}])
    backend = byte_level_tokenizer()
    backend.post_processor = processors.TemplateProcessing(
        single="<|bos|> $A", special_tokens=[("<|bos|>", 0)]
    )
    backend.enable_truncation(4)
    backend.enable_padding()
    backend.save(str(folder / "tokenizer.json"))
    for name, content in ({"tokenizer_config": TOKENIZER_SETTINGS} | files).items():
        (folder / f"{name}.json").write_text(json.dumps(content))
    return folder

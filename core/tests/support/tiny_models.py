"""Tiny random Llama checkpoints on disk: config, safetensors, a byte-level tokenizer.

The weights are scaled so that logits spread over several units: greedy choices have margins far
above rounding, so a test may compare tokens.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

BOS_ID, EOS_ID, IM_START_ID, IM_END_ID = 256, 257, 258, 259
_SPECIAL_TOKENS = ("<|bos|>", "<|eos|>", "<|im_start|>", "<|im_end|>")
_MERGES = (("t", "h"), ("th", "e"), ("i", "n"), ("a", "n"), ("Ġ", "the"), ("o", "r"))
_CHAT_TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n{{ message['content'] }}"
    "<|im_end|>\n{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)

ROPE_KINDS: Mapping[str, Mapping[str, Any]] = {
    "default": {"rope_type": "default", "rope_theta": 500.0},
    "linear": {"rope_type": "linear", "factor": 2.5},
    "dynamic": {"rope_type": "dynamic", "factor": 4.0},
    "yarn": {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 64},
    "yarn with mscale": {
        "rope_type": "yarn",
        "factor": 8.0,
        "original_max_position_embeddings": 32,
        "mscale": 1.0,
        "mscale_all_dim": 0.5,
        "beta_fast": 16,
        "beta_slow": 2,
    },
    "yarn with attention factor": {
        "rope_type": "yarn",
        "factor": 4.0,
        "original_max_position_embeddings": 64,
        "attention_factor": 1.3,
        "truncate": False,
    },
    "llama3": {
        "rope_type": "llama3",
        "factor": 8.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 64,
    },
    "longrope": {
        "rope_type": "longrope",
        "short_factor": [1.0 + 0.1 * pair for pair in range(8)],
        "long_factor": [2.0 + 0.7 * pair for pair in range(8)],
        "original_max_position_embeddings": 64,
    },
}
"""``rope_parameters`` of every kind that is known; ``rope_theta`` is 10000 where none is given.

Factors of single waves are for heads of 16.
"""


def tiny_config(**changes: Any) -> dict[str, Any]:
    """A Llama ``config.json`` of some 100 000 parameters; ``None`` in ``changes`` drops a key."""
    config: dict[str, Any] = {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "vocab_size": 288,
        "hidden_size": 64,
        "intermediate_size": 96,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "hidden_act": "silu",
        "max_position_embeddings": 256,
        "rms_norm_eps": 1e-5,
        "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0},
        "tie_word_embeddings": False,
        "attention_bias": False,
        "mlp_bias": False,
        "bos_token_id": BOS_ID,
        "eos_token_id": EOS_ID,
        "torch_dtype": "float32",
    }
    config.update(changes)
    return {key: value for key, value in config.items() if value is not None}


def random_weights(config: Mapping[str, Any], seed: int = 0) -> dict[str, torch.Tensor]:
    """Every tensor such a checkpoint holds, float32, by its name; the same for one seed."""
    generator = torch.Generator().manual_seed(seed)
    weights: dict[str, torch.Tensor] = {}
    for name, shape in tensor_shapes(config):
        noise = torch.randn(shape, generator=generator)
        if "norm" in name:
            weights[name] = 1.0 + 0.1 * noise
        elif name.endswith("bias"):
            weights[name] = 0.2 * noise
        elif "embed" in name:
            weights[name] = noise * (0.2 if config.get("tie_word_embeddings") else 1.0)
        else:
            weights[name] = noise * (1.5 / shape[-1] ** 0.5)
    return weights


def tensor_shapes(config: Mapping[str, Any]) -> Iterator[tuple[str, tuple[int, ...]]]:
    """Name and shape of every tensor, in file order."""
    hidden, inner, vocab = (
        int(config[key]) for key in ("hidden_size", "intermediate_size", "vocab_size")
    )
    heads = int(config["num_attention_heads"])
    head_dim = int(config.get("head_dim") or hidden // heads)
    q_rows = heads * head_dim
    kv_rows = int(config.get("num_key_value_heads", heads)) * head_dim
    yield "model.embed_tokens.weight", (vocab, hidden)
    for layer in range(int(config["num_hidden_layers"])):
        prefix = f"model.layers.{layer}"
        yield f"{prefix}.input_layernorm.weight", (hidden,)
        attention = {"q": (q_rows, hidden), "k": (kv_rows, hidden), "v": (kv_rows, hidden)}
        for letter, shape in (*attention.items(), ("o", (hidden, q_rows))):
            yield f"{prefix}.self_attn.{letter}_proj.weight", shape
            if config.get("attention_bias"):
                yield f"{prefix}.self_attn.{letter}_proj.bias", shape[:1]
        yield f"{prefix}.post_attention_layernorm.weight", (hidden,)
        mlp = {"gate": (inner, hidden), "up": (inner, hidden), "down": (hidden, inner)}
        for part, shape in mlp.items():
            yield f"{prefix}.mlp.{part}_proj.weight", shape
            if config.get("mlp_bias"):
                yield f"{prefix}.mlp.{part}_proj.bias", shape[:1]
    yield "model.norm.weight", (hidden,)
    if not config.get("tie_word_embeddings"):
        yield "lm_head.weight", (vocab, hidden)


def write_tiny_checkpoint(
    folder: Path,
    config: Mapping[str, Any] | None = None,
    *,
    seed: int = 0,
    num_shards: int = 1,
    dtype: torch.dtype = torch.float32,
) -> Path:
    """Write a whole checkpoint into ``folder`` (made if absent) and return the folder.

    Args:
        folder: Where the files go.
        config: See `tiny_config`, which is the default.
        seed: Of the weights.
        num_shards: More than one writes ``model-0000i-of-0000n.safetensors`` and their index.
        dtype: Of the stored weights.
    """
    config = tiny_config() if config is None else config
    folder.mkdir(parents=True, exist_ok=True)
    weights = {name: w.to(dtype) for name, w in random_weights(config, seed).items()}
    _write_json(folder / "config.json", config)
    _write_json(folder / "generation_config.json", {"eos_token_id": EOS_ID})
    _write_weights(folder, weights, num_shards)
    write_tiny_tokenizer(folder)
    return folder


def write_tiny_tokenizer(folder: Path) -> None:
    """``tokenizer.json`` (one id per byte, a few merges, four special tokens) and its config."""
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocab = {letter: index for index, letter in enumerate(letters)}
    merged = [left + right for left, right in _MERGES]
    first_merge = len(letters) + len(_SPECIAL_TOKENS)
    vocab |= {token: len(letters) + i for i, token in enumerate(_SPECIAL_TOKENS)}
    vocab |= {token: first_merge + i for i, token in enumerate(merged)}
    tokenizer = Tokenizer(models.BPE(vocab=vocab, merges=list(_MERGES)))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(
        [AddedToken(token, special=True, normalized=False) for token in _SPECIAL_TOKENS]
    )
    tokenizer.save(str(folder / "tokenizer.json"))
    bos, eos = _SPECIAL_TOKENS[:2]
    _write_json(
        folder / "tokenizer_config.json",
        {
            "tokenizer_class": "PreTrainedTokenizerFast",
            "bos_token": bos,
            "eos_token": eos,
            "add_bos_token": False,
            "clean_up_tokenization_spaces": False,
            "chat_template": _CHAT_TEMPLATE,
        },
    )


def _write_weights(folder: Path, weights: dict[str, torch.Tensor], num_shards: int) -> None:
    if num_shards == 1:
        save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
        return
    names = list(weights)
    weight_map: dict[str, str] = {}
    for shard in range(num_shards):
        file_name = f"model-{shard + 1:05d}-of-{num_shards:05d}.safetensors"
        own = names[len(names) * shard // num_shards : len(names) * (shard + 1) // num_shards]
        save_file(
            {name: weights[name] for name in own}, folder / file_name, metadata={"format": "pt"}
        )
        weight_map |= dict.fromkeys(own, file_name)
    total = sum(weight.nbytes for weight in weights.values())
    index = {"metadata": {"total_size": total}, "weight_map": weight_map}
    _write_json(folder / "model.safetensors.index.json", index)


def _write_json(path: Path, content: Mapping[str, Any]) -> None:
    path.write_text(json.dumps(content, indent=2), "utf-8")

"""The models of the zoo, one row each; weights are drawn here, the same everywhere, to the bit.

Each weight is a whole number from -127 to 127 times a power of two, so every compute dtype holds it
exactly and nobody's rounding at load counts.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import save_file

VOCAB_SIZE = 97
BOS_ID, EOS_ID = 0, 1
_STEPS = 127  # whole numbers on each side of zero that eight bits of mantissa hold


@dataclass(frozen=True, slots=True)
class ZooModel:
    """One model.

    Attributes:
        name: For vectors and messages.
        seed: Of its weights.
        changes: To the common configuration.
    """

    name: str
    seed: int
    changes: Mapping[str, Any] = field(default_factory=dict)

    @property
    def config(self) -> dict[str, Any]:
        """``config.json``."""
        common: dict[str, Any] = {
            "architectures": ["LlamaForCausalLM"],
            "model_type": "llama",
            "vocab_size": VOCAB_SIZE,
            "hidden_size": 64,
            "intermediate_size": 96,
            "num_hidden_layers": 2,
            "num_attention_heads": 4,
            "num_key_value_heads": 2,
            "head_dim": 16,
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
        return {**common, **self.changes}


MODELS: Mapping[str, ZooModel] = {
    model.name: model
    for model in (
        ZooModel("grouped", 1),
        ZooModel(
            "tied",
            2,
            {"tie_word_embeddings": True, "num_key_value_heads": 4, "attention_bias": True},
        ),
        ZooModel(
            "window",
            3,
            {
                "architectures": ["MistralForCausalLM"],
                "model_type": "mistral",
                "sliding_window": 7,
                "num_key_value_heads": 1,
            },
        ),
        ZooModel(
            "odd",
            4,
            {
                "hidden_size": 48,
                "head_dim": 24,
                "num_attention_heads": 3,
                "num_key_value_heads": 1,
                "intermediate_size": 80,
            },
        ),
    )
}
"""By name. A family that the core learns is one row more here."""


def weights_of(model: ZooModel) -> dict[str, torch.Tensor]:
    """Every tensor of the checkpoint by its name, float32."""
    bits = np.random.PCG64(model.seed)  # its stream is fixed for ever, unlike derived draws
    found = {}
    for name, shape in tensor_shapes(model.config):
        values = _whole(bits, int(np.prod(shape))).reshape(shape)
        found[name] = _scaled(name, values, model.config).float()
    return found


def drawn_whole(seed: int, count: int) -> torch.Tensor:
    """Whole numbers from -127 to 127, float64 ``[count]``, the same everywhere."""
    return _whole(np.random.PCG64(seed), count)


def _whole(bits: np.random.PCG64, count: int) -> torch.Tensor:
    raw = bits.random_raw(count)
    # Uniform over -127 to 127: the highest bits of each number, without a float on the way.
    whole = ((raw >> np.uint64(32)) * np.uint64(2 * _STEPS + 1) >> np.uint64(32)).astype(
        np.int64
    ) - _STEPS
    return torch.from_numpy(whole.astype(np.float64))


def _scaled(name: str, whole: torch.Tensor, config: Mapping[str, Any]) -> torch.Tensor:
    """Sizes that leave greedy choices a margin: layers that add little, a head that spreads."""
    is_tied = bool(config["tie_word_embeddings"])
    if "norm" in name:
        return 1.0 + torch.div(whole, 16, rounding_mode="trunc") / 64  # 0.89 to 1.11
    if name.endswith("bias"):
        return whole / 512
    if "embed" in name:
        return whole / (1024 if is_tied else 64)
    if "lm_head" in name:
        return whole / 128
    return whole / (512 if is_tied else 1024)


def tensor_shapes(config: Mapping[str, Any]) -> Iterator[tuple[str, tuple[int, ...]]]:
    """Name and shape of every tensor, in the order in which they are drawn."""
    hidden, inner = int(config["hidden_size"]), int(config["intermediate_size"])
    q_rows = int(config["num_attention_heads"]) * int(config["head_dim"])
    kv_rows = int(config["num_key_value_heads"]) * int(config["head_dim"])
    yield "model.embed_tokens.weight", (VOCAB_SIZE, hidden)
    for layer in range(int(config["num_hidden_layers"])):
        prefix = f"model.layers.{layer}"
        yield f"{prefix}.input_layernorm.weight", (hidden,)
        sizes = {"q": (q_rows, hidden), "k": (kv_rows, hidden), "v": (kv_rows, hidden)}
        for letter, shape in (*sizes.items(), ("o", (hidden, q_rows))):
            yield f"{prefix}.self_attn.{letter}_proj.weight", shape
            if config["attention_bias"]:
                yield f"{prefix}.self_attn.{letter}_proj.bias", shape[:1]
        yield f"{prefix}.post_attention_layernorm.weight", (hidden,)
        for part, shape in (
            ("gate", (inner, hidden)), ("up", (inner, hidden)), ("down", (hidden, inner)),
        ):  # fmt: skip
            yield f"{prefix}.mlp.{part}_proj.weight", shape
    yield "model.norm.weight", (hidden,)
    if not config["tie_word_embeddings"]:
        yield "lm_head.weight", (VOCAB_SIZE, hidden)


def write_model(model: ZooModel, folder: Path) -> Path:
    """Write a whole checkpoint into ``folder`` and return it."""
    folder.mkdir(parents=True, exist_ok=True)
    write_json(folder / "config.json", model.config)
    write_json(folder / "generation_config.json", {"eos_token_id": EOS_ID})
    save_file(weights_of(model), folder / "model.safetensors", metadata={"format": "pt"})
    write_tokenizer(folder)
    return folder


def write_tokenizer(folder: Path) -> None:
    """The tokenizer that all models share."""
    write_json(folder / "tokenizer.json", _tokenizer())
    names = {"tokenizer_class": "PreTrainedTokenizerFast", "bos_token": "<s>", "eos_token": "</s>"}
    write_json(folder / "tokenizer_config.json", {**names, "add_bos_token": False})


_LETTERS = [*(chr(code) for code in range(33, 33 + VOCAB_SIZE - 3)), " "]


def text_of(token_ids: list[int]) -> str:
    """What tokens stand for; those of begin and end for nothing."""
    return "".join(_LETTERS[one - 2] for one in token_ids if one > EOS_ID)


def _tokenizer() -> dict[str, Any]:
    """One token per printable character; enough to turn ids into text."""
    special = {
        name: {"id": number, "content": name, "single_word": False, "lstrip": False,
               "rstrip": False, "normalized": False, "special": True}
        for number, name in enumerate(("<s>", "</s>"))
    }  # fmt: skip
    letters = [*_LETTERS[:-1], "Ġ"]  # as byte-level tokenizers spell a space
    vocabulary = {name: number for number, name in enumerate((*special, *letters))}
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True,
                  "use_regex": True}  # fmt: skip
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": list(special.values()),
        "normalizer": None,
        "pre_tokenizer": byte_level,
        "post_processor": None,
        "decoder": byte_level,
        "model": {
            "type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None,
            "end_of_word_suffix": None, "fuse_unk": False, "byte_fallback": False,
            "vocab": vocabulary, "merges": [],
        },
    }  # fmt: skip


def write_json(path: Path, content: Mapping[str, Any]) -> None:
    """One file."""
    path.write_text(json.dumps(content, indent=2), encoding="utf-8")

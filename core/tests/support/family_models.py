"""Tiny random models of every family: made by `transformers`, written to disk, loaded here."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import transformers
from safetensors.torch import save_file

from dougong.checkpoint import open_tensors, read_config, resolve_reference
from dougong.models import CausalLM, ModelRegistry, load_model
from tests.support.model_harness import ModelHarness
from tests.support.tiny_models import EOS_ID, ROPE_KINDS, tiny_config, write_tiny_tokenizer

NUM_TOKENS = 100
TOKEN_IDS = [(7 * i * i + 3 * i + 11) % 266 for i in range(NUM_TOKENS)]

_QWEN2 = {"architectures": ["Qwen2ForCausalLM"], "model_type": "qwen2"}
_QWEN3 = {"architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3"}
_PHI3 = {"architectures": ["Phi3ForCausalLM"], "model_type": "phi3"} | dict.fromkeys(
    ("attention_bias", "mlp_bias")
)
_GRANITE = {
    "architectures": ["GraniteForCausalLM"],
    "model_type": "granite",
    "embedding_multiplier": 3.0,
    "residual_multiplier": 0.4,
    "attention_multiplier": 0.15,
    "logits_scaling": 2.0,
}
_GEMMA3 = {
    "architectures": ["Gemma3ForCausalLM"],
    "model_type": "gemma3_text",
    "hidden_act": None,
    "hidden_activation": "gelu_pytorch_tanh",
    "head_dim": 32,
    "num_hidden_layers": 4,
    "query_pre_attn_scalar": 20,
    "sliding_window": 20,
    "sliding_window_pattern": 3,
    "rope_parameters": None,
    "rope_theta": 5000.0,
    "rope_local_base_freq": 300.0,
    "tie_word_embeddings": True,
}
_ALTERNATING = ["sliding_attention", "full_attention"]
_LONGROPE = {
    key: value
    for key, value in ROPE_KINDS["longrope"].items()
    if key != "original_max_position_embeddings"  # stands beside it
}

VARIANTS: Mapping[str, Mapping[str, Any]] = {
    "Qwen2": _QWEN2,
    "Qwen2, tied head": {**_QWEN2, "tie_word_embeddings": True, "num_key_value_heads": 1},
    "Qwen2, an unused window": {**_QWEN2, "sliding_window": 20, "use_sliding_window": False},
    "Qwen2, a window from layer 1 on": {
        **_QWEN2, "sliding_window": 20, "use_sliding_window": True, "max_window_layers": 1,
    },
    "Qwen2, layer types": {
        **_QWEN2, "sliding_window": 20, "use_sliding_window": True, "layer_types": _ALTERNATING,
    },
    "Qwen2, yarn": {
        **_QWEN2,
        "rope_parameters": {
            "rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 64,
        },
    },
    "Qwen3": {**_QWEN3, "head_dim": 32},
    "Qwen3, heads of 128 unsaid": _QWEN3,
    "Qwen3, biases": {**_QWEN3, "head_dim": 16, "attention_bias": True},
    "Qwen3, tied head, a window": {
        **_QWEN3, "head_dim": 16, "tie_word_embeddings": True, "sliding_window": 20,
        "use_sliding_window": True, "max_window_layers": 1,
    },
    "Phi-3": _PHI3,
    "Phi-3, a window": {**_PHI3, "sliding_window": 20},
    "Phi-3, heads rotated in part, tied head": {
        **_PHI3, "partial_rotary_factor": 0.75, "tie_word_embeddings": True,
    },
    "Phi-3, short LongRoPE": {
        **_PHI3, "rope_parameters": _LONGROPE, "original_max_position_embeddings": 128,
    },
    "Phi-3, long LongRoPE": {
        **_PHI3, "rope_parameters": _LONGROPE, "original_max_position_embeddings": 32,
    },
    "Phi-3, older spelling of LongRoPE": {
        **_PHI3,
        "rope_parameters": None,
        "rope_theta": 700.0,
        "rope_scaling": {
            "type": "longrope",
            "short_factor": _LONGROPE["short_factor"], "long_factor": _LONGROPE["long_factor"],
        },
        "original_max_position_embeddings": 32,
    },
    "Granite": _GRANITE,
    "Granite, biases, tied head": {
        **_GRANITE, "attention_bias": True, "mlp_bias": True, "tie_word_embeddings": True,
    },
    "Granite, three multipliers unsaid": {
        "architectures": ["GraniteForCausalLM"], "model_type": "granite",
        "attention_multiplier": 0.25,
    },
    "Gemma 3": _GEMMA3,
    "Gemma 3, a head of its own": {**_GEMMA3, "tie_word_embeddings": False},
    "Gemma 3, pattern unsaid, biases": {
        **_GEMMA3, "sliding_window_pattern": None, "num_hidden_layers": 7, "attention_bias": True,
    },
    "Gemma 3, final cap": {**_GEMMA3, "final_logit_softcapping": 3.0},
    "Gemma 3, both caps": {
        **_GEMMA3, "final_logit_softcapping": 5.0, "attn_logit_softcapping": 2.0,
    },
    "Gemma 3, scaled rope": {**_GEMMA3, "rope_scaling": {"rope_type": "linear", "factor": 8.0}},
    "Gemma 3, newer spelling": {
        **_GEMMA3,
        "rope_theta": None,
        "rope_local_base_freq": None,
        "sliding_window_pattern": None,
        "layer_types": _ALTERNATING * 2,
        "rope_parameters": {
            "full_attention": {"rope_type": "linear", "factor": 4.0, "rope_theta": 7000.0},
            "sliding_attention": {"rope_type": "default", "rope_theta": 200.0},
        },
    },
    "Gemma 3, bases unsaid": {**_GEMMA3, "rope_theta": None, "rope_local_base_freq": None},
}  # fmt: skip
"""Changes of `tiny_config` by what they show; the family comes first."""

LENGTHS: Mapping[str, int] = {"Phi-3, short LongRoPE": NUM_TOKENS}
"""``max_model_len`` where it decides something."""


def family_config(variant: str) -> dict[str, Any]:
    """A ``config.json`` of some 100 000 parameters."""
    return tiny_config(pad_token_id=0, **VARIANTS[variant])


def write_family(folder: Path, config: Mapping[str, Any], seed: int = 0) -> Any:
    """Write a whole checkpoint with a byte-level tokenizer; return `transformers`' model of it."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config, indent=2), "utf-8")
    (folder / "generation_config.json").write_text(json.dumps({"eos_token_id": EOS_ID}), "utf-8")
    write_tiny_tokenizer(folder)
    theirs = transformers.AutoModelForCausalLM.from_config(
        transformers.AutoConfig.from_pretrained(folder),
        dtype=torch.float32,
        attn_implementation="eager",
    ).eval()
    _randomize(theirs, config, seed)
    weights = {name: w.contiguous() for name, w in theirs.state_dict().items()}
    if config.get("tie_word_embeddings"):
        del weights["lm_head.weight"]
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    return theirs


@torch.no_grad()
def _randomize(model: torch.nn.Module, config: Mapping[str, Any], seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    centre = 0.0 if str(config["model_type"]).startswith("gemma") else 1.0
    for name, parameter in model.named_parameters():
        noise = torch.randn(parameter.shape, generator=generator)
        if "norm" in name:
            parameter.copy_(centre + 0.3 * noise)
        elif name.endswith("bias"):
            parameter.copy_(0.2 * noise)
        elif "embed" in name:
            parameter.copy_(noise * (0.2 if config.get("tie_word_embeddings") else 1.0))
        else:
            parameter.copy_(noise * (1.5 / parameter.shape[-1] ** 0.5))


def load_family(folder: Path, max_model_len: int | None = None) -> CausalLM:
    """The same model here, in float32."""
    files = resolve_reference(str(folder))
    config = read_config(files)
    cls = ModelRegistry().resolve(config["architectures"])
    cpu = torch.device("cpu")
    source = open_tensors(files)
    model, _ = load_model(cls, config, torch.float32, cpu, source, max_model_len=max_model_len)
    assert isinstance(model, CausalLM)
    return model


@dataclass(frozen=True)
class FamilyPair:
    """The same weights here and there.

    Attributes:
        folder: Where they lie.
        variant: Key of `VARIANTS`.
        theirs: `transformers`' model.
    """

    folder: Path
    variant: str
    theirs: Any

    def ours(self, plant: Callable[[CausalLM], None] | None = None) -> ModelHarness:
        """Freshly loaded; ``plant`` may spoil it."""
        model = load_family(self.folder, LENGTHS.get(self.variant))
        if plant is not None:
            plant(model)
        return ModelHarness(model)

    @torch.inference_mode()
    def expected(self) -> torch.Tensor:
        """Their logits of all tokens, in one go.

        `transformers` reads a cap on scores from a Gemma 3 config and then does not hand it to its
        attention; so it is handed over here.
        """
        cap = getattr(self.theirs.config, "attn_logit_softcapping", None)
        logits: torch.Tensor = self.theirs(torch.tensor([TOKEN_IDS]), softcap=cap).logits[0]
        return logits


def make_family_pair(folder: Path, variant: str) -> FamilyPair:
    """Write and keep both."""
    return FamilyPair(folder, variant, write_family(folder, family_config(variant)))

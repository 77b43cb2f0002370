"""Tiny random models that make vectors: made by `transformers`, written to disk with the files that
sentence-transformers adds."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
import transformers
from safetensors.torch import save_file
from tokenizers import Tokenizer, processors

from tests.support.tiny_models import tiny_config, write_tiny_tokenizer

BOS, EOS = ("<|bos|>", 256), ("<|eos|>", 257)
BERT_CONFIG: Mapping[str, Any] = {
    "architectures": ["BertModel"],
    "model_type": "bert",
    "vocab_size": 288,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "max_position_embeddings": 64,
    "type_vocab_size": 2,
    "layer_norm_eps": 1e-12,
    "pad_token_id": 0,
}
ROBERTA_CONFIG: Mapping[str, Any] = {
    **BERT_CONFIG,
    "architectures": ["XLMRobertaModel"],
    "model_type": "xlm-roberta",
    "max_position_embeddings": 66,
    "type_vocab_size": 1,
    "layer_norm_eps": 1e-5,
    "pad_token_id": 1,
}
QWEN3_CONFIG: Mapping[str, Any] = tiny_config(
    architectures=["Qwen3ForCausalLM"],
    model_type="qwen3",
    pad_token_id=0,
    tie_word_embeddings=True,
)


def write_embedding_model(
    folder: Path,
    config: Mapping[str, Any],
    *,
    pooling: str | None = "mean",
    is_normalized: bool = True,
    max_len: int | None = None,
    extra: Mapping[str, Any] | None = None,
    prompts: Mapping[str, str] | None = None,
) -> Any:
    """Write a whole checkpoint; return `transformers`' model of it, in float32.

    Args:
        folder: Made if absent.
        config: Its ``config.json``.
        pooling: ``mean``, ``cls`` or ``lasttoken``; ``None``: no file says anything of vectors.
        is_normalized: There is a step that normalises.
        max_len: ``max_seq_length``.
        extra: More keys of ``config.json``.
        prompts: Texts to put before others.
    """
    folder.mkdir(parents=True, exist_ok=True)
    _write(folder / "config.json", {**config, **(extra or {})})
    write_tiny_tokenizer(folder)
    _add_specials(folder, is_encoder=config["model_type"] != "qwen3")
    theirs = transformers.AutoModel.from_config(
        transformers.AutoConfig.from_pretrained(folder),
        dtype=torch.float32,
        attn_implementation="eager",
    ).eval()
    _randomize(theirs)
    weights = {name: w.contiguous() for name, w in theirs.state_dict().items()}
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    if pooling is not None:
        _write_modules(folder, pooling, is_normalized=is_normalized)
    if max_len is not None:
        _write(folder / "sentence_bert_config.json", {"max_seq_length": max_len})
    if prompts is not None:
        _write(folder / "config_sentence_transformers.json", {"prompts": prompts})
    return theirs


@torch.no_grad()
def expected_hidden(model: Any, token_ids: Sequence[int]) -> torch.Tensor:
    """What `transformers` computes, ``[num_tokens, hidden_size]``."""
    return torch.as_tensor(model(torch.tensor([token_ids])).last_hidden_state[0])


def expected_vector(
    model: Any, token_ids: Sequence[int], method: str, *, is_normalized: bool = True
) -> torch.Tensor:
    """One vector for a text."""
    hidden = expected_hidden(model, token_ids)
    vector = {"mean": hidden.mean(0), "cls": hidden[0], "lasttoken": hidden[-1]}[method]
    return torch.nn.functional.normalize(vector, dim=0) if is_normalized else vector


def _write_modules(folder: Path, pooling: str, *, is_normalized: bool) -> None:
    kinds = ["Transformer", "Pooling", *(["Normalize"] if is_normalized else [])]
    paths = ["", "1_Pooling", "2_Normalize"]
    modules = [
        {
            "idx": index,
            "name": str(index),
            "path": path,
            "type": f"sentence_transformers.models.{kind}",
        }
        for index, (kind, path) in enumerate(zip(kinds, paths, strict=False))
    ]
    _write(folder / "modules.json", modules)
    mode = {"mean": "mean_tokens", "cls": "cls_token", "lasttoken": "lasttoken"}[pooling]
    modes = ("cls_token", "mean_tokens", "max_tokens", "mean_sqrt_len_tokens", "lasttoken")
    (folder / "1_Pooling").mkdir(exist_ok=True)
    _write(
        folder / "1_Pooling/config.json",
        {"word_embedding_dimension": 32, **{f"pooling_mode_{one}": one == mode for one in modes}},
    )


def _add_specials(folder: Path, *, is_encoder: bool) -> None:
    """Around a text where an encoder reads it, behind it where the last token is what counts; and
    the padding and truncation that such checkpoints have, which an engine must not obey."""
    path = str(folder / "tokenizer.json")
    tokenizer = Tokenizer.from_file(path)
    form = f"{BOS[0]} $A {EOS[0]}" if is_encoder else f"$A {EOS[0]}"
    tokenizer.post_processor = processors.TemplateProcessing(single=form, special_tokens=[BOS, EOS])
    tokenizer.enable_padding(length=12)
    tokenizer.enable_truncation(8)
    tokenizer.save(path)


@torch.no_grad()
def _randomize(model: torch.nn.Module) -> None:
    generator = torch.Generator().manual_seed(0)
    for name, parameter in model.named_parameters():
        noise = torch.randn(parameter.shape, generator=generator)
        if "norm" in name.lower() and name.endswith("weight"):
            parameter.copy_(1.0 + 0.3 * noise)
        elif name.endswith("bias"):
            parameter.copy_(0.2 * noise)
        elif "embed" in name:
            parameter.copy_(noise)
        else:
            parameter.copy_(noise * (1.5 / parameter.shape[-1] ** 0.5))


def _write(path: Path, content: Any) -> None:
    path.write_text(json.dumps(content, indent=2), "utf-8")

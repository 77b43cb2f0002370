from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from dougong.checkpoint import open_tensors, resolve_reference
from dougong.errors import CheckpointError, ConfigError
from dougong.models import EncoderStep, ModelRegistry, load_model
from dougong.models.bert import BertModel, RobertaModel
from dougong.models.loader import build_model
from tests.support.embedding_models import (
    BERT_CONFIG,
    ROBERTA_CONFIG,
    expected_hidden,
    write_embedding_model,
)

CPU = torch.device("cpu")
TOLERANCE = 1e-4
IDS = [[3, 77, 200, 5], [9], [250, 4, 4, 61, 8, 30, 2]]


def hidden_of(folder: Path, config: Mapping[str, Any]) -> list[torch.Tensor]:
    """Of all texts, computed in one step."""
    source = open_tensors(resolve_reference(str(folder)))
    cls = ModelRegistry().resolve(config["architectures"])
    model, _ = load_model(cls, config, torch.float32, CPU, source)
    assert isinstance(model, BertModel)
    lengths = [len(ids) for ids in IDS]
    starts = torch.tensor([0, *lengths]).cumsum(0).int()
    positions = torch.cat([torch.arange(length) for length in lengths])
    token_ids = torch.tensor([one for ids in IDS for one in ids])
    with torch.inference_mode():
        hidden = model.forward(token_ids, positions, EncoderStep(starts, starts, max(lengths)))
    return list(torch.split(hidden, lengths))


@pytest.mark.parametrize("config", [BERT_CONFIG, ROBERTA_CONFIG], ids=["BERT", "XLM-RoBERTa"])
def test_hidden_states_equal_transformers_at_every_token(
    tmp_path: Path, config: Mapping[str, Any]
) -> None:
    theirs = write_embedding_model(tmp_path, config)
    for ids, found in zip(IDS, hidden_of(tmp_path, config), strict=True):
        expected = expected_hidden(theirs, ids)
        torch.testing.assert_close(found, expected, rtol=0, atol=TOLERANCE)


def rename(
    folder: Path,
    prefix: str,
    more: Mapping[str, torch.Tensor],
    *,
    has_old_norms: bool = False,
) -> None:
    path = folder / "model.safetensors"
    weights = {f"{prefix}{name}": tensor for name, tensor in load_file(path).items()}
    if has_old_norms:
        for new, old in (
            ("LayerNorm.weight", "LayerNorm.gamma"),
            ("LayerNorm.bias", "LayerNorm.beta"),
        ):
            weights = {name.replace(new, old): tensor for name, tensor in weights.items()}
    save_file({**weights, **more}, path, metadata={"format": "pt"})


def test_a_checkpoint_with_a_head_and_the_first_spelling_gives_the_same(tmp_path: Path) -> None:
    write_embedding_model(tmp_path, BERT_CONFIG)
    expected = hidden_of(tmp_path, BERT_CONFIG)
    head = {
        "cls.predictions.bias": torch.zeros(288),
        "bert.embeddings.position_ids": torch.arange(64.0),
    }
    rename(tmp_path, "bert.", head, has_old_norms=True)
    config = {**BERT_CONFIG, "architectures": ["BertForMaskedLM"]}
    for found, one in zip(hidden_of(tmp_path, config), expected, strict=True):
        assert torch.equal(found, one)


def test_a_tensor_that_has_no_place_is_refused(tmp_path: Path) -> None:
    write_embedding_model(tmp_path, BERT_CONFIG)
    rename(tmp_path, "", {"encoder.layer.0.adapter.weight": torch.zeros(2)})
    with pytest.raises(CheckpointError) as caught:
        hidden_of(tmp_path, BERT_CONFIG)
    assert caught.value.problems == ("encoder.layer.0.adapter.weight has no place in this model",)


@pytest.mark.parametrize(("padding", "first"), [(1, 2), (0, 1), (None, 2)])
def test_positions_begin_after_that_of_padding(padding: int | None, first: int) -> None:
    config = {**ROBERTA_CONFIG, "pad_token_id": padding}
    model = build_model(RobertaModel, config, torch.float32, torch.device("meta"))
    assert model.first_position == first
    assert BertModel.read_first_position(config) == 0


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"position_embedding_type": "relative_key"}, "relative_key"),
        ({"is_decoder": True}, "is_decoder"),
        ({"num_attention_heads": 5}, "no multiple"),
        ({"intermediate_size": None}, "intermediate_size=None"),
        ({"hidden_act": "relu"}, "relu"),
    ],
)
def test_what_is_no_plain_encoder_is_refused(changes: Mapping[str, Any], told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        build_model(BertModel, {**BERT_CONFIG, **changes}, torch.float32, torch.device("meta"))

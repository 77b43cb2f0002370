from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from dougong.checkpoint import CheckpointFiles, CheckpointFormat
from dougong.config.model import StatedPooling
from dougong.describe.pooling import describe_pooling
from dougong.errors import CheckpointError

KINDS = ("Transformer", "Pooling", "Normalize")
OLD = {"pooling_mode_cls_token": False, "pooling_mode_mean_tokens": True}


def describe(folder: Path, config: Any = None, **files: Any) -> StatedPooling:
    """Of a checkpoint with these files, ``modules`` among them."""
    paths = {
        "modules": "modules.json",
        "pooling": "1_Pooling/config.json",
        "bert": "sentence_bert_config.json",
        "told": "config_sentence_transformers.json",
    }
    for name, content in files.items():
        path = folder / paths[name]
        path.parent.mkdir(exist_ok=True)
        path.write_text(content if isinstance(content, str) else json.dumps(content))
    checkpoint = CheckpointFiles("m", CheckpointFormat.SAFETENSORS, folder, ())
    return describe_pooling(checkpoint, config or {})


def modules(*kinds: str) -> list[dict[str, str]]:
    return [
        {"type": f"sentence_transformers.models.{kind}", "path": f"{index}_{kind}" if index else ""}
        for index, kind in enumerate(kinds)
    ]


def test_a_checkpoint_without_these_files_says_nothing(tmp_path: Path) -> None:
    assert describe(tmp_path) == StatedPooling()


def test_method_norm_length_and_prompts_are_read(tmp_path: Path) -> None:
    told = {"prompts": {"query": "Q: ", "document": ""}, "default_prompt_name": "query"}
    found = describe(
        tmp_path, modules=modules(*KINDS), pooling=OLD, bert={"max_seq_length": 256}, told=told
    )
    assert found == StatedPooling(
        source="modules.json",
        method="mean",
        is_normalized=True,
        max_len=256,
        prompts={"query": "Q: ", "document": ""},
        default_prompt="query",
    )


def test_without_a_step_that_normalises_vectors_stay_as_they_are(tmp_path: Path) -> None:
    found = describe(tmp_path, modules=modules("Transformer", "Pooling"), pooling=OLD)
    assert found.is_normalized is False


@pytest.mark.parametrize(
    ("pooling", "method"),
    [
        ({"pooling_mode_cls_token": True, "pooling_mode_mean_tokens": False}, "cls"),
        ({"pooling_mode_lasttoken": True}, "last"),
        ({"pooling_mode": "mean"}, "mean"),
        ({"pooling_mode": ["lasttoken"]}, "last"),
    ],
)
def test_every_known_way_is_known_by_both_spellings(
    tmp_path: Path, pooling: dict[str, Any], method: str
) -> None:
    found = describe(tmp_path, modules=modules(*KINDS), pooling=pooling)
    assert (found.method, found.problems) == (method, ())


@pytest.mark.parametrize(
    ("pooling", "told"),
    [
        ({"pooling_mode_max_tokens": True}, "pooling_mode_max_tokens"),
        ({**OLD, "pooling_mode_cls_token": True}, "pooling_mode_cls_token, pooling_mode_mean"),
        ({}, "no known way"),
        ({"pooling_mode": "weightedmean"}, "weightedmean"),
    ],
)
def test_a_way_that_nobody_computes_is_a_problem_by_its_name(
    tmp_path: Path, pooling: dict[str, Any], told: str
) -> None:
    found = describe(tmp_path, modules=modules(*KINDS), pooling=pooling)
    assert found.method is None
    assert told in found.problems[0]


def test_a_further_step_is_a_problem(tmp_path: Path) -> None:
    found = describe(tmp_path, modules=modules("Transformer", "Pooling", "Dense"), pooling=OLD)
    assert "Dense" in found.problems[0]


def test_the_config_alone_says_where_vectors_may_be_cut(tmp_path: Path) -> None:
    assert describe(tmp_path, {"is_matryoshka": True}).is_matryoshka
    found = describe(tmp_path, {"matryoshka_dimensions": [8, 16]})
    assert (found.dimensions, found.is_matryoshka) == ((8, 16), True)


def test_a_damaged_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"modules\.json is not JSON"):
        describe(tmp_path, modules="{")

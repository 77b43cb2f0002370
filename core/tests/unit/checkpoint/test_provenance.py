from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import safetensors.torch
import torch
from gguf import GGMLQuantizationType

from dougong.checkpoint import find_weight_summary, read_provenance, resolve_reference
from tests.support.checkpoints import random_blocks, random_rows, write_gguf, write_shards


def told(path: Path) -> dict[str, str]:
    files = resolve_reference(str(path), needs_weights=False)
    return read_provenance(files, find_weight_summary(files))


def told_by_config(folder: Path, **config: Any) -> dict[str, str]:
    (folder / "config.json").write_text(json.dumps({"model_type": "llama", **config}))
    return told(folder)


@pytest.mark.parametrize("key", ["torch_dtype", "dtype"])
def test_a_stated_dtype_names_its_key(tmp_path: Path, key: str) -> None:
    assert told_by_config(tmp_path, **{key: "float16"}) == {"dtype": f"{key} of config.json"}


def test_an_unstated_dtype_is_that_of_the_weights_or_assumed(tmp_path: Path) -> None:
    assert "so it is assumed" in told_by_config(tmp_path)["dtype"]
    write_shards(tmp_path, [{"a": torch.ones(2, dtype=torch.float16)}])
    found = told(tmp_path)
    assert found["dtype"] == "config.json names none; most weights are stored as F16"
    assert found["weight_format"] == "most weights are stored as F16"


def test_weights_stored_otherwise_than_stated_are_told(tmp_path: Path) -> None:
    write_shards(
        tmp_path,
        [{"a": torch.ones(2, dtype=torch.float16)}],
        config={"model_type": "llama", "torch_dtype": "bfloat16"},
    )
    assert told(tmp_path)["dtype"].endswith("though most weights are stored as F16")


@pytest.mark.parametrize(
    ("quantization", "tool"),
    [
        ({"quant_method": "gptq", "meta": {"quantizer": ["gptqmodel:1.4"]}}, "gptqmodel:1.4"),
        ({"quant_method": "x", "producer": {"name": "opt", "version": "0.2"}}, "opt 0.2"),
        ({"quant_method": "auto-round", "autoround_version": "0.5"}, "auto-round 0.5"),
    ],
)
def test_a_quantization_names_its_method_and_who_signed_it(
    tmp_path: Path, quantization: dict[str, Any], tool: str
) -> None:
    found = told_by_config(tmp_path, torch_dtype="float16", quantization_config=quantization)
    method = quantization["quant_method"]
    assert f"quantized afterwards (quantization_config: {method})" in found["weight_format"]
    assert f"made with {tool}" in found["weight_format"]
    assert found["dtype"] == f"torch_dtype of config.json; {found['weight_format']}"


def test_metadata_of_the_weight_file_is_read_for_conversions(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"model_type": "llama"}')
    metadata = {"format": "pt", "converted_by": "a tool 1.0"}
    path = tmp_path / "model.safetensors"
    safetensors.torch.save_file({"a": torch.ones(2)}, path, metadata=metadata)
    found = told(tmp_path)["weight_format"]
    assert found == "converted_by: a tool 1.0 (metadata of model.safetensors)"


def gguf(tmp_path: Path, kind: GGMLQuantizationType, **metadata: Any) -> dict[str, str]:
    is_plain = kind is GGMLQuantizationType.F32
    rows = random_rows(128, 64) if is_plain else random_blocks(kind, 128, 64)
    values = {key.replace("__", "."): value for key, value in metadata.items()}
    path = write_gguf(tmp_path / "m.gguf", {"token_embd.weight": (rows, kind)}, metadata=values)
    return told(path)


def test_a_gguf_file_says_what_it_was_converted_to_and_by_whom(tmp_path: Path) -> None:
    found = gguf(
        tmp_path,
        GGMLQuantizationType.Q4_1,
        general__file_type=15,
        general__quantized_by="somebody",
        quantize__imatrix__file="x.dat",
    )
    assert found["weight_format"] == (
        "the model was converted to GGUF as Q4_K_M (general.file_type 15); "
        "quantized by somebody; with an importance matrix"
    )
    assert found["dtype"].startswith(
        "a GGUF file names none; Q4_1 weights are read as bfloat16; the model was converted"
    )


def test_an_unknown_kind_of_gguf_file_is_a_number(tmp_path: Path) -> None:
    found = gguf(tmp_path, GGMLQuantizationType.F32, general__file_type=9999)
    assert "as 9999 (general.file_type 9999)" in found["weight_format"]
    assert "most weights are stored as F32" in found["dtype"]


def test_a_gguf_file_without_a_kind_was_converted_all_the_same(tmp_path: Path) -> None:
    found = gguf(tmp_path, GGMLQuantizationType.F32)
    assert found["weight_format"] == "the model was converted to GGUF"

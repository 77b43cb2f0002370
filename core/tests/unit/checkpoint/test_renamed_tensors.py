from __future__ import annotations

from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from dougong.checkpoint import CheckpointFiles, CheckpointFormat, open_tensors
from dougong.checkpoint.renamed_tensors import RenamedTensors, named_as_wanted
from dougong.checkpoint.tensors import TensorSource


def source_of(folder: Path, *names: str) -> TensorSource:
    """Each tensor holds its number."""
    path = folder / "model.safetensors"
    save_file({name: torch.full((2, 3), float(at)) for at, name in enumerate(names)}, path)
    return open_tensors(CheckpointFiles("m", CheckpointFormat.SAFETENSORS, folder, (path,)))


@pytest.mark.parametrize(
    ("theirs", "wanted", "ours"),
    [
        ("layers.0.norm.weight", "model.layers.0.norm.weight", "model.layers.0.norm.weight"),
        ("model.embed.weight", "embed.weight", "embed.weight"),
        ("model.a.LayerNorm.gamma", "a.LayerNorm.weight", "a.LayerNorm.weight"),
        ("a.LayerNorm.beta", "model.a.LayerNorm.bias", "model.a.LayerNorm.bias"),
        ("lm_head.weight", "model.embed.weight", "lm_head.weight"),
        ("model.unknown.weight", "embed.weight", "model.unknown.weight"),
    ],
)
def test_a_tensor_has_the_name_it_is_wanted_under(
    tmp_path: Path, theirs: str, wanted: str, ours: str
) -> None:
    found = named_as_wanted(source_of(tmp_path, theirs), {wanted}, "model.")
    assert found.names() == (ours,)


def test_whatever_is_asked_of_a_renamed_tensor_is_the_files(tmp_path: Path) -> None:
    source = source_of(tmp_path, "a", "b")
    found = named_as_wanted(source, {"model.a", "model.b"}, "model.")
    assert isinstance(found, RenamedTensors)
    assert found.names() == ("model.a", "model.b")
    assert found.shape("model.b") == (2, 3)
    assert found.format("model.b") == "F32"
    assert found.num_bytes("model.b") == 24
    assert found.read("model.b", torch.float64).tolist() == [[1.0] * 3] * 2
    out = torch.empty(2, 3)
    found.read_into("model.b", out)
    assert out.tolist() == [[1.0] * 3] * 2
    assert [name for name, _ in found.items(torch.float32)] == ["model.a", "model.b"]


def test_names_that_fit_are_left_to_the_files(tmp_path: Path) -> None:
    source = source_of(tmp_path, "model.a")
    assert named_as_wanted(source, {"model.a"}, "model.") is source


def test_two_tensors_for_one_place_are_told_under_their_own_names(tmp_path: Path) -> None:
    source = source_of(tmp_path, "a", "model.a")
    assert named_as_wanted(source, {"model.a"}, "model.").names() == source.names()

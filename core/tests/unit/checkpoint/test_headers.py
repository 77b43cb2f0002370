from __future__ import annotations

from pathlib import Path

import pytest
import torch

from dougong.checkpoint import resolve_reference
from dougong.checkpoint.headers import TensorHeader, check_destination, find_entry, tensor_headers
from dougong.errors import CheckpointError
from tests.support.checkpoints import write_shards

ENTRY = TensorHeader("w", "w", (2, 3), "F32", Path("m.safetensors"), 100, 24)


def test_sizes_follow_from_the_entry() -> None:
    assert (ENTRY.num_elements, ENTRY.end_bytes) == (6, 124)
    assert TensorHeader("s", "s", (), "F32", Path("m"), 0, 4).num_elements == 1


def test_entries_of_all_files_come_file_by_file(tmp_path: Path) -> None:
    paths = write_shards(tmp_path, [{"z": torch.ones(2)}, {"a": torch.ones(2)}])
    headers = tensor_headers(resolve_reference(str(tmp_path)))
    assert [(entry.name, entry.path) for entry in headers] == [("z", paths[0]), ("a", paths[1])]


def test_an_unknown_name_is_refused_with_examples_of_known_ones() -> None:
    assert find_entry({"w": ENTRY}, "w") is ENTRY
    with pytest.raises(CheckpointError, match=r"no tensor 'v'.*such as w"):
        find_entry({"w": ENTRY}, "v")


def test_a_destination_must_have_the_shape_of_the_tensor() -> None:
    check_destination(ENTRY, torch.empty(2, 3))
    with pytest.raises(CheckpointError, match=r"\[2, 3\] in m\.safetensors.*expects \[3, 2\]"):
        check_destination(ENTRY, torch.empty(3, 2))

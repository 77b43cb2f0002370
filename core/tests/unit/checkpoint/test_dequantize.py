from __future__ import annotations

import gguf
import numpy as np
import pytest
import torch
from gguf import GGMLQuantizationType

from dougong.checkpoint.dequantize import dequantize_into, is_readable
from tests.support.checkpoints import random_blocks, random_rows

QUANTISED = ["Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "Q2_K", "Q3_K", "Q4_K", "Q5_K", "Q6_K"]
NUM_ROWS, NUM_COLUMNS = 6, 512


@pytest.mark.parametrize("name", QUANTISED)
def test_quantised_values_equal_the_libraries_bit_for_bit(name: str) -> None:
    kind = GGMLQuantizationType[name]
    raw = random_blocks(kind, NUM_ROWS, NUM_COLUMNS)
    expected = torch.from_numpy(gguf.quants.dequantize(raw, kind)).view(-1)
    out = torch.empty(NUM_ROWS * NUM_COLUMNS)
    dequantize_into(torch.from_numpy(raw).view(-1), name, out)
    assert expected.isfinite().all()
    assert torch.equal(out, expected)


@pytest.mark.parametrize("name", QUANTISED)
def test_values_are_rounded_once_into_the_target(name: str) -> None:
    kind = GGMLQuantizationType[name]
    raw = random_blocks(kind, NUM_ROWS, NUM_COLUMNS)
    expected = torch.from_numpy(gguf.quants.dequantize(raw, kind)).view(-1).bfloat16()
    out = torch.empty(NUM_ROWS * NUM_COLUMNS, dtype=torch.bfloat16)
    dequantize_into(torch.from_numpy(raw).view(-1), name, out)
    assert torch.equal(out, expected)


@pytest.mark.parametrize("name", ["F32", "F16", "BF16"])
def test_stored_floats_come_back(name: str) -> None:
    kind = GGMLQuantizationType[name]
    values = random_rows(2, 64)
    stored = gguf.quants.quantize(values, kind)
    out = torch.empty(128)
    dequantize_into(torch.from_numpy(stored.view(np.uint8)).view(-1), name, out)
    assert torch.equal(out, torch.from_numpy(gguf.quants.dequantize(stored, kind)).view(-1))


def test_formats_nobody_can_decode_are_known_as_such() -> None:
    assert all(is_readable(name) for name in (*QUANTISED, "F32", "F16", "BF16", "IQ4_XS"))
    assert not is_readable("Q8_K")

from __future__ import annotations

from typing import Any

import pytest

from dougong.describe.quantization import declared_quantization, describe_quantization

CASES: list[tuple[dict[str, Any], str, dict[str, str]]] = [
    (
        {"quant_method": "gptq", "bits": 4, "group_size": 128, "desc_act": True, "sym": True},
        "group 128 along the input, float16 scale, 4-bit zero point, "
        "channels in the order of activations",
        {"bits": "4", "group_size": "128", "desc_act": "true", "sym": "true"},
    ),
    (
        {"quant_method": "gptq", "bits": 8, "group_size": -1, "desc_act": False},
        "one per output channel, float16 scale, 8-bit zero point",
        {"bits": "8", "group_size": "-1", "desc_act": "false"},
    ),
    (
        {"quant_method": "awq", "bits": 4, "group_size": 64, "zero_point": True, "version": "gemm"},
        "group 64 along the input, float16 scale, 4-bit zero point",
        {"bits": "4", "group_size": "64", "zero_point": "true", "version": "gemm"},
    ),
    (
        {"quant_method": "fp8", "fmt": "e4m3", "activation_scheme": "dynamic",
         "weight_block_size": [128, 128]},
        "block 128 x 128, float32 scale, dynamic activations",
        {"fmt": "e4m3", "activation_scheme": "dynamic", "weight_block_size": "128 x 128"},
    ),
    ({"quant_method": "fp8"}, "one per tensor, float32 scale", {}),
    ({"quant_method": "fbgemm_fp8"}, "one per output channel, float32 scale", {}),
    (
        {"quant_method": "mxfp4", "modules_to_not_convert": ["lm_head"]},
        "group 32 along the input, scale a power of two in uint8",
        {},
    ),
    (
        {"quant_method": "bitsandbytes", "load_in_4bit": True, "load_in_8bit": False,
         "bnb_4bit_quant_type": "nf4", "bnb_4bit_use_double_quant": True},
        "group 64 of the flat weight, scale quantized again",
        {"load_in_4bit": "true", "load_in_8bit": "false", "bnb_4bit_quant_type": "nf4",
         "bnb_4bit_use_double_quant": "true"},
    ),
    ({"quant_method": "bitsandbytes", "load_in_8bit": True},
     "one per output channel, float32 scale", {"load_in_8bit": "true"}),
    (
        {"quant_method": "compressed-tensors", "format": "pack-quantized", "config_groups": {
            "group_0": {"targets": ["Linear"], "weights": {
                "num_bits": 4, "type": "int", "strategy": "group", "group_size": 128,
                "symmetric": False}}}},
        "group 128 along the input, scale, zero point",
        {"format": "pack-quantized", "bits": "4", "type": "int", "strategy": "group",
         "group_size": "128"},
    ),
    (
        {"quant_method": "compressed-tensors", "config_groups": {
            "group_0": {"weights": {"num_bits": 8, "type": "float", "strategy": "channel"}}}},
        "one per output channel, scale",
        {"bits": "8", "type": "float", "strategy": "channel"},
    ),
    ({"quant_method": "hqq", "group_size": 64}, "group 64 along the input", {"group_size": "64"}),
    ({"quant_method": "new-method"}, "", {}),
]  # fmt: skip


@pytest.mark.parametrize(("config", "layout", "options"), CASES)
def test_each_method_says_how_its_scales_lie(
    config: dict[str, Any], layout: str, options: dict[str, str]
) -> None:
    need = describe_quantization(config, 7)
    assert need.format == config["quant_method"]
    assert (need.scale_layout, dict(need.options)) == (layout, options)
    assert (need.is_quantized, need.is_readable, need.num_bytes) == (True, False, 7)


def test_a_config_without_a_method_is_told_apart_from_one_without_quantization() -> None:
    assert declared_quantization({"quantization_config": {}}) is None
    found = declared_quantization({"quantization": {"group_size": 64, "bits": 4}})
    assert found is not None
    assert describe_quantization(found).format == "unnamed"

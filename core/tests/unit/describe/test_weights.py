from __future__ import annotations

from typing import Any

from dougong.checkpoint import CheckpointFormat, WeightSummary
from dougong.checkpoint.weight_summary import FormatShare
from dougong.describe import WeightNeed
from dougong.describe.weights import describe_weights
from tests.unit.describe import families

SAFETENSORS, GGUF = CheckpointFormat.SAFETENSORS, CheckpointFormat.GGUF


def summary(*names: str, **num_bytes: int) -> WeightSummary:
    shares = {name: FormatShare(1, size, size) for name, size in num_bytes.items()}
    total = sum(num_bytes.values())
    main = max(num_bytes, key=lambda name: num_bytes[name])
    return WeightSummary(shares, total, total, main, "bfloat16", True, dict.fromkeys(names, main))


def describe(
    config: dict[str, Any],
    weights: WeightSummary | None,
    file_format: CheckpointFormat = SAFETENSORS,
) -> dict[str, WeightNeed]:
    found = describe_weights(config, weights, file_format=file_format, dtype="bfloat16")
    return {need.format: need for need in found}


def test_plain_weights_are_named_as_torch_names_them() -> None:
    found = describe(families.LLAMA_3_8B, summary(BF16=10, F32=2))
    assert list(found) == ["bfloat16", "float32"]
    assert found["bfloat16"].num_bytes == 10
    assert not found["bfloat16"].is_quantized


def test_types_of_a_gguf_file_are_readable_where_somebody_can_dequantize_them() -> None:
    found = describe({}, summary(Q4_K=10, F32=2, IQ4_NL=1), GGUF)
    assert (found["q4_k"].is_quantized, found["q4_k"].is_readable) == (True, True)
    assert "minimum" in found["q4_k"].scale_layout
    assert not found["float32"].is_quantized
    assert found["iq4_nl"].is_readable


def test_a_gguf_file_with_a_part_missing_says_no_more_than_that() -> None:
    assert describe({}, None, GGUF)["gguf"].num_bytes is None


def test_everything_but_plain_floats_belongs_to_the_declared_method() -> None:
    config = {"quantization_config": {"quant_method": "gptq", "bits": 4, "group_size": 128}}
    found = describe(config, summary(I32=100, F16=20, BF16=5))
    assert list(found) == ["gptq", "float16", "bfloat16"]
    assert (found["gptq"].num_bytes, found["gptq"].is_readable) == (100, False)


def test_without_files_the_config_alone_speaks() -> None:
    assert list(describe(families.LLAMA_3_8B, None)) == ["bfloat16"]
    found = describe(families.GPT_OSS_20B, None)
    assert list(found) == ["mxfp4", "bfloat16"]
    assert {need.num_bytes for need in found.values()} == {None}


def test_small_floats_are_readable_unless_scales_lie_beside_them() -> None:
    plain = describe({}, summary("a.weight", F8_E4M3=10))["float8_e4m3fn"]
    assert (plain.is_quantized, plain.is_readable) == (False, True)
    scaled = describe({}, summary("a.weight", "a.weight_scale_inv", F8_E4M3=10, F32=1))
    assert (scaled["float8_e4m3fn"].is_quantized, scaled["float8_e4m3fn"].is_readable) == (
        True,
        False,
    )
    assert scaled["float32"].is_readable

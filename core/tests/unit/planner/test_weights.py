from __future__ import annotations

from typing import Any

import pytest

from dougong.contracts import ConfigError, QuantizationSupport
from dougong.describe import WeightNeed
from dougong.planner import FallbackLevel, WeightPlan, plan
from tests.unit.planner.paper import paper_inputs

Q4 = WeightNeed(
    format="q4_1", is_quantized=True, is_readable=True, num_bytes=625_000, scale_layout="group 32"
)
AWQ = WeightNeed(format="awq", is_quantized=True, is_readable=False, options={"bits": "4"})
KERNEL = QuantizationSupport(
    format="Q4_1",
    storage="uint8",
    activation_dtypes=("bfloat16",),
    is_native=True,
    kernel="acme/q4",
    scale_layout="group 32, float16 scale",
)


def planned(*needs: WeightNeed, quantization: Any = (), **changes: Any) -> Any:
    candidates = {
        "quantization": quantization,
        "kept_formats": frozenset({"q4_1"}),
        **changes.pop("candidates", {}),
    }
    provenance = {"provenance": {"weight_format": "converted by llama-quantize"}}
    return plan(
        paper_inputs(needs={"weights": needs} | provenance, candidates=candidates, **changes)
    )


def refused(*needs: WeightNeed, **changes: Any) -> str:
    with pytest.raises(ConfigError) as caught:
        planned(*needs, **changes)
    return str(caught.value)


def plain(name: str, num_bytes: int | None = None) -> WeightNeed:
    return WeightNeed(format=name, is_quantized=False, is_readable=True, num_bytes=num_bytes)


def test_plain_weights_are_kept_or_converted_and_neither_is_a_fallback() -> None:
    made = planned(plain("bfloat16"), plain("F32", 12), plain("BF16"), plain("i64", 8))
    assert [(one.where, one.computed_as) for one in made.weights] == [
        ("as stored", "bfloat16"),
        ("converted at load", "bfloat16"),
        ("as stored", "bfloat16"),
        ("converted at load", "bfloat16"),
    ]
    assert made.weights[1].reason == "dtype=bfloat16 is computed"
    assert made.fallbacks == ()


def test_a_format_that_a_kernel_computes_stays_as_it_is_stored() -> None:
    made = planned(Q4, plain("float32", 4), quantization=(KERNEL,))
    assert made.weights[0] == WeightPlan(
        format="q4_1",
        stored_bytes=625_000,
        computed_as="q4_1",
        where="as stored",
        kernel="acme/q4",
        scale_layout="group 32, float16 scale",
    )
    assert made.fallbacks == ()


def test_a_kernel_helps_nothing_while_the_loader_keeps_no_such_weights() -> None:
    made = planned(Q4, quantization=(KERNEL,), candidates={"kept_formats": frozenset()})
    assert made.weights[0].where == "dequantized at load"
    assert "acme/q4: this version of the core hands kernels plain weights only" in (
        made.fallbacks[0].reason
    )


def test_a_readable_format_without_a_kernel_is_dequantized_and_that_is_a_fallback() -> None:
    made = planned(Q4)
    assert (made.weights[0].where, made.weights[0].computed_as) == (
        "dequantized at load",
        "bfloat16",
    )
    (fallback,) = made.fallbacks
    assert (fallback.level, fallback.subject) == (FallbackLevel.PATH, "weights q4_1")
    assert fallback.reason == (
        "platform paper has no kernel for q4_1 (converted by llama-quantize)"
    )
    assert "3.2 times as much" in fallback.cost_hint


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"activation_dtypes": ("float16",)}, "acme/q4: dtype bfloat16; takes float16"),
        ({"is_native": False, "dequantized": "per step"}, "acme/q4: it dequantizes per step"),
    ],
)
def test_a_kernel_that_does_not_fit_says_why(changes: dict[str, Any], told: str) -> None:
    values = {name: getattr(KERNEL, name) for name in QuantizationSupport.__dataclass_fields__}
    made = planned(Q4, quantization=(QuantizationSupport(**(values | changes)),))
    assert made.weights[0].where == "dequantized at load"
    assert told in made.fallbacks[0].reason


def test_a_kernel_that_failed_at_its_first_use_is_not_taken_again() -> None:
    made = planned(
        Q4, quantization=(KERNEL,), candidates={"failed": {"acme/q4": "illegal address"}}
    )
    assert made.weights[0].where == "dequantized at load"
    assert "failed at its first use: illegal address" in made.weights[0].reason


def test_what_nobody_computes_is_refused_with_what_platform_and_core_take() -> None:
    told = refused(
        AWQ, quantization=(KERNEL,), readable_formats=("q4_0", "q8_0"),
        claims={"dtypes": ("bfloat16", "float32")},
    )  # fmt: skip
    assert "stored as awq with bits=4 (converted by llama-quantize), which platform paper" in told
    assert "platform paper takes bfloat16, float32, Q4_1" in told
    assert "the core reads q4_0, q8_0" in told


def test_a_gptq_checkpoint_is_refused_with_what_platform_and_core_take() -> None:
    gptq = WeightNeed(
        format="gptq", is_quantized=True, is_readable=False, options={"bits": "4"}
    )  # fmt: skip
    told = refused(
        gptq, plain("float16"), quantization=(KERNEL,),
        readable_formats=("bfloat16", "q4_0", "q8_0"), claims={"dtypes": ("bfloat16", "float32")},
    )  # fmt: skip
    assert "The weights are stored as gptq with bits=4" in told
    assert "Use a checkpoint in another format:" in told
    lines = [line.strip() for line in told.splitlines()]
    assert lines[-2:] == [
        "platform paper takes bfloat16, float32, Q4_1",
        "the core reads q4_0, q8_0, and makes plain weights of them at load",
    ]


Q8 = WeightNeed(format="q8_0", is_quantized=True, is_readable=True, num_bytes=34 * 10_000)


def hints(*needs: WeightNeed, **changes: Any) -> dict[str, str]:
    made = planned(*needs, **changes)
    return {one.subject.removeprefix("weights "): one.cost_hint for one in made.fallbacks}


def test_each_format_has_a_cost_of_its_own() -> None:
    told = hints(Q4, Q8)
    assert told["q4_1"] == "0.00 GiB in the files become 0.00 GiB, 3.2 times as much"
    assert "1.9 times as much" in told["q8_0"]
    big = WeightNeed(format="q8_0", is_quantized=True, is_readable=True, num_bytes=34 << 25)
    assert hints(Q4, big)["q8_0"] == "1.06 GiB in the files become 2.00 GiB, 1.9 times as much"


def test_formats_whose_weights_nobody_can_count_share_a_cost() -> None:
    odd = WeightNeed(format="fp8", is_quantized=True, is_readable=True, num_bytes=100)
    unknown = hints(Q4, odd)["fp8"]
    assert unknown == "with the model's other quantized weights they take 0.00 GiB once loaded"


def test_a_conversion_is_told_of_the_model_where_the_file_holds_other_formats_too() -> None:
    needs = {"weights": (Q4, Q8), "provenance": {"weight_format": "made Q4_1 by a tool"}}
    reasons = {one.subject: one.reason for one in plan(paper_inputs(needs=needs)).fallbacks}
    assert reasons["weights q4_1"].endswith("no kernel for q4_1 (made Q4_1 by a tool)")
    assert reasons["weights q8_0"].endswith("no kernel for q8_0 (as a whole, made Q4_1 by a tool)")


def test_without_weight_files_only_what_is_known_is_said() -> None:
    made = planned(WeightNeed(format="gguf", is_quantized=True, is_readable=True))
    assert made.weights[0].stored_bytes is None
    assert made.fallbacks[0].cost_hint == "they take 0.00 GiB once loaded"

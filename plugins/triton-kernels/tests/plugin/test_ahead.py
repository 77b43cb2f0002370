"""What is handed to a compiler, and what is asked of its result: both without one."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from dougong_triton_kernels.activation import plan_silu_and_mul
from dougong_triton_kernels.ahead import (
    Compiled,
    attributes,
    compile_ahead,
    constants,
    signature,
)
from dougong_triton_kernels.launching import Launch
from dougong_triton_kernels.targets import target


def launch(rows: int = 4, size: int = 64) -> Launch:
    x = torch.empty(rows, 2 * size, dtype=torch.bfloat16, device="meta")
    out = torch.empty(rows, size, dtype=torch.bfloat16, device="meta")
    return plan_silu_and_mul(x, out)


def compiled(**changes: object) -> Compiled:
    made = Compiled(
        kernel="norm.rms_norm_kernel",
        target=target("gfx942"),
        shared_bytes=65536,
        spills=0,
        may_spill=False,
        stages={"hsaco": b"code", "amdgcn": "v_mfma"},
    )
    return replace(made, **changes)  # type: ignore[arg-type]  # fields of several types


def test_parameters_have_the_types_of_a_call() -> None:
    assert signature(launch()) == {
        "x_ptr": "*bf16",
        "out_ptr": "*bf16",
        "size": "i32",
        "x_stride": "i32",
        "out_stride": "i32",
        "BLOCK": "constexpr",
        "INTERPRETED": "constexpr",
    }


def test_a_one_is_a_compile_time_value() -> None:
    one = launch(size=1)
    assert signature(one)["size"] == "constexpr"
    assert constants(one) == {"size": 1, "out_stride": 1, "BLOCK": 1, "INTERPRETED": False}


def test_multiples_of_16_and_near_tensors_are_told() -> None:
    divisible, near = ["tt.divisibility", 16], ["tt.pointer_range", 32]
    assert attributes(launch(size=24), target("sm_90")) == {
        (0,): [divisible],
        (1,): [divisible],
        (3,): [divisible],
    }
    far = attributes(launch(rows=2**20, size=1024), target("gfx942"))
    assert far[0,] == [divisible]
    assert attributes(launch(), target("gfx942"))[0,] == [divisible, near]


def test_a_result_within_the_limits_has_no_problem() -> None:
    assert compiled().problems() == ()
    assert compiled(spills=9, may_spill=True).problems() == ()
    assert compiled().assembly == "v_mfma"


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"shared_bytes": 65537}, "65537 bytes of on-chip memory"),
        ({"spills": 1}, "spills on gfx942"),
        ({"stages": {"amdgcn": ""}}, "no binary"),
    ],
    ids=["memory", "spills", "binary"],
)
def test_each_limit_is_held(changes: dict[str, object], says: str) -> None:
    """Planted."""
    (problem,) = compiled(**changes).problems()
    assert says in problem


def test_a_target_without_a_compiler_is_refused() -> None:
    with pytest.raises(ValueError, match="choose a chip"):
        compile_ahead(launch(), target("unheard of"))

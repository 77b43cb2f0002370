"""A plan that differs from what was built is refused with every difference."""

from __future__ import annotations

import pytest
import torch

from dougong.contracts import OpAssignment, OpPiece, PluginError
from dougong.ops import NATIVE, CustomOp, RMSNorm, SiluAndMul
from dougong.ops.assignments import resolve_assignments
from tests.support.registrations import registry


@CustomOp.register_oot("rms_norm", name="acme/norm")
class AcmeNorm(RMSNorm):
    def forward_oot(self, x: torch.Tensor) -> torch.Tensor:
        return x


def ops() -> dict[str, CustomOp]:
    return {"norm": RMSNorm(4, 1e-6, torch.float32), "act": SiluAndMul()}


def planned(key: str, path: str, *pieces: OpPiece) -> OpAssignment:
    return OpAssignment(key=key, paths=(path,), pieces=pieces or (OpPiece(NATIVE),))


NORM, ACT = planned("rms_norm", "norm"), planned("silu_and_mul", "act")


@pytest.mark.parametrize(
    ("plan", "told"),
    [
        ([NORM], "op silu_and_mul at act is not assigned"),
        ([NORM, ACT, NORM], "norm is assigned twice"),
        (
            [NORM, ACT, planned("linear", "down")],
            "linear is assigned at down, where there is no op",
        ),
        ([NORM, planned("linear", "act")], "op linear is assigned at act, where silu_and_mul is"),
        ([NORM, planned("silu_and_mul", "act", OpPiece("x/y"))], "no implementation 'x/y' here"),
        (
            [planned("rms_norm", "norm", OpPiece("acme/norm")), ACT],
            "op rms_norm at norm is to run acme/norm and was made of RMSNorm",
        ),
        ([planned("rms_norm", "norm", OpPiece(NATIVE, 8)), ACT], r"token counts \[8\]"),
        (
            [
                planned(
                    "rms_norm", "norm", OpPiece(NATIVE, 8), OpPiece(NATIVE, 4), OpPiece(NATIVE)
                ),
                ACT,
            ],
            r"token counts \[8, 4, None\]; each is larger",
        ),
        ([OpAssignment(key="rms_norm", paths=("norm",), pieces=()), ACT], r"token counts \[\]"),
    ],
)
def test_a_difference_is_refused(plan: list[OpAssignment], told: str) -> None:
    with pytest.raises(PluginError, match=told):
        resolve_assignments(ops(), plan, registry(AcmeNorm), "")


def test_all_differences_stand_in_one_message() -> None:
    with pytest.raises(PluginError) as caught:
        resolve_assignments(ops(), [planned("linear", "down", OpPiece("x/y"))], registry(), "")
    assert str(caught.value).count("\n  - ") == 4


def test_what_belongs_to_another_part_of_the_model_is_left_alone() -> None:
    sampler = planned("greedy_sample", "sampler.greedy", OpPiece("gone/kernel"))
    found = resolve_assignments(ops(), [NORM, ACT, sampler], registry(), "")
    assert set(found) == {"norm", "act"}
    own = {f"sampler.{path}": op for path, op in ops().items()}
    plan = [planned("rms_norm", "sampler.norm"), planned("silu_and_mul", "sampler.act"), NORM]
    assert set(resolve_assignments(own, plan, registry(), "sampler.")) == set(own)


def test_a_module_that_is_an_op_itself_has_an_empty_path() -> None:
    (pieces,) = resolve_assignments(
        {"": SiluAndMul()}, [planned("silu_and_mul", "")], registry(), ""
    ).values()
    assert [piece.name for piece in pieces] == [NATIVE]

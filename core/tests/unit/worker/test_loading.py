"""From a plan to a loaded model: what the plan names is bound, and reported as it is bound."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from dougong.contracts import ImplementationError, KernelReport, OpPiece, PluginError, RankPlan
from dougong.contracts.rank_plan import NATIVE
from dougong.ops import CustomOp, Linear, register_kernel
from dougong.worker.loading import LoadedModel, load_planned_model
from tests.support.reference_worker import make_worker, plan_for
from tests.support.registrations import registrations
from tests.support.tiny_models import write_tiny_checkpoint

CPU = torch.device("cpu")


@CustomOp.register_oot("linear", name="acme/linear")
class OwnLinear(Linear):
    def forward_oot(self, x: torch.Tensor) -> torch.Tensor:
        return self.forward_native(x)


@register_kernel("rotary_embedding", name="acme/rotary")
class NeverMade:
    def __init__(self, op: CustomOp) -> None:
        raise ValueError("no table of this size")

    def __call__(self, positions: torch.Tensor, q: torch.Tensor, k: torch.Tensor) -> None:
        raise AssertionError


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_checkpoint(tmp_path_factory.mktemp("tiny"))


def load(checkpoint: Path, plan: RankPlan) -> LoadedModel:
    worker = make_worker(checkpoint, registrations=registrations(OwnLinear, NeverMade))
    return load_planned_model(worker.context, plan, CPU, nullcontext)


def plan(checkpoint: Path, **implementations: str | tuple[OpPiece, ...]) -> RankPlan:
    return plan_for(make_worker(checkpoint), implementations=implementations)


def test_what_is_reported_is_what_was_bound(checkpoint: Path) -> None:
    pieces = (OpPiece(NATIVE, 4), OpPiece("acme/linear"))
    loaded = load(checkpoint, plan(checkpoint, linear=pieces))
    kernels = KernelReport(loaded=("acme 1.0",))
    report = loaded.report(kernels)
    assert report.implementations["linear"] == {"native": 8, "acme/linear": 8}
    assert report.implementations["greedy_sample"] == {"native": 1}
    assert report.attention_backends == {"reference/torch": 2}
    assert report.kernels == kernels
    assert report.weight_bytes == sum(p.nbytes for p in loaded.model.parameters())


def test_out_of_tree_classes_are_used_where_the_plan_names_them_and_not_elsewhere(
    checkpoint: Path,
) -> None:
    for chosen, cls in (("acme/linear", OwnLinear), (NATIVE, Linear)):
        loaded = load(checkpoint, plan(checkpoint, linear=chosen))
        made = {type(module) for module in loaded.model.modules() if isinstance(module, Linear)}
        assert cls in made
        assert (OwnLinear in made) == (chosen != NATIVE)


def test_what_cannot_be_made_is_named(checkpoint: Path) -> None:
    with pytest.raises(ImplementationError) as caught:
        load(checkpoint, plan(checkpoint, rotary_embedding="acme/rotary"))
    assert list(caught.value.failures) == ["acme/rotary"]
    assert "no table of this size" in caught.value.failures["acme/rotary"]


def test_a_plan_without_every_op_is_refused(checkpoint: Path) -> None:
    whole = plan(checkpoint)
    lacking = replace(whole, ops=tuple(one for one in whole.ops if one.key != "logprobs"))
    with pytest.raises(PluginError, match="logprobs"):
        load(checkpoint, lacking)

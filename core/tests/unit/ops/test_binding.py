"""Binding obeys the plan: functions, prepared classes, out-of-tree classes, token counts."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from torch import nn

from dougong.contracts import DeviceLost, ImplementationError, KernelFault, OpPiece, PluginError
from dougong.ops import (
    NATIVE,
    CustomOp,
    FusedAddRMSNorm,
    GateUpAct,
    RMSNorm,
    SiluAndMul,
    TopKTopP,
    register_kernel,
)
from dougong.ops.binding import bind_ops
from tests.support.registrations import assignments, registry


def model() -> Any:
    norm = RMSNorm(4, 1e-6, torch.float32)
    norm.weight.data.fill_(2.0)
    return nn.ModuleDict({"norm": norm, "act": SiluAndMul()})


@register_kernel("rms_norm", name="acme/scale")
def scale(x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    return x * weight + eps


@register_kernel("rms_norm", name="acme/broken")
class Broken:
    def __init__(self, op: RMSNorm) -> None:
        raise RuntimeError("no such symbol: acme_norm")

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        return x


@register_kernel("silu_and_mul", name="acme/broken_act")
class BrokenAct:
    def __init__(self, op: SiluAndMul) -> None:
        raise ValueError("odd")

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        return x


def test_a_function_gets_the_ops_arguments_then_its_weights() -> None:
    built = model()
    report = bind_ops(built, registry(scale), assignments(built, {"rms_norm": "acme/scale"}))
    assert report.implementations == {
        "rms_norm": {"acme/scale": 1},
        "silu_and_mul": {"native": 1},
    }
    assert built["norm"].implementation == "acme/scale"
    expected = torch.full((1, 4), 2.0 + 1e-6)
    torch.testing.assert_close(built["norm"](torch.ones(1, 4)), expected)


def test_a_class_is_made_once_per_op_and_called_with_the_arguments_alone() -> None:
    made = []

    @register_kernel("silu_and_mul", name="acme/silu")
    class Kernel:
        def __init__(self, op: SiluAndMul) -> None:
            made.append(op)

        def __call__(self, x: torch.Tensor) -> torch.Tensor:
            return x + 1

    built = model()
    bind_ops(built, registry(Kernel), assignments(built, {"silu_and_mul": "acme/silu"}))
    assert made == [built["act"]]
    assert built["act"](torch.zeros(1)).item() == 1.0


def test_what_is_registered_and_not_in_the_plan_does_not_run() -> None:
    built = model()
    report = bind_ops(built, registry(scale), assignments(built))
    assert report.implementations["rms_norm"] == {NATIVE: 1}
    x = torch.ones(1, 4)
    assert torch.equal(built["norm"](x), built["norm"].forward_native(x))


def test_places_of_one_op_may_run_different_implementations() -> None:
    built = nn.ModuleList([RMSNorm(4, 1e-6, torch.float32) for _ in range(3)])
    bound = bind_ops(built, registry(scale), assignments(built, {"1": "acme/scale"}))
    assert bound.implementations == {"rms_norm": {NATIVE: 2, "acme/scale": 1}}
    names = [op.implementation for op in built if isinstance(op, CustomOp)]
    assert names == [NATIVE, "acme/scale", NATIVE]


@pytest.mark.parametrize("num_tokens", [1, 2, 3, 4, 5, 100])
def test_the_implementation_follows_the_token_count(num_tokens: int) -> None:
    @register_kernel("rms_norm", name="acme/one")
    def one(x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
        return torch.full_like(x, 1.0)

    @register_kernel("rms_norm", name="acme/few")
    class Few:
        def __init__(self, op: RMSNorm) -> None: ...

        def __call__(self, x: torch.Tensor) -> torch.Tensor:
            return torch.full_like(x, 2.0)

    built = model()
    pieces = (OpPiece("acme/one", 2), OpPiece("acme/few", 4), OpPiece(NATIVE))
    report = bind_ops(built, registry(one, Few), assignments(built, {"rms_norm": pieces}))
    assert report.implementations["rms_norm"] == {"acme/one": 1, "acme/few": 1, NATIVE: 1}
    op = built["norm"]
    assert op.implementation == "acme/one up to 2, then acme/few up to 4, then native"
    assert op.assigned == ("acme/one", "acme/few", NATIVE)
    x = torch.zeros(num_tokens, 4)
    expected = 1.0 if num_tokens <= 2 else 2.0 if num_tokens <= 4 else 0.0
    assert torch.equal(op(x), torch.full_like(x, expected))


def test_the_plan_is_known_to_every_op_before_the_first_kernel_is_made() -> None:
    seen: list[tuple[str, ...]] = []

    @register_kernel("rms_norm", name="acme/looks")
    class Looks:
        def __init__(self, op: RMSNorm) -> None:
            seen.append(built["act"].assigned)

        def __call__(self, x: torch.Tensor) -> torch.Tensor:
            return x

    built = model()
    plan = assignments(built, {"rms_norm": "acme/looks", "silu_and_mul": NATIVE})
    bind_ops(built, registry(Looks), plan)
    assert seen == [(NATIVE,)]
    assert built["norm"].path == "norm"


def test_every_implementation_that_cannot_be_made_is_named_with_its_place() -> None:
    built = model()
    plan = assignments(built, {"rms_norm": "acme/broken", "silu_and_mul": "acme/broken_act"})
    with pytest.raises(ImplementationError) as caught:
        bind_ops(built, registry(Broken, BrokenAct), plan)
    assert caught.value.failures == {
        "acme/broken": "making it for op rms_norm at norm: RuntimeError: no such symbol: acme_norm",
        "acme/broken_act": "making it for op silu_and_mul at act: ValueError: odd",
    }
    assert isinstance(caught.value.__cause__, RuntimeError)


def test_an_implementation_that_failed_once_is_not_made_again() -> None:
    made = []

    @register_kernel("rms_norm", name="acme/counted")
    class Counted:
        def __init__(self, op: RMSNorm) -> None:
            made.append(op)
            raise ValueError

        def __call__(self, x: torch.Tensor) -> torch.Tensor:
            return x

    built = nn.ModuleList([RMSNorm(4, 1e-6, torch.float32) for _ in range(3)])
    with pytest.raises(ImplementationError, match=r"acme/counted .* at 0: ValueError"):
        bind_ops(built, registry(Counted), assignments(built, {"rms_norm": "acme/counted"}))
    assert len(made) == 1


def raising(error: Exception) -> type:
    @register_kernel("rms_norm", name="acme/raises")
    class Raises:
        def __init__(self, op: RMSNorm) -> None:
            raise error

        def __call__(self, x: torch.Tensor) -> torch.Tensor:
            return x

    return Raises


@pytest.mark.parametrize("error", [DeviceLost("gone"), torch.OutOfMemoryError("full")])
def test_a_failing_device_is_no_implementations_fault(error: Exception) -> None:
    built = model()
    plan = assignments(built, {"rms_norm": "acme/raises"})
    with pytest.raises(type(error)):
        bind_ops(built, registry(raising(error)), plan)


def test_a_vendors_exception_is_classified_before_it_is_judged() -> None:
    @contextmanager
    def classified() -> Iterator[None]:
        try:
            yield
        except RuntimeError as exc:
            raise (DeviceLost if "lost" in str(exc) else KernelFault)(str(exc)) from exc

    built = model()
    plan = assignments(built, {"rms_norm": "acme/raises"})
    lost = registry(raising(RuntimeError("card lost")))
    with pytest.raises(DeviceLost):
        bind_ops(built, lost, plan, classified=classified)
    faulty = registry(raising(RuntimeError("bad address")))
    with pytest.raises(ImplementationError, match="KernelFault: bad address"):
        bind_ops(built, faulty, plan, classified=classified)


def test_a_plan_that_does_not_fit_is_the_plans_fault_and_nothing_is_bound() -> None:
    built = model()
    with pytest.raises(PluginError, match="no implementation 'acme/absent' here"):
        bind_ops(built, registry(), assignments(built, {"rms_norm": "acme/absent"}))
    assert built["norm"].implementation == NATIVE


def test_the_parts_of_a_fused_slot_are_not_counted_while_the_slot_runs_its_own_kernel() -> None:
    @register_kernel("gate_up_act", name="acme/gate_up_act")
    def fused(x: torch.Tensor, *rest: object) -> torch.Tensor:
        return x

    def built() -> nn.Module:
        return nn.ModuleList([GateUpAct(4, 4, "silu", False, torch.float32)])

    def counts(*pieces: OpPiece) -> dict[str, dict[str, int]]:
        one = built()
        plan = assignments(one, {"gate_up_act": pieces})
        return bind_ops(one, registry(fused), plan).implementations

    own, native = OpPiece("acme/gate_up_act"), OpPiece(NATIVE)
    assert counts(own) == {"gate_up_act": {"acme/gate_up_act": 1}}
    parts = {"linear": {NATIVE: 1}, "silu_and_mul": {NATIVE: 1}}
    assert counts(native) == {"gate_up_act": {NATIVE: 1}} | parts
    assert (
        counts(OpPiece("acme/gate_up_act", 8), native)
        == {"gate_up_act": {"acme/gate_up_act": 1, NATIVE: 1}} | parts
    )


def test_the_samplers_ops_are_found_by_their_prefix_and_reports_add_up() -> None:
    @register_kernel("top_k_top_p", name="acme/cut")
    def cut(logits: torch.Tensor, top_k: torch.Tensor, top_p: torch.Tensor) -> torch.Tensor:
        return logits

    built, sampler = model(), nn.ModuleDict({"top": TopKTopP(), "act": SiluAndMul()})
    plan = [
        *assignments(built),
        *assignments(sampler, {"sampler.top": "acme/cut"}, prefix="sampler."),
    ]
    report = bind_ops(built, registry(cut), plan)
    report.add(bind_ops(sampler, registry(cut), plan, prefix="sampler."))
    assert sampler["top"].path == "sampler.top"
    assert report.implementations == {
        "rms_norm": {NATIVE: 1},
        "silu_and_mul": {NATIVE: 2},
        "top_k_top_p": {"acme/cut": 1},
    }


@CustomOp.register_oot("rms_norm", name="acme/two_steps")
class TwoSteps(RMSNorm):
    """Has ops of its own, and one of another key at a path that the core uses for another one."""

    def __init__(self, hidden_size: int, eps: float, dtype: torch.dtype) -> None:
        super().__init__(hidden_size, eps, dtype)
        self.inner = RMSNorm(hidden_size, eps, dtype)

    def forward_oot(self, x: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = self.inner(x)
        return result


@CustomOp.register_oot("gate_up_act", name="acme/alone")
class Alone(GateUpAct):
    """Leaves a part out and puts another op in a part's place."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        del self.linear
        self.act = RMSNorm(4, 1e-6, torch.float32)

    def forward_oot(self, x: torch.Tensor) -> torch.Tensor:
        return x


def own_ops() -> nn.ModuleList:
    return nn.ModuleList(
        [RMSNorm(4, 1e-6, torch.float32), GateUpAct(4, 4, "silu", False, torch.float32)]
    )


def test_ops_inside_an_out_of_tree_class_are_its_own_and_run_native() -> None:
    found = registry(TwoSteps, Alone)
    names = {"rms_norm": "acme/two_steps", "gate_up_act": "acme/alone"}
    plan = assignments(own_ops(), names)  # of the core's own ops, as an outline shows them
    with found.overriding(plan):
        built = own_ops()
    report = bind_ops(built, found, plan)
    assert report.implementations == {
        "rms_norm": {"acme/two_steps": 1},
        "gate_up_act": {"acme/alone": 1},
    }
    two_steps, alone = built
    assert isinstance(two_steps, TwoSteps)
    assert isinstance(alone, Alone)
    assert (two_steps.inner.implementation, two_steps.inner.path) == (NATIVE, "0.inner")
    assert alone.act.implementation == NATIVE


def test_an_out_of_tree_class_at_the_top_owns_what_is_in_it() -> None:
    found = registry(TwoSteps)
    plan = assignments(RMSNorm(4, 1e-6, torch.float32), {"rms_norm": "acme/two_steps"})
    with found.overriding(plan):
        built = RMSNorm(4, 1e-6, torch.float32)
    bind_ops(built, found, plan)
    assert built.implementation == "acme/two_steps"


def test_what_is_missing_elsewhere_is_still_the_plans_fault() -> None:
    plan = assignments(nn.ModuleList([*own_ops(), SiluAndMul()]))
    with pytest.raises(PluginError, match="silu_and_mul is assigned at 2, where there is no op"):
        bind_ops(own_ops(), registry(), plan)


def test_a_class_hears_once_that_weights_are_loaded_before_any_kernel_is_made() -> None:
    heard: list[object] = []

    @CustomOp.register_oot("rms_norm", name="acme/hears")
    class Hears(RMSNorm):
        def post_load(self) -> None:
            heard.append((self.path, self.weight[0].item()))

        def forward_oot(self, x: torch.Tensor) -> torch.Tensor:
            return x

    @register_kernel("silu_and_mul", name="acme/made")
    class Made:
        def __init__(self, op: SiluAndMul) -> None:
            heard.append("kernel")

        def __call__(self, x: torch.Tensor) -> torch.Tensor:
            return x

    found = registry(Hears, Made)
    plan = assignments(model(), {"rms_norm": "acme/hears", "silu_and_mul": "acme/made"})
    with found.overriding(plan):
        built = nn.ModuleDict(reversed(list(model().items())))
    bind_ops(built, found, plan)
    assert heard == [("norm", 2.0), "kernel"]


def test_a_class_that_fails_after_loading_is_named_and_not_asked_again() -> None:
    asked = []

    @CustomOp.register_oot("rms_norm", name="acme/unhappy")
    class Unhappy(RMSNorm):
        def post_load(self) -> None:
            asked.append(self)
            raise ValueError("weights of 4")

        def forward_oot(self, x: torch.Tensor) -> torch.Tensor:
            return x

    found = registry(Unhappy)
    norms = [RMSNorm(4, 1e-6, torch.float32) for _ in range(2)]
    plan = assignments(nn.ModuleList(norms), {"rms_norm": "acme/unhappy"})
    with found.overriding(plan):
        built = nn.ModuleList([RMSNorm(4, 1e-6, torch.float32) for _ in range(2)])
    with pytest.raises(ImplementationError) as caught:
        bind_ops(built, found, plan)
    reason = "post_load of op rms_norm at 0: ValueError: weights of 4"
    assert caught.value.failures == {"acme/unhappy": reason}
    assert len(asked) == 1


def test_a_plugins_own_op_that_fails_after_loading_is_the_plugins_fault() -> None:
    class Own(SiluAndMul):
        key = "acme/own"

        def post_load(self) -> None:
            raise ValueError("odd")

    with pytest.raises(PluginError, match="post_load of op acme/own at 0 raised ValueError: odd"):
        bind_ops(nn.ModuleList([Own()]), registry(), assignments(nn.ModuleList([Own()])))


def test_an_op_of_another_meaning_under_an_inherited_key_is_not_bound() -> None:
    class Offset(RMSNorm):
        def forward_native(self, x: torch.Tensor) -> torch.Tensor:
            return x

    built = nn.ModuleList([Offset(4, 1e-6, torch.float32)])
    plan = assignments(nn.ModuleList([RMSNorm(4, 1e-6, torch.float32)]), {"rms_norm": "acme/scale"})
    with pytest.raises(PluginError, match="a forward_native of its own"):
        bind_ops(built, registry(scale), plan)


def test_a_kernel_for_a_part_runs_inside_a_native_slot() -> None:
    slot = FusedAddRMSNorm(4, 1e-6, torch.float32)
    slot.norm.weight.data.fill_(2.0)
    built = nn.ModuleList([slot])
    bind_ops(built, registry(scale), assignments(built, {"rms_norm": "acme/scale"}))
    normed, total = slot(torch.ones(1, 4), torch.ones(1, 4))
    torch.testing.assert_close(normed, torch.full((1, 4), 4.0 + 1e-6))
    assert torch.equal(total, torch.full((1, 4), 2.0))

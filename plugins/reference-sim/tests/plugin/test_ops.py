"""What this wheel registers means what the core's ops mean, on the device."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from dougong.contracts import Mark, RegistrationKind
from dougong.contracts.registration import marks_of
from dougong.ops import OPS, CustomOp, FusedAddRMSNorm, Linear, LMHead, RMSNorm, RotaryEmbedding

from dougong_sim import hooks, kernels
from dougong_sim.device import control

Call = tuple[CustomOp, tuple[Any, ...]]

MARKED = [
    (target, mark)
    for module in (hooks, kernels)
    for target in vars(module).values()
    if getattr(target, "__module__", "") == module.__name__
    for mark in marks_of(target)
]
CLASSES = [(t, m) for t, m in MARKED if m.kind is RegistrationKind.OP_CLASS]
KERNELS = [(t, m) for t, m in MARKED if m.kind is RegistrationKind.KERNEL]


def _named(value: Any) -> str:
    return value.name or value.key if isinstance(value, Mark) else ""


def on_device(value: Any, device: torch.device) -> Any:
    return value.to(device) if torch.is_tensor(value) else value


def assert_alike(found: Any, expected: Any) -> None:
    found, expected = (one if isinstance(one, tuple) else (one,) for one in (found, expected))
    for ours, meant in zip(found, expected, strict=True):
        torch.testing.assert_close(ours.cpu(), meant.cpu(), rtol=1e-5, atol=1e-5)


def call_of(key: str, device: torch.device, cls: type[CustomOp] | None = None) -> Call:
    """A small op with filled weights, and arguments, on the device."""
    meant, args = OPS[key].example()
    op = meant
    if cls is not None:
        op, _ = cls.example()
        op.load_state_dict(meant.state_dict())
    return op.to(device), tuple(on_device(arg, device) for arg in args)


@pytest.mark.parametrize(("cls", "mark"), CLASSES, ids=_named)
def test_a_class_means_what_its_op_means(
    cls: type[CustomOp], mark: Mark, device: torch.device
) -> None:
    op, args = call_of(mark.key, device, cls)
    expected = op.forward_native(*copy.deepcopy(args))
    op.post_load()
    with control.forbid_implicit_sync():
        found = op.forward_oot(*args)
    assert_alike(found, expected)


@pytest.mark.parametrize(("kernel", "mark"), KERNELS, ids=_named)
def test_a_kernel_means_what_its_op_means(
    kernel: Callable[..., Any], mark: Mark, device: torch.device
) -> None:
    op, args = _admitted(mark.key, device)
    expected = op.forward_native(*copy.deepcopy(args))
    is_prepared = isinstance(kernel, type)
    call = kernel(op) if is_prepared else lambda *args: kernel(*args, *op.kernel_args())
    before = copy.deepcopy(args)
    with control.forbid_implicit_sync():
        found = call(*args)
    assert_alike(found, expected)
    written = [
        name
        for name, old, new in zip(op.arg_names(), before, args, strict=True)
        if torch.is_tensor(new) and not torch.equal(old.cpu(), new.cpu())
    ]
    assert set(written) == set(mark.details.mutates)


def _admitted(key: str, device: torch.device) -> Call:
    """As the conditions of this wheel's kernels want it."""
    if key != "linear":
        return call_of(key, device)
    op = Linear(24, 16, False, torch.float32)
    op.weight.copy_(torch.randn(16, 24))
    return op.to(device), (torch.randn(3, 24, device=device),)


def test_the_first_norm_of_a_model_has_no_residual(device: torch.device) -> None:
    op, (x, _) = call_of("fused_add_rms_norm", device)
    assert isinstance(op, FusedAddRMSNorm)
    normed, total = kernels.add_rms_norm(x, None, *op.kernel_args())
    assert total is x
    assert_alike(normed, op.forward_native(x, None)[0])


def test_a_part_of_the_head_that_is_not_rotated_stays_as_it_is(device: torch.device) -> None:
    op, (positions, q, k) = call_of("rotary_embedding", device)
    assert isinstance(op, RotaryEmbedding)
    assert op.rotary_dim < op.head_dim
    kept = q[..., op.rotary_dim :].clone()
    turned, _ = kernels.rotary(positions, q, k, *op.kernel_args())
    assert_alike(turned[..., op.rotary_dim :], kept)


def test_a_head_gives_the_memory_of_its_first_copy_back(device: torch.device) -> None:
    op, _ = call_of("lm_head", device)
    assert isinstance(op, LMHead)
    kernels.TurnedHead(op)
    assert op.weight.numel() > 0, "something else may read it"
    op.assigned = ("sim/turned_head",)
    kernels.TurnedHead(op)
    assert op.weight.numel() == 0


def test_a_prepared_weight_follows_a_narrow_dtype(device: torch.device) -> None:
    op = hooks.SimRMSNorm(8, 1e-5, torch.bfloat16).to(device)
    op.weight.copy_(torch.randn(8))
    op.post_load()
    x = torch.randn(2, 8, device=device, dtype=torch.bfloat16)
    assert op.forward_oot(x).dtype is torch.bfloat16
    meant = RMSNorm.forward_native(op, x)
    torch.testing.assert_close(op.forward_oot(x).cpu(), meant.cpu())


def test_every_way_of_registering_is_shown_once() -> None:
    kinds = {mark.kind for _, mark in MARKED}
    assert kinds == {RegistrationKind.OP, RegistrationKind.OP_CLASS, RegistrationKind.KERNEL}
    assert {isinstance(target, type) for target, _ in KERNELS} == {True, False}
    assert any(mark.details.tokens for _, mark in KERNELS)
    assert any(mark.details.mutates for _, mark in KERNELS)
    assert any(mark.details.when.features for _, mark in CLASSES)
    assert list(hooks.dougong_register_ops()) == [kernels]
    assert [one.alias_of for one in hooks.dougong_register_models()] == ["LlamaForCausalLM"]

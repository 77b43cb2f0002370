"""Out-of-tree classes take an op's place for one build, in one thread, and no longer."""

from __future__ import annotations

import asyncio
import inspect
import threading
from abc import ABC, abstractmethod
from typing import Any

import pytest
import torch

from dougong.contracts import DeviceLost, ImplementationError
from dougong.ops import (
    CustomOp,
    FusedAddRMSNorm,
    GateUpAct,
    GeluAndMul,
    MultipleOf,
    OneOf,
    RMSNorm,
    SiluAndMul,
)
from dougong.ops.overrides import overriding


class AcmeNorm(RMSNorm):
    def __init__(self, hidden_size: int, eps: float, dtype: torch.dtype) -> None:
        super().__init__(hidden_size, eps, dtype)
        self.made_with = (hidden_size, eps, dtype)

    def forward_oot(self, x: torch.Tensor) -> torch.Tensor:
        return x + 1


class OtherNorm(RMSNorm):
    def forward_oot(self, x: torch.Tensor) -> torch.Tensor:
        return x + 2


def norm() -> RMSNorm:
    return RMSNorm(4, 1e-6, dtype=torch.float32)


def test_inside_the_class_is_made_with_the_same_arguments_and_outside_nothing_changes() -> None:
    with overriding({"rms_norm": AcmeNorm}):
        made = norm()
    assert type(made) is AcmeNorm
    assert made.made_with == (4, 1e-6, torch.float32)
    assert type(norm()) is RMSNorm


def test_only_the_ops_own_key_is_replaced() -> None:
    with overriding({"rms_norm": AcmeNorm}):
        assert type(FusedAddRMSNorm(4, 1e-6, torch.float32)) is FusedAddRMSNorm
        assert type(SiluAndMul()) is SiluAndMul


def test_a_part_of_a_fused_slot_is_replaced_like_any_op() -> None:
    class AcmeSilu(SiluAndMul): ...

    with overriding({"silu_and_mul": AcmeSilu}):
        assert type(GateUpAct(4, 4, "silu", False, torch.float32).act) is AcmeSilu


def test_a_relative_that_the_class_does_not_derive_from_is_left_alone() -> None:
    class Relative(RMSNorm): ...

    with overriding({"rms_norm": AcmeNorm}):
        assert type(Relative(4, 1e-6, torch.float32)) is Relative


def test_the_class_itself_can_be_made_inside() -> None:
    with overriding({"rms_norm": AcmeNorm}):
        assert type(AcmeNorm(4, 1e-6, torch.float32)) is AcmeNorm


def test_an_op_of_its_own_key_inside_the_class_is_the_cores() -> None:
    class Wrapping(RMSNorm):
        def __init__(self, *args: Any, **kwargs: Any) -> None:
            super().__init__(*args, **kwargs)
            self.inner = RMSNorm(*args, **kwargs)
            self.act = SiluAndMul()

    class AcmeSilu(SiluAndMul):
        def __init__(self) -> None:
            super().__init__()
            self.norm = norm()

    with overriding({"rms_norm": Wrapping, "silu_and_mul": AcmeSilu}):
        made = norm()
        assert isinstance(made, Wrapping)
        assert type(made.inner) is RMSNorm
        assert type(made.act) is AcmeSilu
        assert type(made.act.norm) is RMSNorm
        assert type(norm()) is Wrapping


class Failing(RMSNorm):
    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        raise OSError("no device file")


def test_a_class_that_cannot_be_made_fails_by_its_name() -> None:
    with (
        overriding({"rms_norm": Failing}, {"rms_norm": "acme/norm"}),
        pytest.raises(ImplementationError) as caught,
    ):
        norm()
    assert caught.value.failures == {
        "acme/norm": "making it in the place of op rms_norm raised OSError: no device file"
    }
    assert isinstance(caught.value.__cause__, OSError)
    assert type(norm()) is RMSNorm


def test_after_a_failure_the_block_still_replaces() -> None:
    with overriding({"rms_norm": Failing}):
        for _ in range(2):
            with pytest.raises(ImplementationError, match=r"test_overrides\.Failing failed"):
                norm()


def test_the_innermost_of_two_failing_classes_is_named() -> None:
    class Outer(GeluAndMul):
        def __init__(self, approximate: str = "none") -> None:
            super().__init__(approximate)
            self.norm = norm()

    classes: dict[str, type[CustomOp]] = {"gelu_and_mul": Outer, "rms_norm": Failing}
    names = {"gelu_and_mul": "acme/gelu", "rms_norm": "acme/norm"}
    with overriding(classes, names), pytest.raises(ImplementationError) as caught:
        GeluAndMul()
    assert list(caught.value.failures) == ["acme/norm"]


def test_a_lost_device_is_not_the_classs_fault() -> None:
    class Unlucky(RMSNorm):
        def __init__(self, *args: Any, **kwargs: Any) -> None:
            raise DeviceLost("gone")

    with overriding({"rms_norm": Unlucky}), pytest.raises(DeviceLost):
        norm()


def test_two_engines_one_after_the_other_see_their_own_classes() -> None:
    kinds = []
    for classes in ({"rms_norm": AcmeNorm}, {}, {"rms_norm": OtherNorm}):
        with overriding(classes):
            kinds.append(type(norm()))
    assert kinds == [AcmeNorm, RMSNorm, OtherNorm]


def test_a_build_inside_a_build_sees_its_own_classes_alone() -> None:
    with overriding({"rms_norm": AcmeNorm}):
        with overriding({}):
            assert type(norm()) is RMSNorm
        assert type(norm()) is AcmeNorm


def test_engines_that_build_at_the_same_time_never_see_each_others_classes() -> None:
    wanted = {"acme": AcmeNorm, "other": OtherNorm, "none": None}
    found: dict[str, set[type]] = {}
    barrier = threading.Barrier(len(wanted))

    def build(name: str, cls: type[RMSNorm] | None) -> None:
        with overriding({} if cls is None else {"rms_norm": cls}):
            barrier.wait(10)
            found[name] = {type(norm()) for _ in range(50)}
            barrier.wait(10)

    threads = [threading.Thread(target=build, args=item) for item in wanted.items()]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == {"acme": {AcmeNorm}, "other": {OtherNorm}, "none": {RMSNorm}}


def test_tasks_of_one_loop_never_see_each_others_classes() -> None:
    async def build(cls: type[RMSNorm]) -> type:
        with overriding({"rms_norm": cls}):
            await asyncio.sleep(0)
            return type(norm())

    async def both() -> tuple[type, type]:
        first, second = await asyncio.gather(build(AcmeNorm), build(OtherNorm))
        return first, second

    assert asyncio.run(both()) == (AcmeNorm, OtherNorm)


def test_a_class_may_have_an_abstract_base_beside_the_op() -> None:
    class Sized(ABC):
        @abstractmethod
        def size(self) -> int: ...

    class Both(RMSNorm, Sized):
        def size(self) -> int:
            return self.hidden_size

    with overriding({"rms_norm": Both}):
        made = norm()
    assert isinstance(made, Both)
    assert made.size() == 4


def test_the_signature_of_an_op_class_is_that_of_its_init() -> None:
    assert list(inspect.signature(RMSNorm).parameters) == ["hidden_size", "eps", "dtype"]


def test_where_conditions_on_properties_do_not_hold_the_cores_class_is_made() -> None:
    conditions = {"rms_norm": (("hidden_size", MultipleOf(4)),)}
    with overriding({"rms_norm": AcmeNorm}, conditions=conditions):
        kinds = [type(RMSNorm(size, 1e-6, torch.float32)) for size in (4, 6, 8)]
        inside = FusedAddRMSNorm(6, 1e-6, dtype=torch.float32).norm
    assert kinds == [AcmeNorm, RMSNorm, AcmeNorm]
    assert type(inside) is RMSNorm
    assert not inside.weight.is_meta


def test_a_slot_outside_the_conditions_still_has_the_parts_that_others_take() -> None:
    class AcmeSlot(GateUpAct): ...

    class AcmeSilu(SiluAndMul): ...

    classes: dict[str, type[CustomOp]] = {"gate_up_act": AcmeSlot, "silu_and_mul": AcmeSilu}
    with overriding(classes, conditions={"gate_up_act": (("has_bias", OneOf(True)),)}):
        made = GateUpAct(4, 4, "silu", False, torch.float32)
    assert (type(made), type(made.act)) == (GateUpAct, AcmeSilu)

"""Decorators mark and do nothing else; what is plainly wrong is said where it stands."""

from __future__ import annotations

import math
from typing import Any

import pytest

from dougong.contracts import AtLeast, AtMost, Between, RegistrationKind
from dougong.contracts.registration import marks_of
from dougong.errors import ContractError
from dougong.ops import CustomOp, Needs, RMSNorm, register_kernel, register_op
from dougong.ops.marks import KernelTerms


def kernel(x: Any) -> Any:
    return x


def fresh() -> Any:
    return lambda x: x


def test_a_marked_function_is_the_same_function_with_its_terms() -> None:
    function = fresh()
    marked = register_kernel("linear", name="acme/x", tokens=AtMost(8), mutates="x")(function)
    assert marked is function
    (mark,) = marks_of(function)
    assert (mark.kind, mark.key, mark.name) == (RegistrationKind.KERNEL, "linear", "acme/x")
    assert mark.details == KernelTerms(Needs(), AtMost(8), 0, ("x",))
    assert hash(mark) == hash(mark)


def test_one_function_may_carry_several_marks() -> None:
    function = register_kernel("linear", name="acme/a")(fresh())
    register_kernel("lm_head", name="acme/b")(function)
    assert [mark.key for mark in marks_of(function)] == ["linear", "lm_head"]


@pytest.mark.parametrize(
    ("terms", "told"),
    [
        ({"name": "fast"}, "name='fast' is not namespaced"),
        ({"name": "native"}, "name='native' is not namespaced"),
        ({"name": "acme/fast norm"}, "without spaces"),
        ({"name": "acme/a=b"}, "without spaces, commas and '='"),
        ({"name": 3}, "name=3 is not namespaced"),
        ({"when": {"dtype": "float32"}}, "is no Needs"),
        ({"tokens": 8}, "tokens=8 is no AtMost, AtLeast or Between"),
        ({"tokens": AtMost(0)}, "holds for a step of no tokens"),
        ({"tokens": Between(0, 4)}, "holds for a step of no tokens"),
        ({"tokens": AtLeast(0)}, "holds for a step of no tokens"),
        ({"priority": "high"}, "priority='high' is no int"),
        ({"mutates": (3,)}, "[3] are no names"),
    ],
)
def test_wrong_terms_are_refused_at_once(terms: dict[str, Any], told: str) -> None:
    with pytest.raises(ContractError) as caught:
        register_kernel("linear", **{"name": "acme/x"} | terms)(kernel)
    assert told in str(caught.value)
    assert "test_marks.kernel, registered for op 'linear'," in str(caught.value)
    assert marks_of(kernel) == ()


def test_all_wrong_terms_stand_in_one_message() -> None:
    with pytest.raises(ContractError) as caught:
        register_kernel("linear", name="x", tokens=AtMost(0), priority=1.5)(3)  # type: ignore[arg-type]  # planted
    assert len(caught.value.problems) == 4


def test_what_can_carry_no_mark_is_refused_with_a_way_out() -> None:
    with pytest.raises(ContractError, match="wrap it in a Python function"):
        register_kernel("linear", name="acme/x")(math.sqrt)


def test_an_out_of_tree_class_is_a_class() -> None:
    with pytest.raises(ContractError, match=r"kernel is no class.*register_kernel"):
        CustomOp.register_oot("rms_norm")(kernel)
    with pytest.raises(ContractError, match="not namespaced"):
        CustomOp.register_oot("rms_norm", name="fast")(type("Norm", (RMSNorm,), {}))
    (mark,) = marks_of(CustomOp.register_oot("rms_norm")(type("Norm", (RMSNorm,), {})))
    assert (mark.kind, mark.key, mark.name) == (RegistrationKind.OP_CLASS, "rms_norm", "")


def test_a_subclass_does_not_inherit_its_parents_mark() -> None:
    marked = CustomOp.register_oot("rms_norm")(type("Norm", (RMSNorm,), {}))
    assert marks_of(type("Heir", (marked,), {})) == ()


def test_a_plugins_own_op_is_a_class_with_a_namespaced_key() -> None:
    with pytest.raises(ContractError, match="is no class"):
        register_op(kernel)
    with pytest.raises(ContractError, match="its key is 'rms_norm'"):
        register_op(type("Norm", (RMSNorm,), {}))
    with pytest.raises(ContractError, match="its key is None"):
        register_op(type("Keyless", (CustomOp,), {}))
    (mark,) = marks_of(register_op(type("Own", (CustomOp,), {"key": "acme/own"})))
    assert (mark.kind, mark.key) == (RegistrationKind.OP, "acme/own")

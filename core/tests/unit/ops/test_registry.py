"""One registry per engine: what planning sees, what collides, what is one and the same."""

from __future__ import annotations

import torch

from dougong.contracts import AtMost, OpPiece
from dougong.describe import CandidateKind
from dougong.ops import OP_KEYS, CustomOp, RMSNorm
from dougong.ops.registry import OpRegistry
from tests.support.acme_ops import AcmeNorm, Twice, anything, fast_twice, wide
from tests.support.registrations import assignments, registrations, registry


def test_candidates_come_in_order_of_registration_with_their_conditions() -> None:
    found = registry(wide, AcmeNorm, anything).candidates()
    assert [(one.name, one.kind, one.priority) for one in found] == [
        ("acme/wide", CandidateKind.KERNEL, -1),
        ("acme/AcmeNorm", CandidateKind.OP_CLASS, 0),
        ("acme/any", CandidateKind.KERNEL, 2),
    ]
    first = found[0]
    assert (first.key, first.origin, first.tokens) == ("rms_norm", "acme 1.0", AtMost(512))
    assert str(first.when) == "dtype bfloat16, hidden_size multiples of 64"


def test_without_plugins_there_is_the_catalogue_and_no_candidate() -> None:
    empty = registry()
    assert empty.keys == OP_KEYS
    assert empty.candidates() == ()
    assert empty.find("rms_norm", "native") is None


def test_a_plugins_own_op_is_known_whatever_was_registered_first() -> None:
    found = registry(fast_twice, Twice)
    assert found.keys == OP_KEYS | {"acme/twice"}
    assert found.ops["acme/twice"] is Twice
    assert [one.name for one in found.candidates()] == ["acme/fast_twice"]


def test_the_same_object_twice_is_registered_once() -> None:
    objects = (anything, AcmeNorm, Twice)
    twice = [*registrations(*objects), *registrations(*objects, distribution="other 2.0")]
    found = OpRegistry.from_registrations(twice).candidates()
    assert [(one.name, one.origin) for one in found] == [
        ("acme/any", "acme 1.0"),
        ("acme/AcmeNorm", "acme 1.0"),
    ]


def test_a_class_that_computes_nothing_itself_is_no_override_and_is_told() -> None:
    @CustomOp.register_oot("rms_norm", name="acme/idle")
    class Idle(RMSNorm): ...

    found = registry(Idle)
    assert found.candidates() == ()
    assert found.notes == (
        "acme 1.0: class acme/idle of op rms_norm has no forward_oot of its own, so it is no "
        "override and native runs",
    )
    assert registry(AcmeNorm).notes == ()


def test_a_model_is_built_of_the_classes_its_plan_names_and_of_no_others() -> None:
    found = registry(AcmeNorm, anything)
    plain = RMSNorm(4, 1e-6, torch.float32)
    mixed = (OpPiece("acme/any", 8), OpPiece("acme/AcmeNorm"))
    for name, cls in (("acme/any", RMSNorm), ("acme/AcmeNorm", AcmeNorm), (mixed, AcmeNorm)):
        with found.overriding(assignments(plain, {"rms_norm": name})):
            assert type(RMSNorm(4, 1e-6, torch.float32)) is cls
    assert type(RMSNorm(4, 1e-6, torch.float32)) is RMSNorm

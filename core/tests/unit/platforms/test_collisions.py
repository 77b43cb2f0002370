from __future__ import annotations

from typing import Any

import pytest

from dougong.contracts import Mark, PluginError, Registration, RegistrationKind
from dougong.platforms.collisions import add_registrations


def _registration(
    wheel: str, kind: RegistrationKind, key: str, name: str, target: Any
) -> Registration:
    return Registration(
        mark=Mark(kind=kind, key=key, name=name), target=target, plugin=wheel, distribution=wheel
    )


def _kernel(wheel: str, name: str, target: Any) -> Registration:
    return _registration(wheel, RegistrationKind.KERNEL, "rms_norm", name, target)


def _model(wheel: str, target: Any) -> Registration:
    return _registration(wheel, RegistrationKind.MODEL, "AcmeLM", "AcmeLM", target)


def _ours() -> None: ...


def _theirs() -> None: ...


def test_many_kernels_may_serve_one_op_and_keep_their_order() -> None:
    first, second = _kernel("a 1", "a/norm", _ours), _kernel("b 1", "b/norm", _theirs)
    assert add_registrations((first,), [second], plugin="b") == (first, second)


@pytest.mark.parametrize(
    ("one", "other", "told"),
    [
        (_kernel("a 1", "x/norm", _ours), _kernel("b 2", "x/norm", _theirs), "kernel 'x/norm'"),
        (_model("a 1", "a.m:M"), _model("b 2", "b.m:M"), "architecture 'AcmeLM'"),
        (
            _registration("a 1", RegistrationKind.OP_CLASS, "rms_norm", "a", _ours),
            _registration("b 2", RegistrationKind.OP_CLASS, "rms_norm", "b", _theirs),
            "class for op 'rms_norm'",
        ),
    ],
)
def test_one_name_for_two_objects_is_refused_naming_both_wheels(
    one: Registration, other: Registration, told: str
) -> None:
    with pytest.raises(PluginError, match=f"{told} is claimed by a 1 and by b 2"):
        add_registrations((one,), [other], plugin="b")


def test_the_same_object_twice_counts_once() -> None:
    one, again = _kernel("a 1", "x/norm", _ours), _kernel("b 2", "x/norm", _ours)
    assert add_registrations((one,), [again], plugin="b") == (one,)
    model, twin = _model("a 1", "a.m:M"), _model("b 2", "a.m:M")
    assert add_registrations((model,), [twin], plugin="b") == (model,)


def test_kinds_do_not_collide_with_one_another() -> None:
    op = _registration("a 1", RegistrationKind.OP, "x", "x", _ours)
    kernel = _registration("a 1", RegistrationKind.KERNEL, "x", "x", _theirs)
    assert len(add_registrations((), [op, kernel], plugin="a")) == 2

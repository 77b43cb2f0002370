"""Every op of the catalogue keeps the promises that registrations are judged by."""

from __future__ import annotations

import pytest

from dougong.ops import OP_KEYS, OPS, CustomOp
from dougong.ops.judging import op_problems

EVERY_OP = pytest.mark.parametrize("op", OPS.values(), ids=OPS)


@EVERY_OP
def test_an_op_is_what_a_plugins_own_op_must_be_but_for_the_namespace(op: type[CustomOp]) -> None:
    assert [p for p in op_problems(op, ()) if "namespaced" not in p] == []


@EVERY_OP
def test_an_op_says_how_many_arguments_it_takes(op: type[CustomOp]) -> None:
    assert op.num_args() == len(op.example()[1])


def test_keys_are_plain_words_so_that_plugins_never_meet_them() -> None:
    assert frozenset(OPS) == OP_KEYS
    assert all(key.isidentifier() and OPS[key].key == key for key in OP_KEYS)

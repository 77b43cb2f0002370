from __future__ import annotations

import pytest

from dougong.contracts import AtMost, MultipleOf, Needs
from dougong.describe import CandidateKind, OpCandidate
from dougong.describe.capability_form import StoredOp, op_to_plain, ops_from_plain
from dougong.describe.plain_data import UnusableData

OPS = (
    OpCandidate(
        key="rms_norm",
        name="acme/norm",
        origin="acme 1",
        kind=CandidateKind.OP_CLASS,
        when=Needs(hidden_size=MultipleOf(64)),
        tokens=AtMost(8),
        priority=-1,
    ),
    OpCandidate(key="acme/swirl", name="acme/norm", origin=""),
)


def test_ops_come_back_as_they_went() -> None:
    stored = tuple(map(op_to_plain, OPS))
    assert ops_from_plain(stored, None) == OPS
    assert ops_from_plain(stored, {"rms_norm": ("hidden_size",)}) == OPS


def test_every_problem_of_every_op_is_told() -> None:
    stored = (
        StoredOp(key="rms_norm", name="native", when={"driver": "new", "limits": 1}),
        StoredOp(key="rms_norm", name="", tokens={"at_least": 0}),
        StoredOp(key="", name="acme/x"),
        StoredOp(key="", name="acme/x"),
    )
    with pytest.raises(UnusableData) as caught:
        ops_from_plain(stored, None)
    assert [one.split(" ")[0].rstrip(":") for one in caught.value.problems] == [
        "ops[3]",
        "ops[0].name",
        "ops[0].when.driver",
        "ops[0].when.limits",
        "ops[1].name",
        "ops[1].tokens",
        "ops[2].key",
        "ops[3].key",
    ]

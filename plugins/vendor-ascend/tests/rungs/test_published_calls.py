"""L0: every call of the vendor's ops binds to the schemas that the vendor's wheel registers."""

from __future__ import annotations

from pathlib import Path

import pytest
from dougong_conformance.ladder import calls

from tests.references import REFERENCES
from tests.references.stand_ins import golden
from tests.rungs.vendor_calls import NAMESPACES, SOURCE, of_the_plugin


def test_every_call_binds() -> None:
    assert calls.bind(of_the_plugin(), golden(), NAMESPACES) == ()


def test_every_op_that_is_called_has_a_reference_and_no_other_has() -> None:
    called = {
        f"{call.op}.{call.overload}" if call.overload else call.op
        for call in of_the_plugin()
        if not call.is_question
    }
    assert called == set(REFERENCES)


def test_nothing_of_the_vendor_is_called_by_another_way() -> None:
    direct = [
        path.name for path in SOURCE.rglob("*.py") if "torch_npu.npu_" in path.read_text("utf-8")
    ]
    assert direct == []


@pytest.mark.parametrize(
    ("call", "problem"),
    [
        ("torch.ops.npu.npu_rms_norm(x, w, eps=1e-5)", "no argument eps"),
        ("torch.ops.npu.npu_rms_norm(x)", "gamma missing"),
        ("torch.ops.npu.npu_rms_nrom(x, w)", "no such op"),
        ("torch.ops.npu.npu_rms_norm(x, w, 1e-5, 2)", "without a name"),
        ("torch.ops.npu.npu_rms_norm(x, w, input=x)", "twice"),
        ("torch.ops.npu.npu_swiglu(x, dim='last')", "'last'"),
        ("torch.ops.npu.npu_rms_norm(*arguments)", "cannot be bound"),
        ("torch.ops.npu.npu_rms_norm(x, **more)", "cannot be bound"),
        ("apply(torch.ops.npu.npu_rms_norm)", "handed on"),
        ("torch.ops.npu.npu_rms_norm.out(x, w)", "no such op"),
        ("torch.ops.atb._npu_paged_attention(q, k, v, 1, 1, 1.0, table, lens)", "out missing"),
    ],
)
def test_a_call_that_does_not_fit_is_found(tmp_path: Path, call: str, problem: str) -> None:
    (tmp_path / "planted.py").write_text(f"import torch\n{call}\n", "utf-8")
    (found,) = calls.bind(calls.vendor_calls(tmp_path, NAMESPACES), golden())
    assert found.startswith("planted.py:2:")
    assert problem in found


def test_a_namespace_that_is_never_called_is_a_problem() -> None:
    (found,) = calls.bind((), golden(), {"atb"})
    assert "atb" in found

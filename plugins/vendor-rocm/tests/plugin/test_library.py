from __future__ import annotations

import importlib
import inspect
import sys
from types import ModuleType, SimpleNamespace

import pytest
from dougong_conformance.ladder.stand_in import StandIn

from dougong_rocm import library
from tests.references import aiter_functions


@pytest.fixture
def installed(aiter: StandIn, monkeypatch: pytest.MonkeyPatch) -> None:
    """Modules of AITER that hold its Python functions."""
    monkeypatch.setattr(library, "AITER", SimpleNamespace())
    for name, call in library.CALLS.items():
        if call.module:
            module = ModuleType(call.module)
            setattr(module, name, aiter_functions.FUNCTIONS[name])
            monkeypatch.setitem(sys.modules, call.module, module)
    monkeypatch.setitem(sys.modules, "aiter", ModuleType("aiter"))
    monkeypatch.setattr(library, "version_of", lambda distribution: "0.1.7")


def test_every_call_is_bound_where_it_fits(installed: None) -> None:
    report = library.bind(["gfx942", "gfx942"])
    assert report.missing == {}
    assert set(report.loaded) == {f"aiter.{name} 0.1.7" for name in library.CALLS}
    assert library.AITER.fused_moe is aiter_functions.fused_moe


def test_a_function_that_lost_an_argument_is_missing_with_the_reason(
    installed: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    def other(q: object, k: object, v: object, out: object, *, sequence_lengths: object) -> None:
        """Another release's."""

    module = sys.modules["aiter.ops.triton.unified_attention"]
    monkeypatch.setattr(module, "unified_attention", other)
    report = library.bind(["gfx950"])
    assert list(report.missing) == ["aiter.unified_attention"]
    reason = report.missing["aiter.unified_attention"]
    assert "amd-aiter 0.1.7" in reason
    assert "sequence_lengths" in reason
    assert len(report.loaded) == len(library.CALLS) - 1


def test_an_op_that_is_gone_is_missing_with_the_reason(
    installed: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = {**library.CALLS, "rms_norm_v9": library.ExpectedCall(3)}
    monkeypatch.setattr(library, "CALLS", calls)
    assert "is not there" in library.bind(["gfx942"]).missing["aiter.rms_norm_v9"]


def test_an_op_with_other_arguments_is_missing_with_the_reason(
    installed: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = {**library.CALLS, "silu_and_mul": library.ExpectedCall(2, ("scale",))}
    monkeypatch.setattr(library, "CALLS", calls)
    assert "scale" in library.bind(["gfx942"]).missing["aiter.silu_and_mul"]


def test_a_release_that_cannot_build_paged_attention_is_told(
    installed: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    def choose(*args: object, **named: object) -> None:
        raise UnboundLocalError("filter_fwd")

    module = ModuleType("aiter.ops.mha")
    monkeypatch.setattr(module, "cmdGenFunc_mha_varlen_fwd", choose, raising=False)
    monkeypatch.setitem(sys.modules, "aiter.ops.mha", module)
    report = library.bind(["gfx942"])
    assert list(report.missing) == ["aiter.mha_varlen_fwd"]
    assert "UnboundLocalError: filter_fwd" in report.missing["aiter.mha_varlen_fwd"]
    monkeypatch.setattr(module, "cmdGenFunc_mha_varlen_fwd", lambda *args: {})
    assert library.bind(["gfx942"]).missing == {}
    monkeypatch.setattr(module, "cmdGenFunc_mha_varlen_fwd", lambda other: {})
    assert library.bind(["gfx942"]).missing == {}


@pytest.mark.parametrize(
    ("archs", "told"),
    [
        (["gfx90a"], "serves gfx942 and gfx950; there is gfx90a"),
        (["gfx942", "gfx1100"], "there is gfx1100"),
        ([], "no AMD GPU is visible"),
    ],
)
def test_where_aiter_has_no_kernels_everything_is_missing(archs: list[str], told: str) -> None:
    report = library.bind(archs)
    assert report.loaded == ()
    assert set(report.missing) == {library.library_of(name) for name in library.CALLS}
    assert all(told in reason for reason in report.missing.values())


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (ImportError("No module named 'aiter'"), "pip install amd-aiter"),
        (RuntimeError("ROCm version file not found\nmore"), "RuntimeError: ROCm version file not"),
        (KeyError("Unknown GPU architecture: gfx9"), "KeyError"),
    ],
)
def test_an_import_that_fails_is_told_and_not_raised(
    monkeypatch: pytest.MonkeyPatch, error: Exception, told: str
) -> None:
    def fail(name: str) -> ModuleType:
        raise error

    monkeypatch.setattr(importlib, "import_module", fail)
    reasons = set(library.bind(["gfx942"]).missing.values())
    assert len(reasons) == 1
    assert told in reasons.pop()


def test_a_schema_becomes_a_signature(aiter: StandIn) -> None:
    signature = library.op_signature("rms_norm")
    assert list(signature.parameters) == [
        *("input", "weight", "epsilon", "use_model_sensitive_rmsnorm")
    ]
    assert signature.parameters["epsilon"].default is inspect.Parameter.empty

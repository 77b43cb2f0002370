"""Every way in which a call can fail to bind is planted and caught."""

from __future__ import annotations

from pathlib import Path

import pytest

from dougong_conformance.ladder.calls import bind, vendor_calls
from dougong_conformance.ladder.golden import Golden, read_golden
from tests.unit.ladder import acme


@pytest.fixture
def known(tmp_path: Path) -> Golden:
    return read_golden(acme.write_golden(tmp_path))


def problems(known: Golden, folder: Path, source: str) -> tuple[str, ...]:
    place = folder / "source"
    place.mkdir(exist_ok=True)
    (place / "a.py").write_text(source)
    return bind(vendor_calls(place, {"acme"}), known)


GOOD = [
    "torch.ops.acme.rms_norm(x, w)",
    "torch.ops.acme.rms_norm(x, w, eps=1e-5)",
    "torch.ops.acme.rms_norm(x, w, eps=1)",
    "torch.ops.acme.rms_norm.default(x, weight=w)",
    "torch.ops.acme.cast(x, 3)",
    "torch.ops.acme.cast(x, other)",
    "torch.ops.acme.cast.like(x, other)",
    "torch.ops.acme.write(k, cache, mode='ND')",
    "import torch as t\nt.ops.acme.rms_norm(x, w)",
    "from torch import ops\nops.acme.rms_norm(x, w)",
    "a = torch.ops.acme\nf = a.rms_norm\nf(x, w)",
    "class A:\n  def __init__(self):\n    self.f = torch.ops.acme.rms_norm.default\n"
    "  def g(self):\n    self.f(x, w)",
    "getattr(torch.ops.acme, 'rms_norm')(x, w)",
    "hasattr(torch.ops.acme, 'rms_norm')",
    "torch.ops.acme.rms_norm.overloads()",
    "torch.ops.other.rms_norm(*x)",
    "ops = module.ops\nops.acme.rms_norm(1)",
]

BAD = [
    ("torch.ops.acme.rms_norm(x)", "weight missing"),
    ("torch.ops.acme.rms_norm(x, w, epsilon=1e-5)", "it has no argument epsilon"),
    ("torch.ops.acme.rms_norm(x, w, 1e-5, 2)", "4 arguments without a name, and it takes 3"),
    ("torch.ops.acme.rms_norm(x, w, x=x)", "x given twice"),
    ("torch.ops.acme.rms_norm(x, w, eps='a')", "eps is float, and 'a' is given"),
    ("torch.ops.acme.rms_norm(x, w, eps=True)", "eps is float, and True is given"),
    ("torch.ops.acme.rms_norm(None, w)", "x is Tensor, and None is given"),
    ("torch.ops.acme.rms_norm(*args)", "cannot be bound"),
    ("torch.ops.acme.rms_norm(x, **more)", "cannot be bound"),
    ("torch.ops.acme.write(k, cache, 'ND')", "3 arguments without a name"),
    ("torch.ops.acme.norm(x, w)", "acme.schemas.json has no such op"),
    ("torch.ops.acme.cast.to(x, 1)", "acme::cast.to: acme.schemas.json has no such op"),
    ("torch.ops.acme.cast.like(x)", "other missing"),
    ("hasattr(torch.ops.acme, 'norm')", "no such op"),
    ("getattr(torch.ops.acme, name)(x, w)", "handed on as a whole"),
    ("map(torch.ops.acme.rms_norm, rows)", "handed on as a value"),
    ("f = torch.ops.acme.rms_norm\nmap(f, rows)", "handed on as a value"),
    ("use(torch.ops.acme)", "handed on as a whole"),
    ("f = torch.ops.acme.rms_norm\nf(x)", "a.py:2: acme::rms_norm: weight missing"),
    ("import torch as t\nt.ops.acme.rms_norm(x)", "weight missing"),
    ("from torch.ops import acme\nacme.rms_norm(x)", "weight missing"),
    ("if never:\n  torch.ops.acme.rms_norm(x)", "a.py:2"),
]


@pytest.mark.parametrize("source", GOOD)
def test_a_call_that_fits_binds(known: Golden, tmp_path: Path, source: str) -> None:
    assert problems(known, tmp_path, source) == ()


@pytest.mark.parametrize(("source", "said"), BAD, ids=[source for source, _ in BAD])
def test_a_call_that_does_not_fit_is_a_problem(
    known: Golden, tmp_path: Path, source: str, said: str
) -> None:
    (problem,) = problems(known, tmp_path, source)
    assert said in problem


def test_a_name_that_means_two_ops_has_to_fit_both(known: Golden, tmp_path: Path) -> None:
    source = "f = torch.ops.acme.rms_norm\nf(x, w)\nf = torch.ops.acme.cast\n"
    assert problems(known, tmp_path, source) == ()
    (problem,) = problems(known, tmp_path, source.replace("f(x, w)", "f(x, w, eps=1.0)"))
    assert "acme::cast" in problem


def test_an_empty_scan_proves_nothing(known: Golden, tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("hasattr(torch.ops.acme, 'cast')")
    calls = vendor_calls(tmp_path, {"acme"})
    assert bind(calls, known) == ()
    (problem,) = bind(calls, known, {"acme"})
    assert "no call to acme:: was found" in problem


def test_ops_behind_another_expression_are_bound_as_well(known: Golden, tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("library.acme.rms_norm(x)\nacme_python.rms_norm(x, w)")
    roots = {"library.acme": "acme", "acme_python": "acme"}
    calls = vendor_calls(tmp_path, roots=roots)
    assert [call.place for call in calls] == ["a.py:1", "a.py:2"]
    (problem,) = bind(calls, known, {"acme"})
    assert problem.startswith("a.py:1: acme::rms_norm: weight missing")

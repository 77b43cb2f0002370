"""L0: every call of this wheel to AITER binds to what AITER's wheel publishes."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from dougong_conformance.ladder import calls, golden
from dougong_conformance.ladder.call_sites import Call

import dougong_rocm
from dougong_rocm import library
from tests.references.install import GOLDEN
from tools.function_signatures import read_golden, signature_of

SOURCE = Path(dougong_rocm.__file__).parent


def ops_called(folder: Path = SOURCE) -> tuple[Call, ...]:
    return calls.vendor_calls(folder, {"aiter"})


def functions_called(folder: Path = SOURCE) -> tuple[Call, ...]:
    found = calls.vendor_calls(folder, roots={"AITER": "python"})
    return tuple(call for call in found if call.file != "library.py")  # which sets them


def function_problems(found: tuple[Call, ...]) -> list[str]:
    """As `calls.bind`, for functions that have a signature and no schema."""
    signatures = {name.rpartition(".")[2]: text for name, text in read_golden().items()}
    problems = [f"{call.place}: {call.problem}" for call in found if call.problem]
    for call in found:
        name = call.op.partition("::")[2]
        if name not in signatures:
            problems.append(f"{call.place}: the golden file has no {name}")
            continue
        expected = library.ExpectedCall(call.num_positional, call.keywords)
        if reason := library.unbound(signature_of(signatures[name]), expected):
            problems.append(f"{call.place}: {reason}")
    return problems


def test_every_op_binds_to_the_golden_schemas() -> None:
    assert calls.bind(ops_called(), golden.read_golden(GOLDEN), ("aiter",)) == ()


def test_every_function_binds_to_the_golden_signatures() -> None:
    found = functions_called()
    assert len(found) == 4  # two of one function
    assert function_problems(found) == []


def test_the_table_that_is_probed_at_run_time_is_what_the_source_calls() -> None:
    found = (*ops_called(), *functions_called())
    called = {
        call.op.partition("::")[2]: (call.num_positional, frozenset(call.keywords))
        for call in found
    }
    probed = {
        name: (call.num_positional, frozenset(call.keywords))
        for name, call in library.CALLS.items()
    }
    assert called == probed


@pytest.mark.parametrize(
    ("before", "after", "told"),
    [
        ("need_renorm=renormalize", "renormalize=renormalize", "no argument renormalize"),
        (
            "torch.ops.aiter.rms_norm(rows, weight, eps)",
            "torch.ops.aiter.rms_norm(rows)",
            "missing",
        ),
        ("torch.ops.aiter.rms_norm(", "torch.ops.aiter.rms_norm_v2(", "no such op"),
        ("(rows, weight, eps)", "(*(rows, weight, eps))", "rms_norm"),
    ],
)
def test_a_planted_wrong_call_is_found(tmp_path: Path, before: str, after: str, told: str) -> None:
    shutil.copy(SOURCE / "kernels_aiter.py", tmp_path)
    path = tmp_path / "kernels_aiter.py"
    text = path.read_text("utf-8")
    assert before in text
    path.write_text(text.replace(before, after), "utf-8")
    problems = calls.bind(ops_called(tmp_path), golden.read_golden(GOLDEN), ("aiter",))
    assert len(problems) == 1
    assert told in problems[0]


def test_a_planted_wrong_function_call_is_found() -> None:
    fine = functions_called()
    wrong = tuple(
        replace(call, keywords=(*call.keywords, "sinks_ptr"))
        if call.op.endswith("unified_attention")
        else call
        for call in fine
    )
    (problem,) = function_problems(wrong)
    assert "sinks_ptr" in problem


def test_a_planted_difference_of_the_table_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    changed = {**library.CALLS, "rms_norm": library.ExpectedCall(4)}
    monkeypatch.setattr(library, "CALLS", changed)
    with pytest.raises(AssertionError):
        test_the_table_that_is_probed_at_run_time_is_what_the_source_calls()


@pytest.mark.parametrize("name", ["flash_attn_varlen_func", "mha_varlen_fwd"])
def test_the_public_flash_attention_is_known_and_not_called(name: str) -> None:
    """It ignores the block table for some heads: see `dougong_rocm.attention_aiter`."""
    is_called = any(call.op.endswith(f"::{name}") for call in (*ops_called(), *functions_called()))
    assert is_called is (name == "mha_varlen_fwd")

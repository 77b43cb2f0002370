"""L0: every call to a kernel provider binds to what that provider published."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.rungs.published import (
    EXTENSION,
    KERNELS,
    extension_calls,
    kernel_calls,
    problems_with_extension,
    problems_with_kernels,
)

_SOUND = "import torch\ntorch.ops._C.rms_norm(out, x, weight=w, epsilon=1e-6)\n"


def test_the_golden_files_hold_what_was_published() -> None:
    assert len(KERNELS.schemas) == 113
    assert len(EXTENSION.schemas) == 8


def test_every_call_to_the_kernels_binds() -> None:
    assert problems_with_kernels() == ()
    assert len({call.op for call in kernel_calls()}) >= 10


def test_every_call_to_the_extension_binds() -> None:
    assert problems_with_extension() == ()
    assert {call.op for call in extension_calls()} == EXTENSION.schemas.keys()


def test_a_sound_call_binds(tmp_path: Path) -> None:
    (tmp_path / "planted.py").write_text(_SOUND, "utf-8")
    assert problems_with_kernels(tmp_path, seen=("_C",)) == ()


@pytest.mark.parametrize(
    ("planted", "complaint"),
    [
        (_SOUND.replace("epsilon", "eps"), "no argument eps"),
        (_SOUND.replace(", epsilon=1e-6", ""), "epsilon missing"),
        (_SOUND.replace("rms_norm", "rmsnorm"), "no such op"),
        (_SOUND.replace("out, x,", "out, x, w,"), "weight given twice"),
        (_SOUND.replace("out, x,", "None, x,"), "result is Tensor, and None is given"),
        (_SOUND.replace("1e-6", '"1e-6"'), "epsilon is float"),
        (_SOUND.replace("weight=w", "**more"), "cannot be bound"),
        ("import torch\nf = torch.ops._C\nf.rms_norm(out, x, w)\n", "epsilon missing"),
    ],
    ids=("misspelt", "missing", "unknown", "twice", "none", "type", "starred", "by another name"),
)
def test_a_wrong_call_to_the_kernels_is_found(tmp_path: Path, planted: str, complaint: str) -> None:
    (tmp_path / "planted.py").write_text(planted, "utf-8")
    (problem,) = problems_with_kernels(tmp_path, seen=("_C",))
    assert complaint in problem


def test_a_wrong_call_to_the_extension_is_found(tmp_path: Path) -> None:
    planted = (
        "from dougong_xpu import ipex_library\n"
        "ipex_library.functional.rms_norm(x, w, epsilon=1e-6)\n"
        "ipex_library.paged.reshape_and_cache(k, v, key_cache=kc, value_cache=vc)\n"
    )
    (tmp_path / "planted.py").write_text(planted, "utf-8")
    problems = problems_with_extension(tmp_path)
    assert [problem.partition(": ")[0] for problem in problems] == ["planted.py:2", "planted.py:3"]
    assert "no argument epsilon" in problems[0]
    assert "slot_mapping missing" in problems[1]


def test_a_provider_that_is_never_called_is_found(tmp_path: Path) -> None:
    (tmp_path / "planted.py").write_text(_SOUND, "utf-8")
    assert len(problems_with_kernels(tmp_path)) == 4

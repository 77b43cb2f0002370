"""A plan is saved, insisted on and returned to; what changed since is refused with what and why."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from dougong import LLM
from dougong.planner.record import plan_to_json
from tests.support.command_line import run_command
from tests.support.greedy import greedy_tokens
from tests.support.installed_stubs import Installed
from tests.support.stub_attention import StubBackend, attention_platform
from tests.support.stub_plugins import Stub, count_calls
from tests.support.tiny_models import tiny_config, write_tiny_checkpoint

FLASH = StubBackend(name="acme/flash")
KERNEL = """
from torch.nn import functional as F

from dougong.ops import register_kernel


@register_kernel("lm_head", name="acme/head")
def head(hidden, weight):
    return F.linear(hidden, weight).float()
"""
ACME = replace(
    attention_platform("acme", FLASH, claims='dtypes=("float32",), kv_block_sizes=(16, 32)'),
    version="1.0",
)
ACME = replace(ACME, hooks=ACME.hooks + KERNEL)
OPTIONS = ("--platform", "acme", "--num-kv-blocks", "20")
Again = Callable[..., tuple[int, str]]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_checkpoint(tmp_path_factory.mktemp("model"))


@pytest.fixture
def plan(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Path:
    """Saved on a machine with the platform's wheel 1.0, which is then taken away again."""
    path = tmp_path / "plan.json"
    with monkeypatch.context() as machine:
        Installed(tmp_path / "then", machine).add(ACME)
        assert run_command("explain", str(model), *OPTIONS, "--save", str(path)) == 0
    assert str(path) in capsys.readouterr().err
    return path


@pytest.fixture
def again(
    model: Path,
    plan: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> Again:
    """Generates with the plan on a machine with another stub; exit code, and what was said."""

    def run(stub: Stub, *options: str, of: Path = model) -> tuple[int, str]:
        monkeypatch.setenv("STUB_COUNTER", str(tmp_path / "calls"))
        Installed(tmp_path / "now", monkeypatch).add(stub)
        arguments = ("the", "--model", str(of), "--plan", str(plan), "--max-tokens", "2", "--json")
        code = run_command("generate", *arguments, *options)
        captured = capsys.readouterr()
        return code, captured.err if code else captured.out

    return run


def test_it_is_had_again_without_any_other_option(again: Again, plan: Path) -> None:
    code, shown = again(ACME)
    assert code == 0
    had: dict[str, Any] = json.loads(shown)["start"]
    saved: dict[str, Any] = json.loads(plan.read_text())
    assert had["platform"] == "acme"
    assert had["plan"]["choices"]["num_kv_blocks"] == 20
    assert had["plan"]["platform_wheel"] == saved["platform_wheel"] == "dougong-acme 1.0"
    for part in ("attention", "ops", "kv_cache", "weights", "mode"):
        assert had["plan"][part] == saved[part]


def test_options_that_agree_with_it_may_be_given_again(again: Again) -> None:
    code, _ = again(ACME, *OPTIONS)
    assert code == 0


CHANGED: dict[str, tuple[Stub, str]] = {
    "platform wheel": (
        replace(ACME, version="1.1"),
        "platform wheel was dougong-acme 1.0 and is dougong-acme 1.1",
    ),
    "wheel of the op": (
        replace(ACME, version="1.1"),
        "wheel of acme/head was dougong-acme 1.0 and is dougong-acme 1.1",
    ),
    "op": (
        replace(ACME, hooks=ACME.hooks.replace('"acme/head"', '"acme/head2"')),
        "op lm_head (1 place) was acme/head and is acme/head2",
    ),
    "op whose condition holds no more": (
        replace(
            ACME,
            hooks=ACME.hooks.replace(
                'name="acme/head"', 'name="acme/head", when=Needs(features=("matrix",))'
            ).replace("import register_kernel", "import Needs, register_kernel"),
        ),
        "op lm_head (1 place) was acme/head and is native: acme/head: ",
    ),
    "attention backend": (
        replace(
            attention_platform(
                "acme",
                replace(FLASH, limits='dtypes=frozenset({"float32"}), head_sizes=frozenset({64})'),
            ),
            version="1.0",
        ),
        "attention backend was acme/flash and is reference/torch: head size 16; takes 64",
    ),
}


@pytest.mark.parametrize("what", CHANGED)
def test_what_changed_is_refused_with_what_and_why_before_a_device_is_opened(
    again: Again, tmp_path: Path, what: str
) -> None:
    stub, told = CHANGED[what]
    code, error = again(stub)
    assert code == 2
    assert "cannot be had any more; this changed since it was saved" in error
    assert told in error
    calls = count_calls(tmp_path / "calls")
    assert not [one for one in calls if one.startswith("set_device")]


@pytest.mark.parametrize(
    ("option", "told"),
    [
        ("--num-kv-blocks=30", "num_kv_blocks=30 was asked for, and the plan was made with "
                               "num_kv_blocks=20"),
        ("--platform=cpu", "platform=cpu was asked for, and the plan was made with platform=acme"),
    ],
)  # fmt: skip
def test_another_value_for_what_was_asked_then_is_refused(
    again: Again, option: str, told: str
) -> None:
    code, error = again(ACME, option)
    assert code == 2
    assert told in error


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (("--block-size", "32"), "block size was 16 and is 32"),
        (("--op", "lm_head=native"), "op lm_head (1 place) was acme/head and is native"),
        (("--custom-ops", "none"), "op lm_head (1 place) was acme/head and is native"),
        (("--attention-backend", "reference/torch"),
         "attention backend was acme/flash and is reference/torch"),
        (("--max-model-len", "100"), "max_model_len was 256 and is 100"),
    ],
    ids=lambda value: value[0] if isinstance(value, tuple) else "",
)  # fmt: skip
def test_an_option_that_would_change_it_is_refused_with_what_would_change(
    again: Again, options: tuple[str, str], told: str
) -> None:
    code, error = again(ACME, *options)
    assert code == 2
    assert told in error


@pytest.mark.parametrize(
    "options",
    [
        ("--device-memory-utilization", "0.7"),
        ("--dtype", "float32"),
    ],
    ids=lambda options: options[0],
)
def test_what_changes_nothing_that_runs_may_be_given_anew(
    again: Again, options: tuple[str, str]
) -> None:
    assert again(ACME, *options)[0] == 0


def test_a_size_of_the_cache_may_be_given_anew(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = str(tmp_path / "plan.json")
    common = ("--platform", "cpu")
    assert run_command("explain", str(model), *common, "--save", path) == 0
    monkeypatch.chdir(model.parent)
    sizes = (("--num-kv-blocks", "50"), ("--kv-cache-memory-bytes", "10000000"))
    for size in sizes:
        arguments = ("the", "--model", model.name, "--plan", path, "--max-tokens", "2", *size)
        assert run_command("generate", *arguments) == 0, capsys.readouterr().err
    code = run_command(
        "generate", "the", "--model", model.name, "--plan", path, "--max-num-seqs", "3"
    )
    assert code == 2
    assert "max_num_seqs was " in capsys.readouterr().err


def test_a_plan_whose_decisions_were_taken_out_is_refused(again: Again, plan: Path) -> None:
    saved = json.loads(plan.read_text())
    plan.write_text(json.dumps(saved | {"decisions": []}))
    code, error = again(ACME)
    assert code == 2
    assert "max_model_len was none and is 256" in error


@pytest.mark.parametrize(
    "damage",
    [
        {"kernels_loaded": [""]},
        {"choices": {"plan": "x.json"}},
        {"choices": {"model": "other"}},
        {"decisions": [{"field": "max_num_seqs", "value": "lots", "author": "", "reason": ""}]},
    ],
    ids=str,
)
def test_a_damaged_plan_is_refused_by_its_name_and_the_place(
    again: Again,
    plan: Path,
    model: Path,
    capsys: pytest.CaptureFixture[str],
    damage: dict[str, Any],
) -> None:
    plan.write_text(json.dumps(json.loads(plan.read_text()) | damage))
    code, error = again(ACME)
    assert code == 2
    assert f"--plan {plan}: This saved plan has values that no plan has" in error
    assert f"  - $.{next(iter(damage))}" in error
    assert run_command("explain", str(model), "--platform", "cpu", "--diff", str(plan)) == 2
    assert f"--diff {plan}: This saved plan has values" in capsys.readouterr().err


@pytest.mark.parametrize("text", ["{", "[" * 100_000])
def test_what_is_no_plan_at_all_is_refused_by_its_name(
    model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str
) -> None:
    path = tmp_path / "bad.json"
    path.write_text(text)
    for option in ("--diff", "--plan"):
        assert run_command("explain", str(model), "--platform", "cpu", option, str(path)) == 2
        assert f"{option} {path}: This is no saved plan" in capsys.readouterr().err


def test_another_config_under_the_same_name_is_seen_where_the_plan_is_the_same(
    model: Path, tmp_path: Path, again: Again, plan: Path
) -> None:
    kept = tmp_path / "kept"
    shutil.copytree(model, kept)
    try:
        write_tiny_checkpoint(model, tiny_config(rms_norm_eps=0.5))
        code, error = again(ACME)
    finally:
        shutil.copytree(kept, model, dirs_exist_ok=True)
    assert code == 2
    assert "digest of the config was sha256" in error


def test_another_checkpoint_under_the_same_name_is_seen(
    model: Path, plan: Path, again: Again, tmp_path: Path
) -> None:
    kept = tmp_path / "kept"
    shutil.copytree(model, kept)
    try:
        write_tiny_checkpoint(model, tiny_config(head_dim=32))
        code, error = again(ACME)
    finally:
        shutil.copytree(kept, model, dirs_exist_ok=True)
    assert code == 2
    assert "head size 16" in error
    assert "head size 32" in error


def test_a_saved_plan_of_a_running_engine_is_had_too(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Installed(tmp_path / "now", monkeypatch).add(ACME)
    path = tmp_path / "ran.json"
    with LLM(str(model), platform="acme", num_kv_blocks=20) as llm:
        expected = greedy_tokens(llm)
        path.write_text(plan_to_json(llm.plan))
    with LLM(str(model), plan=str(path)) as llm:
        assert greedy_tokens(llm) == expected

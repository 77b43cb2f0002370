"""What is gathered for a plan, and what is refused before anything is opened or loaded."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from dougong import LLM
from dougong.checkpoint import resolve_reference
from dougong.config import EngineArgs
from dougong.contracts import KernelReport
from dougong.engine.candidates import failures_by_kind
from dougong.engine.planning import PlannedStart, explain, plan_start
from dougong.errors import CheckpointError, ConfigError
from dougong.planner import ExecutionPlan
from dougong.planner.compare import differences
from dougong.planner.record import plan_from_json, plan_to_json
from dougong.platforms import open_platform
from dougong.testing.null_worker import NullWorker
from tests.support.installed_stubs import Installed
from tests.support.null_engine import NULL_OPTIONS, NullModels
from tests.support.stub_plugins import Stub
from tests.support.tiny_models import tensor_shapes, tiny_config

SWITCHED = """
from dougong.contracts import Needs
from dougong.ops import register_kernel


@register_kernel("lm_head", name="acme/head", when=Needs(env={"ACME_FAST": "1"}))
def head(hidden, weight):
    raise AssertionError("nothing is computed")
"""


@pytest.fixture
def bare(null_models: NullModels) -> str:
    """A model's folder with its configuration and no weights."""
    folder = Path(null_models.write())
    for file in folder.glob("*.safetensors"):
        file.unlink()
    return str(folder)


def planned(model: str, **options: Any) -> PlannedStart:
    args = EngineArgs(model=model, platform="null")
    return plan_start(args, open_platform("null"), files(model), **options)


def files(model: str) -> Any:
    return resolve_reference(model, needs_weights=False)


def test_without_weights_the_parameters_of_the_built_model_count(bare: str) -> None:
    told = planned(bare)
    count = sum(math.prod(shape) for _, shape in tensor_shapes(tiny_config()))
    assert told.inputs.needs.num_parameters == count
    assert told.config.model.num_parameters == count
    assert not told.knows_weights


def test_a_model_that_is_too_large_is_refused_without_its_weights(
    null_models: NullModels, tmp_path: Path
) -> None:
    config = tiny_config(hidden_size=8192, intermediate_size=32768, num_hidden_layers=80)
    (tmp_path / "large").mkdir()
    (tmp_path / "large" / "config.json").write_text(json.dumps(config))
    with pytest.raises(ConfigError, match=r"The weights of .* take"):
        planned(str(tmp_path / "large"))


def test_wrong_options_of_both_kinds_are_told_together(bare: str) -> None:
    args = EngineArgs(model=bare, platform="null", custom_ops="+rmsnorm", block_size=5, op=["x=y"])
    with pytest.raises(ConfigError) as caught:
        plan_start(args, open_platform("null"), files(bare))
    text = "\n".join(caught.value.problems)
    assert "rmsnorm" in text
    assert "x" in text
    assert "block_size=5" in text


TOGETHER: dict[str, tuple[dict[str, Any], tuple[str, ...]]] = {
    "a cache that does not fit": (
        {"num_kv_blocks": 10**8, "attention_backend": "nope"},
        ("KV cache of", "attention_backend=nope"),
    ),
    "no dtype": (
        {"dtype": "int4", "attention_backend": "nope", "op": ["lm_head=acme/none"]},
        ("dtype=int4 is not a dtype", "attention_backend=nope", "acme/none"),
    ),
    "no such size": (
        {"max_num_seqs": 0, "custom_ops": "+rmsnorm", "attention_backend": "nope"},
        ("max_num_seqs=0", "rmsnorm", "attention_backend=nope"),
    ),
}


@pytest.mark.parametrize("what", TOGETHER)
def test_what_nobody_can_plan_with_hides_nothing_else(bare: str, what: str) -> None:
    options, told = TOGETHER[what]
    with pytest.raises(ConfigError) as caught:
        plan_start(EngineArgs(model=bare, platform="null", **options), open_platform("null"),
                   files(bare))  # fmt: skip
    assert len(caught.value.problems) == len(told)
    for part in told:
        assert len([one for one in caught.value.problems if part in one]) == 1


def test_an_unknown_architecture_hides_nothing_else(bare: str) -> None:
    config = tiny_config(architectures=["AcmeForCausalLM"])
    (Path(bare) / "config.json").write_text(json.dumps(config))
    with pytest.raises(CheckpointError, match="AcmeForCausalLM"):
        planned(bare)
    args = EngineArgs(
        model=bare, platform="null", custom_ops="+rmsnorm", dtype="int4", attention_backend="nope"
    )
    with pytest.raises(ConfigError) as caught:
        plan_start(args, open_platform("null"), files(bare))
    for part in ("AcmeForCausalLM", "rmsnorm", "dtype=int4", "attention_backend=nope"):
        assert len([one for one in caught.value.problems if part in one]) == 1
    assert len(caught.value.problems) == 4


def test_a_config_that_its_class_refuses_hides_nothing_else(bare: str) -> None:
    (Path(bare) / "config.json").write_text(json.dumps(tiny_config(hidden_act="acme")))
    with pytest.raises(ConfigError) as caught:
        plan_start(EngineArgs(model=bare, platform="null", custom_ops="+rmsnorm"),
                   open_platform("null"), files(bare))  # fmt: skip
    text = str(caught.value)
    assert "rmsnorm" in text
    assert "hidden_act" in text


def test_what_the_class_ignores_of_the_config_is_noted(bare: str) -> None:
    config = tiny_config(sliding_window=32, attn_logit_softcapping=30.0)
    (Path(bare) / "config.json").write_text(json.dumps(config))
    window, cap = planned(bare).plan.notes
    assert "the config has a sliding window of 32 tokens, which model class Llama" in window
    assert "a cap of 30 on attention scores" in cap
    short = plan_start(
        EngineArgs(model=bare, platform="null", max_model_len=32),
        open_platform("null"),
        files(bare),
    )
    assert short.plan.notes == (cap,), "a window that holds every token makes no difference"


WITHOUT_FORWARD = """
from dougong.ops import CustomOp
from dougong.ops.catalog import OPS


@CustomOp.register_oot("lm_head")
class Head(OPS["lm_head"]):
    pass
"""


def test_a_registration_that_changes_nothing_is_noted_in_the_plan_and_the_warnings(
    null_models: NullModels, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Installed(tmp_path / "stubs", monkeypatch).add(
        Stub(distribution="acme", name="acme", has_platform=False, hooks=WITHOUT_FORWARD)
    )
    model = null_models.write()
    (note,) = explain(EngineArgs(model=model, **NULL_OPTIONS)).notes
    assert "class acme/Head of op lm_head has no forward_oot" in note
    with LLM(model, **NULL_OPTIONS) as llm:
        assert note in llm.report.warnings()
        assert plan_from_json(plan_to_json(llm.plan)).notes == (note,)


def test_weights_that_nobody_reads_are_refused_with_what_is_read(bare: str) -> None:
    config = tiny_config(quantization_config={"quant_method": "awq", "bits": 4})
    (Path(bare) / "config.json").write_text(json.dumps(config))
    with pytest.raises(ConfigError, match=r"the core reads .*q4_0.*q6_k"):
        planned(bare)


def test_what_failed_is_kept_apart_for_ops_and_attention_backends(bare: str) -> None:
    candidates = planned(bare).inputs.candidates
    assert failures_by_kind(candidates, {"reference/torch": "a", "acme/kernel": "b"}) == (
        {"acme/kernel": "b"},
        {"reference/torch": "a"},
    )


def test_a_refusal_makes_no_worker_and_no_process(
    bare: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def make(self: NullWorker, context: object) -> None:
        raise AssertionError("a worker was made")

    def spawn(*args: object, **kwargs: object) -> None:
        raise AssertionError("a process was made")

    monkeypatch.setattr(NullWorker, "__init__", make)
    monkeypatch.setattr("dougong.engine.process_channel.run_engine_process", spawn)
    for in_own_process in (False, True):
        with pytest.raises(ConfigError, match="acme/flash") as caught:
            LLM(bare, platform="null", attention_backend="acme/flash",
                in_own_process=in_own_process)  # fmt: skip
        assert not isinstance(caught.value, CheckpointError)


def test_variables_that_conditions_name_are_read(
    bare: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Installed(tmp_path / "stubs", monkeypatch).add(
        Stub(distribution="acme", name="acme", has_platform=False, hooks=SWITCHED)
    )
    monkeypatch.delenv("ACME_FAST", raising=False)
    off = planned(bare)
    assert off.inputs.environment == {}
    assert off.plan.implementations()["lm_head"] == {"native": 1}
    assert any("set ACME_FAST=1" in one.reason for one in off.plan.fallbacks)
    monkeypatch.setenv("ACME_FAST", "1")
    on = planned(bare)
    assert on.inputs.environment == {"ACME_FAST": "1"}
    assert on.plan.implementations()["lm_head"] == {"acme/head": 1}
    without = planned(bare, failed={"acme/head": "it broke"})
    assert without.plan.implementations()["lm_head"] == {"native": 1}
    assert without.plan == on.knowing(failed={"acme/head": "it broke"}).plan


def test_what_ranks_found_is_in_the_plan(bare: str) -> None:
    report = KernelReport(loaded=("acme 1",), missing={"other": "not built"})
    assert planned(bare).plan.kernels_loaded is None
    assert planned(bare, kernels=report).plan.kernels_loaded == ("acme 1",)
    assert planned(bare).knowing(kernels=report).plan.kernels_missing == {"other": "not built"}


def test_the_choices_of_the_user_are_recorded(bare: str) -> None:
    args = EngineArgs(model=bare, platform="null", op=["linear=native"], max_num_seqs=3)
    plan = plan_start(args, open_platform("null"), files(bare)).plan
    assert plan.choices == {"platform": "null", "op": "linear=native", "max_num_seqs": 3}


@pytest.mark.parametrize("in_own_process", [False, True], ids=["here", "own process"])
def test_an_explanation_is_what_runs(null_models: NullModels, in_own_process: bool) -> None:
    model = null_models.write()
    said = explain(EngineArgs(model=model, **NULL_OPTIONS))
    with LLM(model, in_own_process=in_own_process, **NULL_OPTIONS) as llm:
        assert differences(said, llm.plan) == ()
        assert llm.plan.kv_cache.num_blocks == 1000
        assert llm.plan.decisions == llm.report.decisions


def saved(folder: Path, plan: ExecutionPlan) -> str:
    path = folder / "plan.json"
    path.write_text(plan_to_json(plan))
    return str(path)


@pytest.mark.parametrize("in_own_process", [False, True], ids=["here", "own process"])
def test_a_saved_plan_is_had_again(
    null_models: NullModels, tmp_path: Path, in_own_process: bool
) -> None:
    model = null_models.write()
    wishes = EngineArgs(model=model, op=["linear=native"], **NULL_OPTIONS)
    path = saved(tmp_path, explain(wishes))
    with LLM(model, plan=path, in_own_process=in_own_process) as llm:
        assert llm.report.platform == "null"
        assert llm.report.block_size == 4
        assert llm.plan.choices["op"] == "linear=native"
        again = plan_from_json(plan_to_json(llm.plan))
    assert again == llm.plan, "what runs can be saved in its turn"


def test_a_saved_plan_that_cannot_be_had_is_refused_before_anything_is_loaded(
    null_models: NullModels, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = null_models.write()
    plan = explain(EngineArgs(model=model, **NULL_OPTIONS))
    path = saved(tmp_path, replace(plan, platform_wheel="dougong-null 0.9"))
    monkeypatch.setattr(NullWorker, "__init__", lambda self, context: 1 / 0)
    with pytest.raises(ConfigError, match=r"dougong-null 0\.9 and is dougong-null 1\.0"):
        LLM(model, plan=path)

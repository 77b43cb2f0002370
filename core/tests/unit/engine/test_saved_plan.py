"""``--plan FILE``: the same again, or what changed and why."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from dougong.config import CommandDefault, Decision, EngineArgs
from dougong.engine.saved_plan import check_same_plan, saved_kernels, with_saved_choices
from dougong.errors import ConfigError
from dougong.planner import ExecutionPlan
from dougong.planner.record import plan_to_json
from tests.support.made_up_plans import chip_plan


def save(folder: Path, plan: ExecutionPlan) -> str:
    path = folder / "plan.json"
    path.write_text(plan_to_json(plan))
    return str(path)


def test_what_was_asked_for_then_is_asked_for_now(tmp_path: Path) -> None:
    args = with_saved_choices(EngineArgs(model="m", plan=save(tmp_path, chip_plan())))
    assert args.custom_ops == "all,-lm_head"
    assert args.op == ("rotary_embedding=native",)
    assert args.max_num_seqs == 8
    assert with_saved_choices(args) == args


def test_without_a_plan_nothing_changes() -> None:
    args = EngineArgs(model="m")
    assert with_saved_choices(args) is args
    check_same_plan(args, chip_plan())


def test_another_value_than_the_plans_is_refused_with_both(tmp_path: Path) -> None:
    path = save(tmp_path, chip_plan())
    same = EngineArgs(model="m", plan=path, op=["rotary_embedding=native"])
    assert with_saved_choices(same).op == same.op
    with pytest.raises(ConfigError) as caught:
        with_saved_choices(EngineArgs(model="m", plan=path, custom_ops="none", max_num_seqs=9))
    assert len(caught.value.problems) == 2
    assert "max_num_seqs=9 was asked for, and the plan was made with max_num_seqs=8" in str(
        caught.value
    )


SAME = {"dtype": ("bf16", "bfloat16"), "op": (["b=y", "a=x"], "a=x,b=y"),
        "custom_ops": ("-b,all", "all,-b"),
        "attention_backend": ("decode=a, prefill=b", "prefill=b,decode=a")}  # fmt: skip


@pytest.mark.parametrize("name", SAME)
def test_the_same_in_other_words_may_be_given_again(tmp_path: Path, name: str) -> None:
    given, saved = SAME[name]
    path = save(tmp_path, replace(chip_plan(), choices={name: str(saved)}))
    args = EngineArgs.from_options({"model": "m", "plan": path, name: given})
    assert with_saved_choices(args).explicit == args.explicit


def test_a_size_of_the_cache_contradicts_the_other_way_to_give_it(tmp_path: Path) -> None:
    path = save(tmp_path, replace(chip_plan(), choices={"num_kv_blocks": 20}))
    with pytest.raises(ConfigError, match=r"kv_cache_memory_bytes=9 .* made with num_kv_blocks=20"):
        with_saved_choices(EngineArgs(model="m", plan=path, kv_cache_memory_bytes=9))


def test_sizes_that_follow_from_free_memory_are_taken_from_the_plan(tmp_path: Path) -> None:
    saved = replace(
        chip_plan(),
        decisions=(Decision("max_num_batched_tokens", 512, "core", "memory"),),
        choices={},
    )
    of_command = CommandDefault("max_num_batched_tokens", 1, "command generate", "one prompt")
    wishes = EngineArgs(model="m", plan=save(tmp_path, saved), defaults=(of_command,))
    args = with_saved_choices(wishes)
    (kept,) = args.defaults
    assert (kept.field, kept.value) == ("max_num_batched_tokens", 512)
    assert "max_num_batched_tokens" not in args.explicit
    assert with_saved_choices(args) == args


def test_a_plan_that_changed_is_refused_with_what_and_why(tmp_path: Path) -> None:
    args = EngineArgs(model="m", plan=save(tmp_path, chip_plan()))
    check_same_plan(args, chip_plan())
    check_same_plan(args, replace(chip_plan(), device="another of the same family"))
    upgraded = replace(chip_plan(), kernels_loaded=("acme-blas 4.2",))
    with pytest.raises(ConfigError, match=r"acme-blas 4\.1 .*acme-blas 4\.2"):
        check_same_plan(args, upgraded)


def test_the_libraries_of_a_saved_plan_stand_in_until_they_were_tried(tmp_path: Path) -> None:
    args = EngineArgs(model="m", plan=save(tmp_path, chip_plan()))
    kernels = saved_kernels(args)
    assert kernels is not None
    assert kernels.loaded == chip_plan().kernels_loaded
    untried = replace(chip_plan(), kernels_loaded=None, kernels_missing={})
    assert saved_kernels(EngineArgs(model="m", plan=save(tmp_path, untried))) is None
    assert saved_kernels(EngineArgs(model="m")) is None


@pytest.mark.parametrize("content", [None, "", "{}", '{"format": "dougong-plan"}'])
def test_a_file_that_is_no_plan_is_refused_by_its_name(tmp_path: Path, content: str | None) -> None:
    path = tmp_path / "plan.json"
    if content is not None:
        path.write_text(content)
    with pytest.raises(ConfigError, match=r"--plan .*plan\.json"):
        with_saved_choices(EngineArgs(model="m", plan=str(path)))


@pytest.mark.parametrize(
    ("old", "new", "place"),
    [
        ('"acme-blas 4.1"', '""', "$.kernels_loaded[0]"),
        ('"custom_ops": "all,-lm_head"', '"plan": "x"', "$.choices.plan"),
        ('"custom_ops": "all,-lm_head"', '"model": "x"', "$.choices.model"),
        ('"max_num_seqs": 8', '"max_num_seqs": "lots"', "$.choices.max_num_seqs"),
    ],
)
def test_a_damaged_file_is_refused_by_its_name_and_the_place_once(
    tmp_path: Path, old: str, new: str, place: str
) -> None:
    path = save(tmp_path, chip_plan())
    text = Path(path).read_text()
    assert old in text
    Path(path).write_text(text.replace(old, new))
    with pytest.raises(ConfigError) as caught:
        with_saved_choices(EngineArgs(model="m", plan=path))
    assert str(caught.value).startswith(f"--plan {path}: ")
    assert str(caught.value).count(place) == 1


def test_a_decision_of_the_wrong_type_is_refused_and_not_taken(tmp_path: Path) -> None:
    decision = Decision("max_num_seqs", "lots", "core", "damaged")
    path = save(tmp_path, chip_plan().with_decisions((decision,)))
    with pytest.raises(ConfigError, match=r"plan\.json: .*\n.*decisions\[0\]\.value: max_num_seqs"):
        with_saved_choices(EngineArgs(model="m", plan=path))

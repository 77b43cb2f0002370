from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from dougong.config import Decision
from dougong.contracts import (
    AtMost,
    AttentionLimits,
    AttentionPhase,
    ConfigError,
    GraphLevel,
    GraphSupport,
    KernelReport,
    Needs,
)
from dougong.describe import OpCandidate, WeightNeed
from dougong.planner import ExecutionPlan, FallbackLevel, plan
from dougong.planner.record import plan_from_json, plan_to_json
from tests.unit.planner.paper import PaperBackend, named, need, paper_inputs, site


def rich_plan() -> ExecutionPlan:
    """One with something in every field."""
    phases = (AttentionPhase.PREFILL, AttentionPhase.DECODE)
    backends = [
        PaperBackend(
            f"paper/{phase}",
            AttentionLimits(
                dtypes=frozenset({"bfloat16"}),
                phases=frozenset({phase}),
                sliding_window=True,
                soft_cap=True,
            ),
            graph=GraphSupport(GraphLevel.FULL),
            alignment_bytes=512,
            workspace=9,
        )
        for phase in phases
    ]
    inputs = paper_inputs(
        needs={
            "attention": (need(0, 2), need(1, sliding_window=8, soft_cap=30.5)),
            "weights": (WeightNeed(format="q4_1", is_quantized=True, is_readable=True),),
            "ops": (
                site("norm", "a", hidden_size=64, is_gemma=True, mode="rms"),
                replace(
                    site("linear", "b", in_features=64, out_features=8, weight_format="bfloat16"),
                    weight="b.weight",
                    stored_as="q4_1",
                ),
            ),
        },
        candidates={
            "attention": named(*backends, PaperBackend("reference/torch")),
            "preferred": lambda request: "paper/prefill",
            "ops": (
                OpCandidate(key="norm", name="acme/norm", origin="acme 1.0", tokens=AtMost(8)),
                OpCandidate(key="swirl", name="acme/swirl", origin="acme 1.0"),
                OpCandidate(
                    key="linear",
                    name="acme/linear4",
                    origin="acme 1.0",
                    when=Needs(weight_format="q4_1"),
                ),
            ),
            "kernels": KernelReport(("kit 2",), {"other": "absent"}),
            "graph": GraphSupport(GraphLevel.FULL),
        },
        claims={"graph_capture": True, "is_generic": True},
        config={"attention_backend": "prefill=paper/prefill,decode=paper/decode"},
        platforms_not_here={"acme": "absent"},
        platform_reasons=("asked for",),
        choices={"seed": 3, "strict": True, "device_memory_utilization": 0.5, "op": "norm=native"},
        checkpoint={"source": "/models/paper", "config": "abc"},
        notes=("the config has a sliding window that the model ignores",),
    )
    made = plan(inputs)
    more = (Decision("threshold", None, "core", "none", is_default=True),)
    return made.with_decisions((*made.decisions, *more))


def record() -> Any:
    return json.loads(plan_to_json(rich_plan()))


def reading(record: Any) -> str:
    with pytest.raises(ConfigError) as caught:
        plan_from_json(json.dumps(record))
    return str(caught.value)


def test_a_plan_comes_back_equal_and_of_the_same_types() -> None:
    made = rich_plan()
    again = plan_from_json(plan_to_json(made))
    assert again == made
    assert again.rank_plan == made.rank_plan
    assert {type(one.level) for one in again.fallbacks} == {FallbackLevel}
    request = again.attention[1].assignment.request
    assert isinstance(request.phase, AttentionPhase)
    assert hash(request) == hash(made.attention[1].assignment.request)
    assert hash(again.attention[0].assignment.layout)
    assert type(again.ops[0].properties["is_gemma"]) is bool
    assert type(again.choices["strict"]) is bool
    assert plan_to_json(again) == plan_to_json(made)
    assert plan_from_json(plan_to_json(made).encode()) == made


def test_every_field_of_the_example_holds_something() -> None:
    made = rich_plan()
    empty = [
        name for name in made.__dataclass_fields__ if getattr(made, name) in ((), {}, "", None)
    ]
    assert empty == ["platform_wheel"]


def test_the_text_begins_with_what_it_is() -> None:
    text = plan_to_json(rich_plan())
    assert text.startswith('{\n  "format": "dougong-plan",')
    assert text.endswith("}\n")


@pytest.mark.parametrize("text", ["", "{", "[1, 2]", '"plan"', "{}", '{"format": "other"}'])
def test_what_is_no_saved_plan_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="no saved plan"):
        plan_from_json(text)


@pytest.mark.parametrize("version", [0, 2, "1", None])
def test_another_version_is_refused_with_both(version: Any) -> None:
    told = reading(record() | {"plan_version": version})
    assert f"plan_version {version!r}" in told
    assert "reads 1" in told


def test_unknown_keys_are_refused_with_their_paths_all_together() -> None:
    changed = record()
    changed["atention"] = []
    changed["kv_cache"]["blocksize"] = 16
    changed["attention"][1]["assignment"]["layout"]["buffers"][0]["colour"] = "red"
    changed["ops"][0]["assignment"]["pieces"][1]["from"] = 3
    told = reading(changed)
    for path in (
        "$.atention is unknown",
        "$.kv_cache.blocksize is unknown",
        "$.attention[1].assignment.layout.buffers[0].colour is unknown",
        "$.ops[0].assignment.pieces[1].from is unknown",
    ):
        assert path in told


def test_keys_that_users_name_are_no_fields() -> None:
    changed = record()
    changed["choices"]["any"] = 1
    changed["origins"]["acme/other"] = "acme 2"
    assert plan_from_json(json.dumps(changed)).choices["any"] == 1


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("kv_cache.block_size", "16"),
        ("fallbacks.0.level", "sideways"),
        ("attention.0.assignment.layer_indices", [0, "one"]),
        ("attention.0.assignment.request.num_heads", 1.5),
        ("decisions", {}),
        ("mode", None),
    ],
)
def test_a_value_of_the_wrong_type_is_refused_with_its_path(path: str, value: Any) -> None:
    changed = record()
    place: Any = changed
    *parents, last = [int(part) if part.isdigit() else part for part in path.split(".")]
    for part in parents:
        place = place[part]
    place[last] = value
    told = reading(changed)
    assert "cannot be read" in told
    assert "$." + path.split(".")[0] in told


@pytest.mark.parametrize(
    ("path", "value", "told"),
    [
        ("kernels_loaded.0", "", "$.kernels_loaded[0]: '' is no name"),
        ("choices.plan", "other.json", "$.choices.plan: "),
        ("choices.model", "other", "$.choices.model: "),
        ("choices.seed", "three", "$.choices.seed: seed='three', a str; it takes a whole number"),
        ("choices.op", "", "$.choices.op: op='' is empty"),
        ("decisions.0.value", "lots", "$.decisions[0].value: max_num_seqs='lots', a str"),
        ("decisions.0.value", [[1]], "$.decisions[0].value: max_num_seqs=[[1]], a list"),
    ],
)
def test_a_value_that_no_plan_has_is_refused_with_its_path(
    path: str, value: Any, told: str
) -> None:
    changed = record()
    changed["decisions"][0]["field"] = "max_num_seqs"
    place: Any = changed
    *parents, last = [int(part) if part.isdigit() else part for part in path.split(".")]
    for part in parents:
        place = place[part]
    place[last] = value
    assert told in reading(changed)


def test_a_value_of_an_unknown_option_is_plain_data() -> None:
    changed = record()
    changed["decisions"][0] |= {"field": "of_a_later_version", "value": {"a": 1}}
    assert "$.decisions[0].value: of_a_later_version is a dict" in reading(changed)


@pytest.mark.parametrize("depth", [500, 100_000])
def test_a_text_nested_without_end_is_refused(depth: int) -> None:
    nested = "[" * depth + "]" * depth
    for text in (nested, plan_to_json(rich_plan()).replace('"value": null', f'"value": {nested}')):
        with pytest.raises(ConfigError, match="plan"):
            plan_from_json(text)


def test_a_text_that_is_no_unicode_is_refused() -> None:
    text = plan_to_json(rich_plan()).encode().replace(b"asked for", b"asked \xff for")
    with pytest.raises(ConfigError, match="no JSON"):
        plan_from_json(text)


def test_a_missing_key_is_refused_by_name() -> None:
    changed = record()
    del changed["kv_cache"]["block_size"]
    assert "block_size" in reading(changed)


def test_a_plan_of_a_started_engine_is_kept_too() -> None:
    made = rich_plan()
    sized = replace(made, kv_cache=replace(made.kv_cache, num_blocks=7))
    assert plan_from_json(plan_to_json(sized)).kv_cache.num_blocks == 7

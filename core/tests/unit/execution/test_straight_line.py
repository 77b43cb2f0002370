"""The code of a list computes what the model computes, and lets go what nobody reads."""

from __future__ import annotations

import traceback
from pathlib import Path

import pytest
import torch

from dougong.execution import FlatExecutable, FlatLists, callees, trace
from dougong.models import CausalLM
from dougong.ops.outline import named_ops
from tests.support.family_models import (
    LENGTHS,
    TOKEN_IDS,
    VARIANTS,
    family_config,
    load_family,
    write_family,
)
from tests.support.model_harness import ModelHarness


def lists_of(model: CausalLM) -> FlatLists:
    def made() -> CausalLM:
        with torch.device("meta"):
            return type(model)(model.hf_config, model.dtype, model.max_model_len)

    return trace(made)


def flat_harness(model: CausalLM) -> tuple[ModelHarness, FlatExecutable]:
    harness = ModelHarness(model)
    lists = lists_of(model)
    flat = FlatExecutable(lists, callees(model, lists), is_counted=True)
    model.forward = flat.forward  # type: ignore[method-assign]
    model.compute_logits = flat.compute_logits  # type: ignore[method-assign]
    return harness, flat


@pytest.mark.parametrize("variant", [name for name in VARIANTS if "," not in name])
def test_a_list_gives_the_very_numbers_of_the_model(variant: str, tmp_path: Path) -> None:
    write_family(tmp_path, family_config(variant))
    length = LENGTHS.get(variant)
    plain = ModelHarness(load_family(tmp_path, length))
    flat, counted = flat_harness(load_family(tmp_path, length))
    for chunks in ([100], [40, 1], [7]):
        name = str(chunks)
        expected = plain.logits(TOKEN_IDS, chunks, name)
        assert torch.equal(flat.logits(TOKEN_IDS, chunks, name), expected)
    assert all(counted.lines[0].counts)
    assert len(set(counted.lines[0].counts)) == 1, "every node runs once in every step"


@pytest.fixture(name="model", scope="module")
def small_model(tmp_path_factory: pytest.TempPathFactory) -> CausalLM:
    folder = tmp_path_factory.mktemp("llama")
    write_family(folder, family_config("Qwen2"))
    return load_family(folder)


def test_each_node_is_one_line_that_names_its_place(model: CausalLM) -> None:
    lists = lists_of(model)
    flat = FlatExecutable(lists, callees(model, lists))
    lines = flat.lines[0].source.splitlines()
    assert lines[0] == "def forward(token_ids, positions, step):"
    assert lines[1].endswith("= f0(token_ids)  # embed_tokens")
    calls = [line for line in lines if "  # " in line]
    assert len(calls) == len(lists_of(model).forward.nodes)


def test_a_tensor_is_let_go_after_its_last_reader(model: CausalLM) -> None:
    lists = lists_of(model)
    source = FlatExecutable(lists, callees(model, lists)).lines[0].source
    made = [value.name for node in lists.forward.nodes for value in node.outputs]
    let_go = [
        name.strip()
        for line in source.splitlines()
        if line.strip().startswith("del ")
        for name in line.strip().removeprefix("del ").split(",")
    ]
    assert sorted([*let_go, lists.forward.output.name]) == sorted([*made, "token_ids", "positions"])


def test_what_is_bound_later_is_what_runs(model: CausalLM) -> None:
    lists = lists_of(model)
    flat = FlatExecutable(lists, callees(model, lists))
    path, op = next(one for one in named_ops(model) if one[0] == "lm_head")
    hidden = torch.zeros(2, model.hf_config["hidden_size"])
    op.bind("other", lambda x: x + 1)
    try:
        assert torch.equal(flat.compute_logits(hidden), hidden + 1)
    finally:
        op.bind("native", op.forward_native)
    assert path == "lm_head"


def test_a_traceback_shows_the_line_and_the_place(model: CausalLM) -> None:
    lists = lists_of(model)
    flat = FlatExecutable(lists, callees(model, lists))
    with pytest.raises(RuntimeError) as caught:
        flat.compute_logits(torch.zeros(2, 3))
    shown = "".join(traceback.format_exception(caught.value))
    assert "# lm_head" in shown

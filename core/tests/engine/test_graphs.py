"""Steps that are captured and replayed say what eager ones say, whatever is in them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch

from dougong import LLM, SamplingParams
from dougong.attention import Attention
from dougong.config.args import GraphLevelName
from dougong.contracts import ConfigError
from dougong.reference.attention import ReferenceAttentionImpl
from dougong.worker import step_tensors
from dougong.worker.step_buffers import StepBuffer
from dougong.worker.wide_tables import WideTables
from tests.support.graph_platform import install_graph_platform, new_journal
from tests.support.recorded_graphs import RecordedGraphRunner
from tests.support.tiny_models import tiny_config, write_tiny_checkpoint

LEVELS: tuple[GraphLevelName, ...] = ("piecewise", "decode", "full")
OPTIONS: dict[str, Any] = {
    "platform": "graphs",
    "max_model_len": 64,
    "max_num_seqs": 6,
    "max_num_batched_tokens": 24,
    "block_size": 4,
    "num_kv_blocks": 80,
}
SHORT_OF_BLOCKS = {"num_kv_blocks": 16, "enable_prefix_caching": False}
PROMPTS = [
    [(7 * position + 13 * start + 5) % 250 for position in range(3 + 5 * start)]
    for start in range(6)
]
GREEDY = SamplingParams(max_tokens=12, temperature=0.0, ignore_eos=True)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    config = tiny_config(num_hidden_layers=3)
    return str(write_tiny_checkpoint(tmp_path_factory.mktemp("tiny"), config))


@pytest.fixture(autouse=True)
def _installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install_graph_platform(tmp_path / "site", monkeypatch)


def tokens(llm: LLM) -> list[list[int]]:
    return [list(one.outputs[0].token_ids) for one in llm.generate(PROMPTS, GREEDY)]


def graph_numbers(llm: LLM) -> Mapping[str, Any]:
    numbers: Mapping[str, Any] = llm.stats().ranks[0]["graphs"]
    return numbers


@pytest.fixture(scope="module")
def expected(model: str, tmp_path_factory: pytest.TempPathFactory) -> list[list[int]]:
    """Of eager steps, one request at a time."""
    with pytest.MonkeyPatch.context() as patch:
        install_graph_platform(tmp_path_factory.mktemp("site") / "site", patch)
        with LLM(model, **OPTIONS | {"max_num_seqs": 1, "enforce_eager": True}) as llm:
            assert "graphs" not in llm.stats().ranks[0]
            return tokens(llm)


@pytest.mark.parametrize("level", LEVELS)
def test_mixed_batches_and_chunks_say_what_eager_steps_say(
    model: str, expected: list[list[int]], level: GraphLevelName
) -> None:
    with LLM(model, **OPTIONS, graph_level=level) as llm:
        assert llm.plan.mode.name == level
        assert tokens(llm) == expected
        assert tokens(llm) == expected  # with a warm prefix cache
        numbers, num_steps = graph_numbers(llm), llm.stats().ranks[0]["num_steps"]
    kinds = {name.split()[0] for name, count in numbers["hits"].items() if count}
    assert (
        kinds
        == {
            "piecewise": {"piecewise"},
            "decode": {"decode", "piecewise"},
            "full": {"decode", "full"},
        }[level]
    )
    assert numbers["num_eager_steps"] == 0
    assert sum(numbers["hits"].values()) == num_steps
    assert numbers["num_padding_tokens"] > 0


@pytest.mark.parametrize("level", LEVELS)
def test_preemption_changes_nothing(
    model: str, expected: list[list[int]], level: GraphLevelName
) -> None:
    with LLM(model, **OPTIONS | SHORT_OF_BLOCKS, graph_level=level) as llm:
        assert tokens(llm) == expected
        assert llm.stats().scheduler.num_preemptions >= 1


def test_the_reference_backend_runs_between_the_pieces(
    model: str, expected: list[list[int]]
) -> None:
    with LLM(model, **OPTIONS, attention_backend="reference/torch") as llm:
        assert llm.plan.mode.name == "piecewise"
        assert tokens(llm) == expected
        assert sum(graph_numbers(llm)["hits"].values()) > 0


def test_layers_with_and_without_a_window_have_a_table_each(
    model: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = Attention.__init__

    def windowed(self: Attention, layer_index: int, *args: Any) -> None:
        made(self, layer_index, *args)
        self.sliding_window = 5 if layer_index == 1 else None

    monkeypatch.setattr(Attention, "__init__", windowed)
    with LLM(model, **OPTIONS, enforce_eager=True) as llm:
        assert len(llm.plan.attention) == 2
        eager = tokens(llm)
    with LLM(model, **OPTIONS) as llm:
        assert tokens(llm) == eager


def test_steps_above_the_largest_size_run_eagerly_and_are_counted(
    model: str, expected: list[list[int]]
) -> None:
    with LLM(model, **OPTIONS, graph_level="decode", graph_sizes="1,2,4") as llm:
        assert tokens(llm) == expected
        numbers, num_steps = graph_numbers(llm), llm.stats().ranks[0]["num_steps"]
    assert numbers["sizes"] == {"decode": [1, 2, 4], "piecewise": [1, 2, 4]}
    assert numbers["num_eager_steps"] > 0
    assert sum(numbers["hits"].values()) + numbers["num_eager_steps"] == num_steps


def test_a_step_of_exactly_a_graphs_size_has_no_padding(model: str) -> None:
    with LLM(model, **OPTIONS, graph_level="decode", graph_sizes="2,6") as llm:
        llm.generate([[1, 2, 3], [4, 5, 6]], GREEDY)
        numbers = graph_numbers(llm)
    assert numbers["hits"] == {"decode 2": 11, "decode 6": 0, "piecewise 2": 0, "piecewise 6": 1}
    assert numbers["num_padding_tokens"] == 0


def test_whole_steps_are_told_their_lengths_before_each_replay(
    model: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with LLM(model, **OPTIONS, graph_level="decode", graph_sizes="4") as llm:
        journal = new_journal(monkeypatch)
        llm.generate([[1, 2, 3], [4, 5]], SamplingParams(max_tokens=3, temperature=0.0))
    asked = [entry for entry in journal.entries if entry[0] != "release"]
    whole = ("replay", ("decode", 4, 0))
    assert asked == [
        ("prepare_replay", [[4, 3, 0, 0]]),
        whole,
        ("prepare_replay", [[5, 4, 0, 0]]),
        whole,
    ]


def test_every_graph_is_given_back_at_the_end(model: str, monkeypatch: pytest.MonkeyPatch) -> None:
    journal = new_journal(monkeypatch)
    with LLM(model, **OPTIONS):
        pass
    assert journal.named("capture")
    assert sorted(journal.named("capture")) == sorted(journal.named("release"))


class Deaf(RecordedGraphRunner):
    """Its replays compute nothing."""

    def replay(self, key: Any) -> None:
        pass


def _plant_slot_zero(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(step_tensors, "PADDING_SLOT", 0)


def _plant_new_buffers(monkeypatch: pytest.MonkeyPatch) -> None:
    to_device = StepBuffer.to_device
    monkeypatch.setattr(StepBuffer, "to_device", lambda self, count: to_device(self, count).clone())


def _plant_narrow_tables(monkeypatch: pytest.MonkeyPatch) -> None:
    def narrow(self: WideTables, group: int, table: torch.Tensor, num_rows: int) -> torch.Tensor:
        return self.rows(group, num_rows)

    monkeypatch.setattr(WideTables, "fill", narrow)


def _plant_deaf_runner(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.support.recorded_graphs.RecordedGraphRunner", Deaf)


@pytest.mark.parametrize(
    ("plant", "level"),
    [
        (_plant_slot_zero, "piecewise"),
        (_plant_slot_zero, "decode"),
        (_plant_new_buffers, "piecewise"),
        (_plant_new_buffers, "decode"),
        (_plant_narrow_tables, "decode"),
        (_plant_deaf_runner, "piecewise"),
    ],
)
def test_violations_that_were_planted_show_in_the_tokens(
    model: str,
    expected: list[list[int]],
    plant: Any,
    level: GraphLevelName,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    plant(monkeypatch)
    with LLM(model, **OPTIONS, graph_level=level) as llm:
        assert tokens(llm) != expected


class Failing(RecordedGraphRunner):
    """Cannot capture the larger steps."""

    def capture(self, key: Any) -> Any:
        if key[1] > 4:
            raise RuntimeError(f"no stream is left for {key[0]} {key[1]}")
        return super().capture(key)


@pytest.fixture
def failing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.support.recorded_graphs.RecordedGraphRunner", Failing)


@pytest.mark.usefixtures("failing")
def test_a_capture_that_raises_leaves_an_eager_engine_that_says_why(
    model: str, expected: list[list[int]]
) -> None:
    with LLM(model, **OPTIONS) as llm:
        assert tokens(llm) == expected
        assert llm.plan.mode.name == "none"
        (fallback,) = llm.plan.fallbacks
        assert (fallback.level.value, fallback.subject) == ("path", "graph capture")
        assert "no stream is left for" in fallback.reason
        assert llm.report.graphs is None


def test_attention_that_takes_no_padding_is_found_before_the_first_request(
    model: str, expected: list[list[int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    write_kv = ReferenceAttentionImpl.write_kv

    def picky(
        self: ReferenceAttentionImpl,
        k: torch.Tensor,
        v: torch.Tensor,
        kv_cache: Sequence[torch.Tensor],
        slot_mapping: torch.Tensor,
    ) -> None:
        if slot_mapping.min() < 0:
            raise ValueError("a negative slot")
        write_kv(self, k, v, kv_cache, slot_mapping)

    monkeypatch.setattr(ReferenceAttentionImpl, "write_kv", picky)
    with LLM(model, **OPTIONS, attention_backend="reference/torch") as llm:
        assert llm.plan.mode.name == "none"
        (fallback,) = llm.plan.fallbacks
        assert fallback.subject == "graph capture"
        assert "one row of padding: ValueError: a negative slot" in fallback.reason
        assert tokens(llm) == expected


@pytest.mark.usefixtures("failing")
@pytest.mark.parametrize(
    ("asked", "told"),
    [
        ({"graph_level": "decode"}, "asked for with --graph-level decode"),
        ({"graph_sizes": "2,8"}, "asked for with --graph-sizes 2,8"),
        ({"strict": True}, "--strict refuses to go on without it"),
    ],
)
def test_a_capture_that_was_asked_for_and_raises_stops_the_start(
    model: str, asked: dict[str, Any], told: str
) -> None:
    with pytest.raises(ConfigError, match=f"graph capture failed.*no stream is left.*{told}"):
        LLM(model, **OPTIONS | asked)


def test_sizes_that_do_not_fit_are_left_out_and_told(model: str, expected: list[list[int]]) -> None:
    with LLM(model, **OPTIONS) as llm:
        graphs = llm.report.graphs
        assert graphs is not None
    budget = graphs.num_bytes - 1
    with LLM(model, **OPTIONS, graph_memory_bytes=budget) as llm:
        less = llm.report.graphs
        assert less is not None
        assert less.dropped == ("full 24",)
        assert less.num_bytes <= budget
        assert any("graphs full 24 were not captured" in line for line in llm.report.warnings())
        assert tokens(llm) == expected
        assert graph_numbers(llm)["num_eager_steps"] > 0


def test_no_room_for_any_graph_is_a_fallback(model: str) -> None:
    with LLM(model, **OPTIONS, graph_memory_bytes=1) as llm:
        (fallback,) = llm.plan.fallbacks
        assert "no graph fits in graph_memory_bytes=1" in fallback.reason


def test_sizes_that_were_asked_for_and_do_not_fit_stop_the_start(model: str) -> None:
    with pytest.raises(ConfigError, match=r"graph_memory_bytes=1000 has no room for decode 2"):
        LLM(model, **OPTIONS, graph_sizes="2", graph_memory_bytes=1000)


def test_the_start_tells_what_was_captured(model: str) -> None:
    with LLM(model, **OPTIONS, graph_level="decode") as llm:
        lines = [line.strip() for line in llm.report.lines()]
    (line,) = [line for line in lines if line.startswith("graphs: ")]
    assert line.startswith("graphs: decode, 4 sizes up to 6; piecewise, 3 sizes up to 24; ")

"""Vectors of whole engines against `transformers`, and planted mistakes."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from dougong import LLM, PoolingParams
from dougong.cpu.worker import CpuWorker
from dougong.errors import ConfigError, RequestError
from dougong.messages import PoolingSpec
from dougong.models.bert import BertLayer
from dougong.ops import EncoderAttention
from dougong.worker import StepInputs
from dougong.worker.pooler import Pooler
from tests.support.embedding_models import (
    BERT_CONFIG,
    QWEN3_CONFIG,
    ROBERTA_CONFIG,
    expected_vector,
    write_embedding_model,
)

TOLERANCE = 1e-4
TEXTS = ["the cat", "a", "in the morning, on an island", "or", "the end of it all", "an ant"]


@dataclass
class Pair:
    """One model here and there."""

    folder: Path
    theirs: Any
    pooling: str
    is_normalized: bool
    llm: LLM

    def assert_equal(self, outputs: list[Any], tolerance: float = TOLERANCE) -> None:
        for output in outputs:
            expected = self.expected(output.prompt_token_ids)
            found = torch.tensor(output.embedding)
            torch.testing.assert_close(found, expected, rtol=0, atol=tolerance)

    def expected(self, token_ids: tuple[int, ...]) -> torch.Tensor:
        return expected_vector(
            self.theirs, token_ids, self.pooling, is_normalized=self.is_normalized
        )


MODELS: Mapping[str, tuple[Mapping[str, Any], str, bool]] = {
    "BERT, mean": (BERT_CONFIG, "mean", True),
    "BERT, first token": (BERT_CONFIG, "cls", True),
    "BERT, as it is": (BERT_CONFIG, "mean", False),
    "XLM-RoBERTa, first token": (ROBERTA_CONFIG, "cls", True),
    "Qwen3, last token": (QWEN3_CONFIG, "lasttoken", True),
    "Qwen3, mean": (QWEN3_CONFIG, "mean", True),
    "Qwen3, first token": (QWEN3_CONFIG, "cls", False),
}


@pytest.fixture(scope="module")
def pair_of(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str], Pair]]:
    made: dict[str, Pair] = {}

    def make(name: str) -> Pair:
        if name not in made:
            config, pooling, is_normalized = MODELS[name]
            folder = tmp_path_factory.mktemp("model")
            theirs = write_embedding_model(
                folder, config, pooling=pooling, is_normalized=is_normalized
            )
            # Decoders read a text over several steps, and share the blocks of equal beginnings.
            chunk = 8 if config is QWEN3_CONFIG else None
            llm = LLM(str(folder), platform="cpu", max_num_seqs=4, max_num_batched_tokens=chunk)
            made[name] = Pair(folder, theirs, pooling, is_normalized, llm)
        return made[name]

    yield make
    for pair in made.values():
        pair.llm.close()


@pytest.fixture(scope="module")
def bert(pair_of: Callable[[str], Pair]) -> Pair:
    return pair_of("BERT, mean")


@pytest.mark.parametrize("name", MODELS)
def test_vectors_equal_those_of_transformers(pair_of: Callable[[str], Pair], name: str) -> None:
    pair = pair_of(name)
    rng = random.Random(0)
    ids = [[rng.randrange(250) for _ in range(length)] for length in (1, 3, 40, 17, 3, 25, 40)]
    given: list[str | list[int]] = [*TEXTS, *ids]
    outputs = pair.llm.embed(given)
    assert len(outputs) == len(TEXTS) + len(ids)
    assert [output.prompt for output in outputs[: len(TEXTS)]] == TEXTS
    assert [list(output.prompt_token_ids) for output in outputs[len(TEXTS) :]] == ids
    pair.assert_equal(outputs)
    lengths = torch.tensor([output.embedding for output in outputs]).norm(dim=1)
    assert bool((lengths - 1).abs().max() < 1e-5) == pair.is_normalized
    assert pair.llm.stats().scheduler.num_running == 0
    assert pair.llm.stats().scheduler.kv_cache.num_held_blocks == 0


def test_texts_are_neither_padded_nor_cut_as_the_tokenizer_files_say(bert: Pair) -> None:
    short, long = bert.llm.embed(["a", "the cat and the ant " * 2])
    assert len(short.prompt_token_ids) == 3  # begin, "a", end
    assert len(long.prompt_token_ids) > 12


def test_a_decoder_takes_equal_beginnings_from_the_prefix_cache(
    pair_of: Callable[[str], Pair],
) -> None:
    pair = pair_of("Qwen3, last token")
    ids = [(7 * index) % 250 for index in range(40)]
    pair.llm.embed(ids)
    (again,) = pair.llm.embed(ids[:36])
    assert again.num_cached_tokens == 32
    pair.assert_equal([again])


def test_a_mean_is_taken_of_every_token_so_nothing_is_shared(
    pair_of: Callable[[str], Pair],
) -> None:
    pair = pair_of("Qwen3, mean")
    ids = [(7 * index) % 250 for index in range(40)]
    first, again = pair.llm.embed([ids, ids])
    assert again.num_cached_tokens == 0
    pair.assert_equal([first, again])


def test_what_was_chosen_is_told_with_who_said_so(bert: Pair) -> None:
    told = {one.field: one for one in bert.llm.report.decisions}
    assert (told["runner"].value, told["runner"].author) == ("pooling", "checkpoint")
    assert (told["pooling"].value, told["pooling"].author) == ("mean", "checkpoint")
    assert told["max_num_batched_tokens"].value >= told["max_model_len"].value
    assert bert.llm.report.num_kv_blocks == 0
    assert "encoder_attention" in bert.llm.plan.implementations()
    assert "greedy_sample" not in bert.llm.plan.implementations()
    assert not bert.llm.plan.attention


def test_text_of_such_a_model_is_refused(bert: Pair) -> None:
    with pytest.raises(RequestError, match="makes vectors") as caught:
        bert.llm.generate("the")
    assert caught.value.field == "model"


def test_a_text_of_the_whole_length_is_taken_and_a_longer_one_refused(bert: Pair) -> None:
    bert.assert_equal(bert.llm.embed([[5] * 64]))
    with pytest.raises(RequestError, match="65 tokens and can have at most 64") as caught:
        bert.llm.embed([[5], [5] * 65])
    assert caught.value.field == "input"
    assert caught.value.__notes__ == ["(prompt 1 of 2)"]


def test_a_client_may_have_the_vector_as_it_is(bert: Pair) -> None:
    (output,) = bert.llm.embed("the cat", PoolingParams(normalize=False))
    expected = expected_vector(bert.theirs, output.prompt_token_ids, "mean", is_normalized=False)
    torch.testing.assert_close(torch.tensor(output.embedding), expected, rtol=0, atol=TOLERANCE)


def test_a_shorter_vector_is_refused_where_the_checkpoint_does_not_offer_it(bert: Pair) -> None:
    with pytest.raises(RequestError, match="is_matryoshka") as caught:
        bert.llm.embed("the", PoolingParams(dimensions=4))
    assert caught.value.field == "dimensions"
    assert len(bert.llm.embed("the", PoolingParams(dimensions=32))[0].embedding) == 32


def test_a_matryoshka_model_gives_the_leading_elements_normalised(tmp_path: Path) -> None:
    theirs = write_embedding_model(
        tmp_path, BERT_CONFIG, extra={"matryoshka_dimensions": [8, 16]}, prompts={"query": "in: "}
    )
    with LLM(str(tmp_path), platform="cpu") as llm:
        (output,) = llm.embed("the", PoolingParams(dimensions=8), prompt_name="query")
        (with_prompt,) = llm.embed("in: the")
        whole = expected_vector(theirs, output.prompt_token_ids, "mean", is_normalized=False)
        expected = torch.nn.functional.normalize(whole[:8], dim=0)
        torch.testing.assert_close(torch.tensor(output.embedding), expected, rtol=0, atol=1e-5)
        assert output.prompt_token_ids == with_prompt.prompt_token_ids
        with pytest.raises(RequestError, match="takes 8, 16") as caught:
            llm.embed("the", PoolingParams(dimensions=4))
        assert caught.value.field == "dimensions"
        with pytest.raises(RequestError, match="query") as caught:
            llm.embed("the", prompt_name="document")
        assert caught.value.field == "prompt_name"


def test_a_decoder_makes_vectors_where_it_is_asked_to(tmp_path: Path) -> None:
    theirs = write_embedding_model(tmp_path, QWEN3_CONFIG, pooling=None)
    with LLM(str(tmp_path), platform="cpu") as llm:
        with pytest.raises(RequestError, match="--runner pooling") as caught:
            llm.embed("the")
        assert caught.value.field == "model"
        assert llm.generate("the")[0].outputs[0].token_ids
    with LLM(str(tmp_path), platform="cpu", runner="pooling") as llm:
        (output,) = llm.embed("the cat")
        expected = expected_vector(theirs, output.prompt_token_ids, "lasttoken")
        torch.testing.assert_close(torch.tensor(output.embedding), expected, rtol=0, atol=TOLERANCE)


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"runner": "generate"}, "is an encoder"),
        ({"max_num_batched_tokens": 16}, "reads a whole text in one step"),
        ({"num_kv_blocks": 10}, "keeps no keys and values"),
        ({"attention_backend": "reference/torch"}, "encoder_attention"),
        ({"graph_level": "decode"}, "no decode steps"),
        ({"enable_lora": True}, "adapters"),
        ({"enable_prefix_caching": True}, "pooling=mean"),
    ],
)
def test_options_that_an_encoder_cannot_obey_are_refused(
    bert: Pair, options: dict[str, Any], told: str
) -> None:
    with pytest.raises(ConfigError, match=told):
        LLM(str(bert.folder), platform="cpu", **options)


def _cls_instead_of_mean(monkeypatch: pytest.MonkeyPatch) -> None:
    init = Pooler.__init__
    monkeypatch.setattr(
        Pooler, "__init__", lambda self, spec: init(self, PoolingSpec(method="cls"))
    )


def _padding_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    pool = Pooler.pool

    def as_if_longer(self: Pooler, hidden: Any, inputs: StepInputs, req_ids: Any) -> Any:
        longest = np.full_like(inputs.new_computed, inputs.new_computed.max())
        return pool(self, hidden, replace(inputs, new_computed=longest), req_ids)

    monkeypatch.setattr(Pooler, "pool", as_if_longer)


def _not_normalised(monkeypatch: pytest.MonkeyPatch) -> None:
    init = Pooler.__init__
    spec = PoolingSpec(method="mean", is_normalized=False)
    monkeypatch.setattr(Pooler, "__init__", lambda self, _: init(self, spec))


def _causal(monkeypatch: pytest.MonkeyPatch) -> None:
    def attend(self: EncoderAttention, *qkv: torch.Tensor) -> torch.Tensor:
        q, k, v = (part.transpose(1, 2) for part in qkv)
        found = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        return found.transpose(1, 2)

    monkeypatch.setattr(EncoderAttention, "_attend", attend)


def _neighbours_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    native = EncoderAttention.forward_native

    def together(self: EncoderAttention, q: Any, k: Any, v: Any, *rest: Any) -> torch.Tensor:
        bounds = torch.tensor([0, len(q)], dtype=torch.int32)
        return native(self, q, k, v, bounds, bounds, len(q))

    monkeypatch.setattr(EncoderAttention, "forward_native", together)


def _norm_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    call = BertLayer.__call__

    def without(self: BertLayer, x: torch.Tensor, step: Any) -> torch.Tensor:
        self.norm.norm.weight.fill_(1.0)
        return call(self, x, step)

    monkeypatch.setattr(BertLayer, "__call__", without)


MISTAKES = {
    "the first token instead of the mean": (_cls_instead_of_mean, "BERT, mean"),
    "padding counted": (_padding_counted, "BERT, as it is"),
    "no normalisation": (_not_normalised, "BERT, mean"),
    "a causal mask": (_causal, "BERT, mean"),
    "other texts of the step are seen": (_neighbours_seen, "BERT, mean"),
    "a norm without its weight": (_norm_forgotten, "BERT, mean"),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_planted_mistake_is_seen(
    pair_of: Callable[[str], Pair], mistake: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    plant, name = MISTAKES[mistake]
    pair = pair_of(name)
    plant(monkeypatch)
    with LLM(str(pair.folder), platform="cpu", max_num_seqs=4) as llm:
        outputs = llm.embed(TEXTS)
    with pytest.raises(AssertionError):
        pair.assert_equal(outputs, tolerance=1e-2)


def test_a_worker_that_knows_nothing_of_vectors_is_refused_at_the_start(
    bert: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(CpuWorker, "makes_vectors", False)
    with pytest.raises(ConfigError, match=r"Worker\.makes_vectors"):
        LLM(str(bert.folder), platform="cpu")

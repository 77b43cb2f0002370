from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from dougong.config import EngineArgs, ModelConfig, Resolution, resolve
from dougong.config.model import StatedPooling
from tests.support.made_up_cards import made_up_card, made_up_model

STATED = StatedPooling(source="modules.json", method="cls", is_normalized=False, max_len=100)


def settle(model: ModelConfig, **wishes: Any) -> Resolution:
    args = EngineArgs(model="made-up/model", **wishes)
    return resolve(args, model, made_up_card(), platform="paper")


def encoder(pooling: StatedPooling | None = None) -> ModelConfig:
    return replace(made_up_model(), is_encoder=True, pooling=pooling or StatedPooling())


def decoder(pooling: StatedPooling | None = None) -> ModelConfig:
    return replace(made_up_model(), pooling=pooling or StatedPooling())


@pytest.mark.parametrize(
    ("model", "runner", "method", "is_normalized"),
    [
        (decoder(), None, None, None),
        (decoder(), "auto", None, None),
        (decoder(), "pooling", "last", True),
        (decoder(STATED), None, "cls", False),
        (decoder(STATED), "generate", None, None),
        (encoder(), None, "mean", True),
        (encoder(STATED), "pooling", "cls", False),
    ],
)
def test_the_use_of_a_model_follows_from_wish_class_and_files(
    model: ModelConfig, runner: str | None, method: str | None, is_normalized: bool | None
) -> None:
    resolution = settle(model, runner=runner)
    assert resolution.problems == ()
    pooling = resolution.config.pooling
    found = (None, None) if pooling is None else (pooling.spec.method, pooling.spec.is_normalized)
    assert found == (method, is_normalized)
    assert resolution.config.view().pooling == (None if pooling is None else pooling.spec)
    told = {one.field: one.value for one in resolution.decisions}
    assert told["runner"] == ("generate" if pooling is None else "pooling")


def test_an_encoder_reads_whole_texts_and_keeps_nothing() -> None:
    config = settle(encoder()).config
    assert config.scheduler.has_whole_prompts
    assert config.scheduler.max_num_batched_tokens >= config.scheduler.max_model_len
    assert not config.kv_cache.enable_prefix_caching
    assert config.model.kv_bytes_per_token(2) == 0


def test_a_text_is_as_long_as_the_model_was_tuned_for_unless_more_is_asked_for() -> None:
    assert settle(encoder(STATED)).config.scheduler.max_model_len == 100
    assert settle(encoder(STATED), max_model_len=300).config.scheduler.max_model_len == 300
    assert settle(decoder(STATED), runner="generate").config.scheduler.max_model_len > 100


@pytest.mark.parametrize(("method", "shares"), [("last", True), ("mean", False), ("cls", False)])
def test_a_cached_beginning_is_used_only_where_it_is_not_pooled(method: Any, shares: bool) -> None:
    stated = replace(STATED, method=method)
    assert settle(decoder(stated)).config.kv_cache.enable_prefix_caching is shares


@pytest.mark.parametrize(
    ("model", "wishes", "told"),
    [
        (encoder(), {"runner": "generate"}, "is an encoder"),
        (decoder(), {"runner": "embed"}, "takes auto, generate or pooling"),
        (encoder(), {"num_kv_blocks": 5}, "num_kv_blocks=5 was asked for"),
        (encoder(), {"kv_cache_memory_bytes": 5}, "keeps no keys and values"),
        (encoder(), {"attention_backend": "a/b"}, "op encoder_attention"),
        (encoder(), {"long_prefill_token_threshold": 8}, "whole text in one step"),
        (encoder(), {"max_num_batched_tokens": 300}, "reads a whole text in one step"),
        (decoder(STATED), {"enable_prefix_caching": True}, "pooling=cls"),
        (decoder(STATED), {"enable_lora": True}, "models that generate text"),
        (encoder(replace(STATED, problems=("it has a Dense.",))), {}, "cannot give vectors: it"),
    ],
)
def test_what_cannot_be_is_refused(model: ModelConfig, wishes: Any, told: str) -> None:
    problems = settle(model, **wishes).problems
    assert any(told in problem for problem in problems), problems


def test_what_is_wrong_with_vectors_stops_no_text() -> None:
    assert settle(decoder(replace(STATED, problems=("x",))), runner="generate").problems == ()

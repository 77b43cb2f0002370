"""Requests that want a vector: nothing is drawn, and an encoder's prompts stay whole."""

from __future__ import annotations

import pytest

from dougong.config.cache import CacheConfig
from dougong.config.scheduler import SchedulerConfig
from dougong.errors import ConfigError, PluginError, RequestError
from dougong.messages import (
    FinishReason,
    ModelRunnerOutput,
    PoolingParams,
    Request,
    RequestDelta,
    SamplingParams,
    SchedulerOutput,
)
from dougong.scheduler import Scheduler

NO_CACHE = CacheConfig(block_size=4, num_blocks=0, num_groups=0)
PAGED = CacheConfig(block_size=4, num_blocks=16)


def scheduler_of(cache: CacheConfig, *, budget: int = 16) -> Scheduler:
    config = SchedulerConfig(
        max_num_seqs=4,
        max_num_batched_tokens=budget,
        max_model_len=16,
        has_whole_prompts=cache.num_groups == 0,
    )
    return Scheduler(config, cache)


def request(name: str, length: int, *, wants_vector: bool = True) -> Request:
    return Request(
        request_id=name,
        prompt_token_ids=tuple(range(length)),
        sampling_params=SamplingParams(temperature=0.0, max_tokens=1),
        pooling_params=PoolingParams() if wants_vector else None,
    )


def answer(step: SchedulerOutput, *names: str) -> ModelRunnerOutput:
    return ModelRunnerOutput(step.step_id, [], [], pooled={name: [1.0] for name in names})


def steps_of(scheduler: Scheduler, lengths: dict[str, int]) -> list[dict[str, int]]:
    """Run to the end; what each step computed. A request is answered when it is computed."""
    done = dict.fromkeys(lengths, 0)
    steps = []
    while (step := scheduler.schedule()) is not None:
        steps.append(step.num_scheduled_tokens)
        for name, count in step.num_scheduled_tokens.items():
            done[name] += count
        ended = [name for name in step.num_scheduled_tokens if done[name] == lengths[name]]
        deltas = scheduler.update(answer(step, *ended))
        assert [delta.request_id for delta in deltas] == ended
    return steps


def test_a_vector_is_the_one_delta_and_the_end() -> None:
    scheduler = scheduler_of(PAGED)
    scheduler.add(request("a", 5))
    step = scheduler.schedule()
    assert step is not None
    assert step.scheduled_new_reqs[0].pooling_params == PoolingParams()
    deltas = scheduler.update(answer(step, "a"))
    assert deltas == [RequestDelta("a", [], FinishReason.STOP, pooled=[1.0])]
    assert not scheduler.has_requests()
    assert scheduler.stats().kv_cache.num_held_blocks == 0


def test_a_decoders_text_is_computed_over_steps() -> None:
    scheduler = scheduler_of(PAGED, budget=6)
    lengths = {"a": 8, "b": 3}
    for name, length in lengths.items():
        scheduler.add(request(name, length))
    assert steps_of(scheduler, lengths) == [{"a": 6}, {"a": 2, "b": 3}]


def test_an_encoders_text_waits_for_a_step_that_holds_it_whole() -> None:
    scheduler = scheduler_of(NO_CACHE)
    lengths = {"a": 9, "b": 8, "c": 7, "d": 16, "e": 1}
    for name, length in lengths.items():
        scheduler.add(request(name, length))
    assert steps_of(scheduler, lengths) == [{"a": 9}, {"b": 8, "c": 7}, {"d": 16}, {"e": 1}]


def test_without_a_cache_there_is_nothing_to_hold_or_to_find() -> None:
    scheduler = scheduler_of(NO_CACHE)
    assert scheduler.limits.max_pooled_len == 16
    for name in ("a", "b"):
        scheduler.add(request(name, 8))
        step = scheduler.schedule()
        assert step is not None
        assert step.scheduled_new_reqs[0].block_ids == ()
        assert step.scheduled_new_reqs[0].num_computed_tokens == 0
        scheduler.update(answer(step, name))
    usage = scheduler.stats().kv_cache
    assert (usage.num_usable_blocks, usage.held_fraction, usage.num_hit_tokens) == (0, 0.0, 0)


def test_a_step_too_small_for_a_whole_text_is_refused_at_the_start() -> None:
    with pytest.raises(ConfigError, match="reads a whole text in one step"):
        scheduler_of(NO_CACHE, budget=15)


@pytest.mark.parametrize("cache", [PAGED, NO_CACHE], ids=["paged", "without a cache"])
def test_a_text_may_be_as_long_as_the_model_reads(cache: CacheConfig) -> None:
    scheduler = scheduler_of(cache)
    scheduler.add(request("a", 16))
    with pytest.raises(RequestError, match="can have at most 16") as caught:
        scheduler.add(request("b", 17))
    assert caught.value.field == "input"


def test_an_aborted_text_leaves_nothing() -> None:
    scheduler = scheduler_of(NO_CACHE)
    scheduler.add(request("a", 4))
    scheduler.add(request("b", 4))
    step = scheduler.schedule()
    assert step is not None
    assert scheduler.abort(["a"]) == ["a"]
    assert [delta.request_id for delta in scheduler.update(answer(step, "a", "b"))] == ["b"]
    assert not scheduler.has_requests()


@pytest.mark.parametrize("names", [(), ("a", "b")], ids=["none", "one that was not due"])
def test_a_worker_that_answers_for_others_is_refused(names: tuple[str, ...]) -> None:
    scheduler = scheduler_of(NO_CACHE)
    scheduler.add(request("a", 4))
    step = scheduler.schedule()
    assert step is not None
    with pytest.raises(PluginError, match="1 were due"):
        scheduler.update(answer(step, *names))


def test_a_vector_of_a_request_for_text_is_refused() -> None:
    scheduler = scheduler_of(PAGED)
    scheduler.add(request("a", 4, wants_vector=False))
    step = scheduler.schedule()
    assert step is not None
    with pytest.raises(PluginError, match="1 were due"):
        scheduler.update(answer(step, "a"))

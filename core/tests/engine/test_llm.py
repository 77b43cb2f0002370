from __future__ import annotations

import traceback

import pytest

from dougong import LLM, SamplingParams
from dougong.engine.request_state import RequestState
from dougong.errors import (
    ConfigError,
    DougongError,
    EngineDeadError,
    KernelFault,
    RequestError,
)
from dougong.testing.null_worker import NullWorker
from tests.support.null_engine import NULL_OPTIONS, NullModels

GREEDY = SamplingParams(max_tokens=30, temperature=0.0)


def test_answers_come_in_the_order_of_the_prompts_with_their_own_params(
    null_models: NullModels,
) -> None:
    model = null_models.write({"A": "first answer", "B": "second"})
    with LLM(model, **NULL_OPTIONS) as llm:
        one, two = llm.generate(["A", "B"], [SamplingParams(max_tokens=5, temperature=0.0), GREEDY])
        assert (one.outputs[0].text, one.outputs[0].finish_reason) == ("first", "length")
        assert (two.outputs[0].text, two.outputs[0].finish_reason) == ("second", "stop")
        assert one.prompt == "A"
        assert one.metrics.finished_s is not None


def test_ids_may_stand_for_text(null_models: NullModels) -> None:
    model = null_models.write({"A": "answer"})
    with LLM(model, **NULL_OPTIONS) as llm:
        ids = llm.tokenizer.encode("A")
        by_text = llm.generate("A", GREEDY)[0].outputs
        assert llm.generate(prompt_token_ids=ids, sampling_params=GREEDY)[0].outputs == by_text
        assert llm.generate(prompt_token_ids=[ids], sampling_params=GREEDY)[0].outputs == by_text


def test_chat_reads_the_template(null_models: NullModels) -> None:
    with LLM(null_models.write(), **NULL_OPTIONS) as llm:
        messages = [{"role": "user", "content": "hi"}]
        (output,) = llm.chat(messages, GREEDY)
        assert output.prompt is not None
        assert output.prompt.endswith("<|im_start|>assistant\n")
        assert len(llm.chat([messages, messages], GREEDY)) == 2


def test_ignore_eos_goes_on(null_models: NullModels) -> None:
    model = null_models.write({"A": "ab"})
    with LLM(model, **NULL_OPTIONS) as llm:
        params = SamplingParams(max_tokens=10, temperature=0.0, ignore_eos=True)
        output = llm.generate("A", params)[0].outputs[0]
        assert len(output.token_ids) == 10
        assert output.finish_reason == "length"


def test_logprobs_come_one_per_token(null_models: NullModels) -> None:
    with LLM(null_models.write(), **NULL_OPTIONS) as llm:
        params = SamplingParams(max_tokens=4, temperature=0.0, logprobs=0)
        output = llm.generate([5], params)[0].outputs[0]
        assert output.logprobs is not None
        assert [entry.token_id for entry in output.logprobs] == output.token_ids


def test_wrong_arguments_are_refused(null_models: NullModels) -> None:
    with LLM(null_models.write(), **NULL_OPTIONS) as llm:
        with pytest.raises(RequestError, match="one of the two"):
            llm.generate()
        with pytest.raises(RequestError, match="2 sampling_params for 1 prompts"):
            llm.generate(["A"], [GREEDY, GREEDY])


def test_an_unknown_option_is_refused(null_models: NullModels) -> None:
    with pytest.raises(ConfigError, match="max_seqs"):
        LLM(null_models.write(), max_seqs=3)  # type: ignore[call-arg]  # that is the point


def test_a_failed_device_is_told_with_device_rank_and_step(null_models: NullModels) -> None:
    with LLM(null_models.write(fail_at_step=3), **NULL_OPTIONS) as llm:
        with pytest.raises(EngineDeadError) as caught:
            llm.generate([5], GREEDY)
        cause = caught.value.__cause__
        assert isinstance(cause, KernelFault)
        assert (cause.device_index, cause.rank, cause.step_id) == (0, 0, 3)
        assert "NullDeviceError" in repr(cause.__cause__)
        with pytest.raises(EngineDeadError):
            llm.generate([5], GREEDY)


def test_the_report_says_who_decided_what(null_models: NullModels) -> None:
    with LLM(null_models.write(), **NULL_OPTIONS) as llm:
        report = llm.report
        authors = {decision.field: decision.author for decision in report.decisions}
        assert authors["block_size"] == "user"
        assert authors["max_model_len"] == "checkpoint"
        assert authors["max_num_seqs"] == "core"
        assert report.platform == "null"
        assert report.attention_backends == {"reference/torch": 2}
        assert llm.plan is report.plan
        lines = "\n".join(report.lines())
        assert "platform null: asked for" in lines
        assert "1000 blocks of 4" in lines


def test_a_progress_bar_may_be_asked_for(
    null_models: NullModels, capsys: pytest.CaptureFixture[str]
) -> None:
    with LLM(null_models.write(), **NULL_OPTIONS) as llm:
        llm.generate([[5], [6]], GREEDY, progress=True)
    assert "2/2" in capsys.readouterr().err


def test_a_stream_goes_on_beside_another_call(null_models: NullModels) -> None:
    model = null_models.write({"A": "a long answer", "B": "short"})
    with LLM(model, **NULL_OPTIONS) as llm:
        stream = llm.stream("A", GREEDY)
        assert next(stream).outputs[0].text == "a"
        assert llm.generate("B", GREEDY)[0].outputs[0].text == "short"
        assert [output.outputs[0].text for output in stream][-1] == "a long answer"
        assert llm.stats().scheduler.kv_cache.num_held_blocks == 0


def test_leaving_a_stream_ends_its_request(null_models: NullModels) -> None:
    with LLM(null_models.write(), **NULL_OPTIONS) as llm:
        for _ in llm.stream([5], GREEDY):
            break
        assert llm.stats().scheduler.num_running == 0


def test_each_call_on_a_dead_engine_gets_an_error_of_its_own(null_models: NullModels) -> None:
    with LLM(null_models.write(fail_at_step=0), **NULL_OPTIONS) as llm:
        errors = []
        for _ in range(4):
            with pytest.raises(EngineDeadError) as caught:
                llm.generate([5], GREEDY)
            errors.append(caught.value)
        assert len({id(error) for error in errors}) == 4
        assert {type(error.__cause__) for error in errors} == {KernelFault}
        assert len({len(traceback.format_exception(error)) for error in errors[1:]}) == 1


def test_a_closed_engine_says_so_each_time(null_models: NullModels) -> None:
    llm = LLM(null_models.write(), **NULL_OPTIONS)
    llm.close()
    lengths = []
    for _ in range(3):
        with pytest.raises(EngineDeadError, match="closed") as caught:
            llm.generate([5], GREEDY)
        assert caught.value.__cause__ is not caught.value
        lengths.append(len(traceback.format_exception(caught.value)))
    assert len(set(lengths)) == 1


def test_an_interrupted_step_ends_the_engine_and_says_so(
    null_models: NullModels, monkeypatch: pytest.MonkeyPatch
) -> None:
    def submit(self: NullWorker, *args: object) -> None:
        raise KeyboardInterrupt

    with LLM(null_models.write(), **NULL_OPTIONS) as llm:
        with monkeypatch.context() as patch:
            patch.setattr(NullWorker, "submit", submit)
            with pytest.raises(KeyboardInterrupt):
                llm.generate([5], GREEDY)
        with pytest.raises(EngineDeadError, match="interrupted") as caught:
            llm.generate([5], GREEDY)
        assert isinstance(caught.value.__cause__, KeyboardInterrupt)


def test_a_stream_whose_text_cannot_be_made_ends_no_other_call(
    null_models: NullModels, monkeypatch: pytest.MonkeyPatch
) -> None:
    def push(token_ids: object) -> str:
        raise ValueError("no such piece")

    model = null_models.write({"A": "a long answer", "B": "short"})
    with LLM(model, **NULL_OPTIONS) as llm:
        stream = llm.stream("A", GREEDY)
        next(stream)
        (state,) = llm._front._states.values()
        assert isinstance(state, RequestState)
        monkeypatch.setattr(state._sequences[0]._detokenizer, "push", push)
        assert llm.generate("B", GREEDY)[0].outputs[0].text == "short"
        assert llm.stats().scheduler.kv_cache.num_held_blocks == 0
        with pytest.raises(DougongError, match="no such piece"):
            next(stream)

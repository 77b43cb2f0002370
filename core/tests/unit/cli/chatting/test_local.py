from __future__ import annotations

from dougong.cli.chatting.local import LocalAnswerer
from dougong.cli.chatting.session import AnswerStats
from dougong.engine.llm import LLM
from dougong.messages import SamplingParams
from tests.support.null_engine import NULL_OPTIONS, NullModels

QUESTION = [{"role": "user", "content": "hi"}]


def test_pieces_make_the_whole_answer_and_leaving_ends_the_request(null_models: NullModels) -> None:
    params = SamplingParams(temperature=0, max_tokens=12, ignore_eos=True)
    with LLM(null_models.write(), **NULL_OPTIONS) as llm:
        whole, stats = llm.chat(QUESTION, params)[0].outputs[0], AnswerStats()
        answerer = LocalAnswerer(llm, params)
        assert "".join(answerer.answer(QUESTION, stats)) == whole.text
        assert (stats.num_tokens, stats.finish_reason) == (12, "length")
        answer = answerer.answer(QUESTION, AnswerStats())
        next(answer)
        assert llm._front.num_requests() == 1
        answer.close()
        assert llm._front.num_requests() == 0

"""A request that can never fit is refused at once with the usable limit; others never suffer."""

from __future__ import annotations

import pytest

from dougong import LLM, SamplingParams
from dougong.errors import RequestError
from tests.support.null_engine import NullModels

ONE = SamplingParams(max_tokens=1, temperature=0.0)


@pytest.mark.parametrize("reserved_blocks", [0, 1])
def test_the_edge_is_where_the_pools_usable_blocks_end(
    null_models: NullModels, reserved_blocks: int
) -> None:
    model = null_models.write(reserved_blocks=reserved_blocks)
    options = {"platform": "null", "block_size": 16, "num_kv_blocks": 8, "max_model_len": 256}
    usable = (8 - reserved_blocks) * 16
    with LLM(model, **options) as llm:  # type: ignore[arg-type]  # a dictionary for brevity
        for num_tokens in (1, 111, 112, 113, 127, 128, 129, 255):
            prompt = [7] * num_tokens
            if num_tokens <= usable:
                assert len(llm.generate(prompt, ONE)[0].outputs[0].token_ids) == 1
            else:
                with pytest.raises(RequestError, match=str(usable)):
                    llm.generate(prompt, ONE)
            assert len(llm.generate([7, 8], ONE)[0].outputs[0].token_ids) == 1


def test_a_prompt_beyond_the_model_length_is_refused_with_that_limit(
    null_models: NullModels,
) -> None:
    with LLM(null_models.write(), platform="null", num_kv_blocks=100) as llm:
        assert llm.generate([7] * 255, ONE)[0].outputs[0].finish_reason == "length"
        with pytest.raises(RequestError, match="255"):
            llm.generate([7] * 256, ONE)


def test_one_refused_prompt_leaves_nothing_of_its_batch_behind(null_models: NullModels) -> None:
    with LLM(null_models.write(), platform="null", num_kv_blocks=8) as llm:
        with pytest.raises(RequestError):
            llm.generate([[7], [7] * 200, [8]], ONE)
        assert llm.stats().scheduler.num_waiting == 0
        assert len(llm.generate([7], ONE)) == 1

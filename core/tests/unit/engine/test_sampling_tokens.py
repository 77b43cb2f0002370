"""Parameters against the vocabulary: which ids are taken, what words become."""

from __future__ import annotations

from typing import Any

import pytest

from dougong.engine.sampling_tokens import SamplingTokens
from dougong.engine.tokenizer import Tokenizer
from dougong.errors import RequestError
from dougong.messages import SamplingParams

VOCAB_SIZE = 288
EOS = 257


@pytest.fixture
def tokens(tokenizer: Tokenizer) -> SamplingTokens:
    return SamplingTokens(tokenizer, VOCAB_SIZE, frozenset({EOS}))


def fields_with(token_id: Any) -> dict[str, dict[str, Any]]:
    return {
        "stop_token_ids": {"stop_token_ids": [5, token_id], "min_tokens": 5},
        "logit_bias": {"logit_bias": {5: 1.0, token_id: -1.0}},
        "allowed_token_ids": {"allowed_token_ids": [5, token_id]},
        "bad_token_ids": {"bad_token_ids": [[5], [6, token_id]]},
    }


@pytest.mark.parametrize("wrong", [-1, VOCAB_SIZE, 10**6, 2**40])
@pytest.mark.parametrize("field", fields_with(0))
def test_an_id_outside_the_vocabulary_is_refused_naming_the_field(
    tokens: SamplingTokens, field: str, wrong: int
) -> None:
    params = SamplingParams(**fields_with(wrong)[field])
    with pytest.raises(RequestError, match=str(wrong)) as caught:
        tokens.resolve(params)
    assert caught.value.field == field


@pytest.mark.parametrize("field", fields_with(0))
def test_the_last_id_of_the_vocabulary_is_taken(tokens: SamplingTokens, field: str) -> None:
    params = SamplingParams(**fields_with(VOCAB_SIZE - 1)[field])
    assert tokens.resolve(params) is params


def test_bad_words_become_their_tokens_alone_and_after_a_space(tokens: SamplingTokens) -> None:
    encode = tokens.tokenizer.encode
    params = tokens.resolve(SamplingParams(bad_words=["the", "in"], bad_token_ids=[[1, 2]]))
    assert set(params.bad_token_ids) == {
        (1, 2),
        *(tuple(encode(text)) for text in ("the", " the", "in", " in")),
    }
    assert tokens.resolve(params).bad_token_ids == params.bad_token_ids


def test_a_bad_word_of_too_many_tokens_is_refused(tokens: SamplingTokens) -> None:
    with pytest.raises(RequestError, match="33 tokens") as caught:
        tokens.resolve(SamplingParams(bad_words="x" * 33))
    assert caught.value.field == "bad_words"


@pytest.mark.parametrize(
    ("params", "field"),
    [
        ({"allowed_token_ids": [EOS], "min_tokens": 1}, "allowed_token_ids"),
        (
            {"allowed_token_ids": [EOS, 9], "stop_token_ids": [9], "min_tokens": 1},
            "allowed_token_ids",
        ),
        ({"allowed_token_ids": [7], "bad_token_ids": [[7]]}, "allowed_token_ids"),
        ({"allowed_token_ids": [7, 8], "bad_token_ids": [[7, 7], [7, 8]]}, "allowed_token_ids"),
        ({"bad_token_ids": [[one] for one in range(VOCAB_SIZE)]}, "bad_words"),
    ],
)
def test_parameters_that_can_forbid_every_token_are_refused(
    tokens: SamplingTokens, params: dict[str, Any], field: str
) -> None:
    with pytest.raises(RequestError, match="no token to go on with") as caught:
        tokens.resolve(SamplingParams(**params))
    assert caught.value.field == field


@pytest.mark.parametrize(
    "params",
    [
        {"allowed_token_ids": [EOS]},
        {"allowed_token_ids": [EOS], "min_tokens": 1, "ignore_eos": True},
        {"allowed_token_ids": [7, 8], "bad_token_ids": [[7, 7]]},
        {"bad_token_ids": [[one] for one in range(VOCAB_SIZE - 1)]},
    ],
)
def test_one_token_that_is_always_left_is_enough(
    tokens: SamplingTokens, params: dict[str, Any]
) -> None:
    tokens.resolve(SamplingParams(**params))

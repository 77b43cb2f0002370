from __future__ import annotations

import pytest

from dougong.engine.prompts import check_token_ids, tokenize
from dougong.engine.tokenizer import Tokenizer
from dougong.errors import RequestError


def test_a_text_is_encoded_and_ids_are_taken_as_they_are(tokenizer: Tokenizer) -> None:
    prompt = tokenize("abc", tokenizer)
    assert prompt.text == "abc"
    assert list(prompt.token_ids) == tokenizer.encode("abc")
    assert tokenize([1, 2], tokenizer).token_ids == (1, 2)
    assert tokenize([1, 2], tokenizer).text is None


def test_the_message_says_where_and_what_the_range_is() -> None:
    with pytest.raises(RequestError, match=r"prompt has 10 at position 2.*from 0 to 9"):
        check_token_ids("prompt", [1, 2, 10], 10)

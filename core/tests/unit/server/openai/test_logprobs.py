from __future__ import annotations

from dougong.engine.tokenizer import Tokenizer
from dougong.messages import TokenLogprobs
from dougong.server.openai.logprobs import chat_logprobs, completion_logprobs, token_text


def test_part_of_a_character_is_spelt_by_its_bytes_so_that_no_two_are_the_same() -> None:
    parts = "好".encode()
    assert token_text(parts) == "好"
    spelt = [token_text(bytes([byte])) for byte in parts]
    assert spelt[0] == r"bytes:\xe5"
    assert len(set(spelt)) == 3


def test_minus_infinity_becomes_a_number_that_json_can_write(tokenizer: Tokenizer) -> None:
    entry = TokenLogprobs(1, float("-inf"), ((2, -0.5), (1, float("-inf"))))
    completion = completion_logprobs([entry], 2, tokenizer, 0)
    assert completion["token_logprobs"] == [-9999.0]
    assert sorted(completion["top_logprobs"][0].values()) == [-9999.0, -0.5]
    (content,) = chat_logprobs([entry], 2, tokenizer)["content"]
    assert content["logprob"] == -9999.0
    assert [top["logprob"] for top in content["top_logprobs"]] == [-0.5, -9999.0]


def test_no_more_alternatives_are_shown_than_were_asked_for(tokenizer: Tokenizer) -> None:
    entry = TokenLogprobs(1, -1.0, ((1, -1.0), (2, -2.0)))
    assert len(completion_logprobs([entry], 1, tokenizer, 0)["top_logprobs"][0]) == 1
    assert chat_logprobs([entry], 0, tokenizer)["content"][0]["top_logprobs"] == []


def test_offsets_go_on_from_where_the_text_stood(tokenizer: Tokenizer) -> None:
    ids = tokenizer.encode("then")
    entries = [TokenLogprobs(one, -1.0) for one in ids]
    found = completion_logprobs(entries, 0, tokenizer, 10)
    assert "".join(found["tokens"]) == "then"
    assert found["text_offset"][0] == 10
    assert found["text_offset"][1] == 10 + len(found["tokens"][0])

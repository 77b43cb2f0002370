from __future__ import annotations

import pytest
from tokenizers import pre_tokenizers

from dougong.engine.gguf_pretokenizers import RULES


def pieces(pre: str, text: str) -> list[str]:
    splitter: pre_tokenizers.PreTokenizer = RULES[pre].split()
    return [
        piece.replace("Ġ", " ").replace("Ċ", "\n") for piece, _ in splitter.pre_tokenize_str(text)
    ]


@pytest.mark.parametrize(
    ("pre", "text", "expected"),
    [
        ("gpt-2", "it's  1234", ["it", "'s", " ", " 1234"]),
        ("smollm", "a  12", ["a", "  ", "1", "2"]),
        (
            "llama-bpe",
            "IT'S 12345 a.b\n\nc",
            ["IT", "'S", " ", "123", "45", " a", ".b", "\n\n", "c"],
        ),
        ("qwen2", "x 123", ["x", " ", "1", "2", "3"]),
        ("default", "a,b 1234", ["a", ",", "b", " ", "123", "4"]),
        ("gpt-4o", "helloWorld's", ["hello", "World's"]),
    ],
)
def test_text_is_split_by_the_rules_of_its_kind(pre: str, text: str, expected: list[str]) -> None:
    assert pieces(pre, text) == expected

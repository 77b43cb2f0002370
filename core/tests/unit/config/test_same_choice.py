from __future__ import annotations

from typing import Any

import pytest

from dougong.config.same_choice import is_same_choice


@pytest.mark.parametrize(
    ("name", "one", "other"),
    [
        ("dtype", "bf16", "bfloat16"),
        ("kv_cache_dtype", "fp8", "float8_e4m3fn"),
        ("op", ["b=y", "a=x"], "a=x,b=y"),
        ("op", "a = x", ("a=x",)),
        ("custom_ops", "+a,-b,-c", "all, -c, -b, +a"),
        ("attention_backend", "decode=y, prefill=x", "prefill=x,decode=y"),
        ("max_num_seqs", 8, 8),
        ("device_memory_utilization", 1, 1.0),
        ("of_a_later_version", ["a"], ("a",)),
        ("seed", None, None),
    ],
)
def test_other_words_for_the_same_are_the_same(name: str, one: Any, other: Any) -> None:
    assert is_same_choice(name, one, other)
    assert is_same_choice(name, other, one)


@pytest.mark.parametrize(
    ("name", "one", "other"),
    [
        ("dtype", "bf16", "float16"),
        ("dtype", None, "bf16"),
        ("op", "a=x", "a=y"),
        ("op", "a=x", "a=x,b=y"),
        ("custom_ops", "none,-b", "-b"),
        ("custom_ops", "+a", "-a"),
        ("attention_backend", "x", "y"),
        ("attention_backend", "prefill=x,decode=y", "prefill=y,decode=x"),
        ("max_num_seqs", 8, 9),
    ],
)
def test_what_differs_is_not_the_same(name: str, one: Any, other: Any) -> None:
    assert not is_same_choice(name, one, other)


def test_what_cannot_be_read_is_the_same_as_itself_alone() -> None:
    assert is_same_choice("custom_ops", "*", "*")
    assert not is_same_choice("custom_ops", "*", "all")

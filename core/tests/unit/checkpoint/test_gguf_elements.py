from __future__ import annotations

import pytest

from dougong.checkpoint.gguf_elements import elements_of_gguf


@pytest.mark.parametrize(
    ("name", "num_bytes", "elements"),
    [("Q4_1", 40, 64), ("q8_0", 34, 32), ("q4_k", 144, 256), ("F32", 12, 3), ("awq", 100, None)],
)
def test_bytes_of_a_known_format_are_a_number_of_weights(
    name: str, num_bytes: int, elements: int | None
) -> None:
    assert elements_of_gguf(name, num_bytes) == elements

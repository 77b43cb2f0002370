from __future__ import annotations

import pytest

from dougong.cli.byte_size import parse_size
from dougong.errors import ConfigError


@pytest.mark.parametrize(
    ("text", "size"),
    [("64GiB", 2**36), ("1.5 gib", 3 * 2**29), ("512MiB", 2**29), ("7", 7), ("1TiB", 2**40)],
)
def test_a_size_is_a_number_and_a_unit(text: str, size: int) -> None:
    assert parse_size(text, "--memory") == size


@pytest.mark.parametrize("text", ["", "GiB", "64GB", "-1", "0", "64 G i B", "nan", "1e400"])
def test_what_is_no_size_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="--memory"):
        parse_size(text, "--memory")

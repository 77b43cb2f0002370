from __future__ import annotations

from typing import Any

import pytest

from dougong.errors import ConfigError, RequestError
from dougong.messages import PoolingParams, PoolingSpec


def test_nothing_asked_is_the_checkpoints_own() -> None:
    assert PoolingParams() == PoolingParams(dimensions=None, normalize=None)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("dimensions", 0),
        ("dimensions", -3),
        ("dimensions", 2**31),
        ("dimensions", True),
        ("dimensions", 2.0),
        ("dimensions", "8"),
        ("normalize", 1),
        ("normalize", "yes"),
    ],
)
def test_a_wrong_value_is_refused_with_its_name(field: str, value: Any) -> None:
    with pytest.raises(RequestError, match=f"{field}=") as caught:
        PoolingParams(**{field: value})
    assert caught.value.field == field


def test_a_way_that_nobody_knows_is_refused() -> None:
    with pytest.raises(ConfigError, match="pooling 'max' is unknown"):
        PoolingSpec(method="max")  # type: ignore[arg-type]  # wrong on purpose

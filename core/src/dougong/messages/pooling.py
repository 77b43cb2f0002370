"""One vector for a whole text: how a checkpoint makes it, and what a client may change."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

from dougong.errors import ConfigError
from dougong.messages.sampling_checks import check, check_is

PoolingMethod = Literal["mean", "cls", "last"]
"""``mean``: of all tokens' hidden states; ``cls``: the first token's; ``last``: the last one's."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolingSpec:
    """How a model's hidden states become one vector.

    Attributes:
        method: See `PoolingMethod`.
        is_normalized: The vector is divided by its length, where a request does not say otherwise.
        dimensions: Lengths that a vector may be cut to, where the checkpoint names them.
        is_matryoshka: The model was trained so that a vector may be cut; with no ``dimensions``
            to any length.

    Raises:
        ConfigError: The method is unknown.
    """

    method: PoolingMethod
    is_normalized: bool = True
    dimensions: tuple[int, ...] = ()
    is_matryoshka: bool = False

    def __post_init__(self) -> None:
        """Check the method."""
        if self.method not in get_args(PoolingMethod):
            known = ", ".join(get_args(PoolingMethod))
            raise ConfigError(f"pooling {self.method!r} is unknown; it is one of: {known}.")


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolingParams:
    """What a client asks of a vector; checked when made.

    Attributes:
        dimensions: Leading elements to keep, before it is normalised; ``None``: all. Only where
            the checkpoint was trained for it.
        normalize: Divide by its length; ``None``: as the checkpoint says.

    Raises:
        RequestError: A value is of the wrong type or out of range; the error names the field.
    """

    dimensions: int | None = None
    normalize: bool | None = None

    def __post_init__(self) -> None:
        """Check every field."""
        if self.dimensions is not None:
            check_is("dimensions", self.dimensions, int, "an integer or nothing")
            is_size = 1 <= self.dimensions < 2**31
            check("dimensions", self.dimensions, is_size, "1 or above")
        if self.normalize is not None and not isinstance(self.normalize, bool):
            check_is("normalize", self.normalize, bool, "true, false or nothing")

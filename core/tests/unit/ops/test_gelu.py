from __future__ import annotations

import math

import pytest
import torch

from dougong.errors import ConfigError
from dougong.ops.gelu import Gelu


def test_the_plain_one_is_of_the_error_function() -> None:
    op, (x,) = Gelu.example()
    expected = [
        value * 0.5 * (1 + math.erf(value / math.sqrt(2))) for value in x.flatten().tolist()
    ]
    torch.testing.assert_close(op(x).flatten(), torch.tensor(expected))


@pytest.mark.parametrize("name", ["gelu_new", "gelu_pytorch_tanh"])
def test_others_are_approximations_by_name(name: str) -> None:
    op, (x,) = Gelu(name), Gelu.example()[1]
    assert torch.equal(op(x), torch.nn.functional.gelu(x, approximate="tanh"))
    assert op.properties() == {"approximate": "tanh"} and op.kernel_args() == ("tanh",)


def test_an_activation_that_is_not_known_is_refused() -> None:
    with pytest.raises(ConfigError, match="hidden_act='relu'"):
        Gelu("relu")

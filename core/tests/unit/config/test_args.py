from __future__ import annotations

import pytest

from dougong.config import EngineArgs
from dougong.errors import ConfigError


def test_only_what_was_set_is_explicit() -> None:
    args = EngineArgs(model="m", seed=0, enable_prefix_caching=False, dtype="auto")
    assert args.explicit == {"model", "seed", "enable_prefix_caching"}


def test_an_unknown_option_is_refused_with_the_known_ones() -> None:
    with pytest.raises(ConfigError, match=r"max_num_sequences.*max_num_seqs"):
        EngineArgs.from_options({"model": "m", "max_num_sequences": 4})

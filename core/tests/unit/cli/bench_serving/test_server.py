from __future__ import annotations

import pytest

from dougong.cli import engine_options as options
from dougong.cli.bench_serving.server import engine_options, own_server
from dougong.config.args import EngineArgs
from dougong.errors import DougongError


def test_engine_options_are_written_as_the_command_line_takes_them() -> None:
    args = EngineArgs(
        model="m", seed=3, max_num_seqs=4, enable_prefix_caching=False, op=("a=b", "c=d")
    )
    assert engine_options(args) == [
        *("--model", "m", "--max-num-seqs", "4", "--no-enable-prefix-caching"),
        *("--op", "a=b", "--op", "c=d", "--engine-seed", "3"),
    ]
    assert engine_options(EngineArgs(model="m", strict=True))[-1] == "--strict"


def test_every_engine_option_has_that_name_on_the_command_line() -> None:
    spelt = {options._OTHER_NAMES.get(name, name) for name in options._HELP}
    wanted = {"engine_seed" if name == "seed" else name for name in EngineArgs.option_names()}
    assert wanted <= spelt


def test_a_server_that_cannot_start_says_why() -> None:
    server = own_server(EngineArgs(model="/there/is/no/such/model"), "m")
    with pytest.raises(DougongError, match=r"exit code 2:\n(.|\n)*/there/is/no/such/model"):
        server.__enter__()

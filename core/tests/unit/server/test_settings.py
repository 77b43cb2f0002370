from __future__ import annotations

import pytest

from dougong.errors import ConfigError
from dougong.server.settings import ServerSettings


def test_a_server_listens_to_this_machine_alone_and_lets_no_page_in_unless_told() -> None:
    settings = ServerSettings(model_names=("m",))
    assert settings.is_local
    assert settings.cors_origins == ()


@pytest.mark.parametrize(
    ("host", "is_local"),
    [("127.0.0.9", True), ("::1", True), ("localhost", True), ("0.0.0.0", False), ("box", False)],
)
def test_which_addresses_only_this_machine_reaches(host: str, is_local: bool) -> None:
    assert ServerSettings(model_names=("m",), host=host).is_local is is_local


def test_everything_that_is_wrong_is_told_at_once() -> None:
    with pytest.raises(ConfigError) as caught:
        ServerSettings(model_names=(), port=70000, api_keys=("",), max_body_bytes=1)
    assert len(caught.value.problems) == 4

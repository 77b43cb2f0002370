from __future__ import annotations

from pathlib import Path

import platformdirs
import pytest

from dougong import envs
from dougong.errors import ConfigError


def test_unset_variables_have_their_documented_defaults(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HF_ENDPOINT", raising=False)
    assert envs.cache_dir() == platformdirs.user_cache_path("dougong", appauthor=False)
    assert envs.platform() is None
    assert envs.plugins() is None
    assert envs.log_level() == "INFO"
    assert envs.hf_endpoint() is None


def test_values_are_read_at_the_call(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("DOUGONG_CACHE", str(tmp_path / "new"))
    monkeypatch.setenv("DOUGONG_PLATFORM", " acme ")
    monkeypatch.setenv("DOUGONG_PLUGINS", "cpu, acme")
    monkeypatch.setenv("DOUGONG_LOG_LEVEL", "debug")
    monkeypatch.setenv("HF_ENDPOINT", "http://mirror.example/")
    assert envs.cache_dir() == tmp_path / "new"
    assert envs.platform() == "acme"
    assert envs.plugins() == ("cpu", "acme")
    assert envs.log_level() == "DEBUG"
    assert envs.hf_endpoint() == "http://mirror.example"


def test_empty_means_unset(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("DOUGONG_PLATFORM", "DOUGONG_PLUGINS", "HF_ENDPOINT"):
        monkeypatch.setenv(name, "  ")
    assert (envs.platform(), envs.plugins(), envs.hf_endpoint()) == (None, None, None)


@pytest.mark.parametrize(
    ("name", "value", "read"),
    [
        ("DOUGONG_CACHE", __file__, envs.cache_dir),
        ("DOUGONG_PLATFORM", "a/b", envs.platform),
        ("DOUGONG_PLUGINS", "cpu,,acme", envs.plugins),
        ("DOUGONG_LOG_LEVEL", "LOUD", envs.log_level),
        ("HF_ENDPOINT", "mirror.example", envs.hf_endpoint),
    ],
)
def test_a_bad_value_is_an_error_naming_the_variable(
    monkeypatch: pytest.MonkeyPatch, name: str, value: str, read: object
) -> None:
    monkeypatch.setenv(name, value)
    assert callable(read)
    with pytest.raises(ConfigError, match=name):
        read()


def test_the_table_lists_every_variable_once_with_a_reason() -> None:
    names = [variable.name for variable in envs.TABLE]
    assert len(set(names)) == len(names)
    assert all(variable.type and variable.default and variable.why for variable in envs.TABLE)
    assert {"DOUGONG_CACHE", "DOUGONG_PLATFORM", "DOUGONG_PLUGINS", "DOUGONG_LOG_LEVEL"} <= {*names}


def test_of_the_variables_that_conditions_name_those_that_are_set_are_read_as_they_are(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("ACME_FAST", " 1")
    monkeypatch.setenv("ACME_EMPTY", "")
    monkeypatch.delenv("ACME_UNSET", raising=False)
    found = envs.condition_variables(["ACME_UNSET", "ACME_FAST", "ACME_EMPTY", "ACME_FAST"])
    assert found == {"ACME_EMPTY": "", "ACME_FAST": " 1"}

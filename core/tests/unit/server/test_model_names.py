"""Names that requests may give as their model."""

from __future__ import annotations

import pytest

from dougong.errors import RequestError
from dougong.server.errors import HttpRequestError
from dougong.server.model_names import ModelNames, ServedModel


def test_a_name_is_the_models_or_an_adapters_and_none_is_the_first() -> None:
    adapters = ["poet"]
    names = ModelNames(("m", "other"), lambda: adapters)
    assert names.check(None) == names.check("m") == ServedModel("m")
    assert names.check("other") == ServedModel("other")
    poet = ServedModel("poet", lora="poet", parent="m")
    assert names.check("poet") == poet
    assert list(names.all()) == [ServedModel("m"), ServedModel("other"), poet]
    adapters.clear()
    with pytest.raises(HttpRequestError, match="no model 'poet' here; this server has m, other"):
        names.check("poet")


def test_the_models_own_names_come_first_and_are_no_adapters() -> None:
    names = ModelNames(("m",), lambda: ["m"])
    assert names.check("m").lora is None
    with pytest.raises(RequestError, match="a name of the model itself") as caught:
        names.check_is_free("m")
    assert caught.value.field == "lora_name"
    names.check_is_free("n")

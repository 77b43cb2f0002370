"""Loading a platform's backends: all of them, checked, each fault with its address."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, cast

import pytest

from dougong.attention import load_backends
from dougong.contracts import (
    AttentionBackend,
    AttentionImpl,
    AttentionRequest,
    Platform,
    PluginError,
)
from dougong.cpu.platform import CpuPlatform
from dougong.errors import ContractError
from dougong.reference import ReferenceAttentionBackend


class Fine(ReferenceAttentionBackend):
    name = "acme/fine"


class Misspelt(ReferenceAttentionBackend):
    name = "acme/misspelt"

    def workspace_byte(self, request: AttentionRequest, max_num_tokens: int) -> int:
        return 1 << 40


class OtherSignature(ReferenceAttentionBackend):
    name = "acme/other"

    def make_impl(self, request: AttentionRequest) -> AttentionImpl:  # type: ignore[override]  # the fault
        raise AssertionError


class Unfinished(AttentionBackend):
    """Lacks everything that is required, its name included."""


class RaisingConstructor(ReferenceAttentionBackend):
    name = "acme/raises"

    def __init__(self) -> None:
        raise OSError("no chip")


KNOWN = {
    "acme/fine": f"{__name__}:Fine",
    "acme/absent": f"{__name__}:Absent",
    "acme/wrong": "builtins:object",
    "acme/misspelt": f"{__name__}:Misspelt",
    "acme/other": f"{__name__}:OtherSignature",
    "acme/unfinished": f"{__name__}:Unfinished",
    "acme/raises": f"{__name__}:RaisingConstructor",
    "acme/renamed": f"{__name__}:Fine",
    "reference/torch": "dougong.reference:ReferenceAttentionBackend",
}


class FakePlatform:
    name = "acme"

    def __init__(self, listed: Callable[[], Any]) -> None:
        self._listed = listed

    def get_attn_backends(self) -> Mapping[str, str]:
        return cast(Mapping[str, str], self._listed())


def platform(*names: str) -> Platform:
    return cast(Platform, FakePlatform(lambda: {name: KNOWN[name] for name in names}))


def test_all_are_loaded_in_the_platforms_order_under_their_names() -> None:
    backends = load_backends(platform("reference/torch", "acme/fine"))
    assert [(name, backend.name) for name, backend in backends.items()] == [
        ("reference/torch", "reference/torch"),
        ("acme/fine", "acme/fine"),
    ]
    assert list(load_backends(CpuPlatform())) == ["cpu/native", "reference/torch"]


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("acme/absent", "cannot be loaded from .*AttributeError"),
        ("acme/raises", "cannot be made: .* raised OSError: no chip"),
        ("acme/renamed", "whose name is 'acme/fine'; get_attn_backends"),
    ],
)
def test_a_backend_at_fault_is_the_plugins_error_with_its_name(name: str, message: str) -> None:
    with pytest.raises(PluginError, match=message) as caught:
        load_backends(platform("reference/torch", name))
    assert caught.value.plugin == "acme"
    assert f"attention backend {name!r} of platform 'acme'" in str(caught.value)


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("acme/wrong", ["does not derive from dougong.contracts.attention.AttentionBackend"]),
        ("acme/misspelt", ["Misspelt.workspace_byte is not in", "mean 'workspace_bytes'?"]),
        ("acme/other", ["OtherSignature.make_impl(request) must take (request, scale)"]),
        ("acme/unfinished", ["method make_impl(", "method make_builder(", "'name' is missing"]),
    ],
)
def test_a_class_that_does_not_fit_is_refused_with_every_problem(
    name: str, told: list[str]
) -> None:
    with pytest.raises(ContractError) as caught:
        load_backends(platform(name, "reference/torch"))
    for part in [*told, f"attention backend {name!r} of platform 'acme'"]:
        assert part in str(caught.value)
    assert caught.value.plugin == "acme"


def _raise() -> None:
    raise KeyError("chip")


@pytest.mark.parametrize(
    ("listed", "message"),
    [
        (_raise, "failed to answer get_attn_backends.*KeyError"),
        (lambda: ["acme/fine"], "must map names to import strings"),
        (lambda: {"acme/fine": Fine}, "must map names to import strings"),
    ],
)
def test_a_platform_that_cannot_list_them_is_at_fault(
    listed: Callable[[], Any], message: str
) -> None:
    with pytest.raises(PluginError, match=message):
        load_backends(cast(Platform, FakePlatform(listed)))

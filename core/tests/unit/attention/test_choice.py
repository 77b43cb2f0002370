"""Choosing a backend: order, explicit choice, reasons, faults of a plugin."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, cast

import pytest

from dougong.attention import choose_backend
from dougong.contracts import (
    AttentionBackend,
    AttentionImpl,
    AttentionRequest,
    ConfigError,
    Platform,
    PluginError,
    Support,
)
from dougong.errors import ContractError
from dougong.reference import ReferenceAttentionBackend

REQUEST = AttentionRequest(
    num_heads=4, num_kv_heads=2, head_dim=64, dtype="float32", kv_dtype="float32"
)


class Picky(ReferenceAttentionBackend):
    name = "acme/picky"

    def supports(self, request: AttentionRequest) -> Support:
        return Support.yes() if request.head_dim == 128 else Support.no("head_dim; takes 128")


class Raising(ReferenceAttentionBackend):
    name = "acme/raising"

    def supports(self, request: AttentionRequest) -> Support:
        raise KeyError("chip")


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


class FakePlatform:
    name = "acme"

    def __init__(self, *names: str, preferred: str | None = None) -> None:
        self._names = names
        self._preferred = preferred

    def get_attn_backends(self) -> Mapping[str, str]:
        here = __name__
        known = {
            "acme/picky": f"{here}:Picky",
            "acme/raising": f"{here}:Raising",
            "acme/absent": f"{here}:Absent",
            "acme/wrong": "builtins:object",
            "acme/misspelt": f"{here}:Misspelt",
            "acme/other": f"{here}:OtherSignature",
            "acme/unfinished": f"{here}:Unfinished",
            "acme/raises": f"{here}:RaisingConstructor",
            "reference/torch": "dougong.reference:ReferenceAttentionBackend",
        }
        return {name: known[name] for name in self._names}

    def get_attn_backend_cls(self, request: AttentionRequest) -> str | None:
        return self._preferred


def platform(*names: str, **options: Any) -> Platform:
    return cast(Platform, FakePlatform(*names, **options))


def test_the_first_that_supports_the_layer_is_taken_and_the_others_keep_their_reason() -> None:
    choice = choose_backend(platform("acme/picky", "reference/torch"), REQUEST)
    assert choice.backend.name == "reference/torch"
    assert choice.passed_over == {"acme/picky": "head_dim; takes 128"}
    wide = replace(REQUEST, head_dim=128)
    assert (
        choose_backend(platform("acme/picky", "reference/torch"), wide).backend.name == "acme/picky"
    )


def test_an_explicit_choice_is_obeyed_or_refused() -> None:
    both = platform("acme/picky", "reference/torch")
    wide = replace(REQUEST, head_dim=128)
    assert choose_backend(both, wide, "reference/torch").backend.name == "reference/torch"
    with pytest.raises(ConfigError, match=r"attention_backend=acme/picky.*\n.*head_dim; takes 128"):
        choose_backend(both, REQUEST, "acme/picky")
    with pytest.raises(ConfigError, match="among those of platform 'acme': acme/picky, reference"):
        choose_backend(both, REQUEST, "acme/none")


def test_when_nothing_supports_the_layer_each_candidate_is_listed() -> None:
    with pytest.raises(ConfigError, match=r"acme/picky: head_dim; takes 128"):
        choose_backend(platform("acme/picky"), REQUEST)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("acme/raising", "raised when asked.*KeyError"),
        ("acme/absent", "cannot be loaded from .*AttributeError"),
        ("acme/raises", "cannot be made: .* raised OSError: no chip"),
    ],
)
def test_a_backend_at_fault_is_the_plugins_error_never_an_answer(name: str, message: str) -> None:
    with pytest.raises(PluginError, match=message):
        choose_backend(platform(name, "reference/torch"), REQUEST)


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
        choose_backend(platform(name, "reference/torch"), REQUEST)
    for part in [*told, f"attention backend {name!r} of platform 'acme'"]:
        assert part in str(caught.value)
    assert caught.value.plugin == "acme"


def test_a_preferred_backend_that_is_not_listed_is_the_plugins_error() -> None:
    with pytest.raises(PluginError, match="not in get_attn_backends, which has reference/torch"):
        choose_backend(platform("reference/torch", preferred="acme/gone"), REQUEST)

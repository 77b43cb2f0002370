"""A platform's wrapper for adapters is loaded, and held against the contract."""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any

import pytest
import torch

from dougong.contracts import LoRAWrapper
from dougong.errors import ContractError, PluginError
from dougong.platforms.lora_wrapper import load_lora_wrapper, lora_wrapper_of
from dougong.reference import ReferenceLoRAWrapper
from dougong.testing.null_platform import NullPlatform


class Misspelt(LoRAWrapper):
    def update_metadata(self, lora_indices: torch.Tensor) -> None:
        return None

    def add_lora_linears(self, out: torch.Tensor) -> None:
        return None


class Named(NullPlatform):
    def __init__(self, answer: Any) -> None:
        super().__init__()
        self.answer = answer

    def get_punica_wrapper(self) -> str | None:
        if isinstance(self.answer, Exception):
            raise self.answer
        found: str | None = self.answer
        return found


@pytest.fixture(autouse=True)
def _module(monkeypatch: pytest.MonkeyPatch) -> None:
    module = ModuleType("acme_wrappers")
    module.Misspelt = Misspelt  # type: ignore[attr-defined]  # a module made here
    module.number = 3  # type: ignore[attr-defined]  # the same
    monkeypatch.setitem(sys.modules, "acme_wrappers", module)


def test_a_wrapper_that_fits_is_named_and_none_is_none() -> None:
    target = "dougong.reference:ReferenceLoRAWrapper"
    assert lora_wrapper_of(Named(target)) == target
    assert load_lora_wrapper(target, "acme") is ReferenceLoRAWrapper
    assert lora_wrapper_of(NullPlatform()) is None


@pytest.mark.parametrize(
    ("answer", "error", "why"),
    [
        (OSError("no library"), PluginError, "failed to answer get_punica_wrapper"),
        ("nowhere:Wrapper", PluginError, "cannot be loaded from 'nowhere:Wrapper'"),
        ("acme_wrappers:Wrapper", PluginError, "cannot be loaded"),
        (3, PluginError, "cannot be loaded"),
        ("acme_wrappers:number", ContractError, "does not fit the contract"),
        ("acme_wrappers:Misspelt", ContractError, "add_lora_linear"),
    ],
)
def test_what_does_not_fit_is_refused(answer: Any, error: type[Exception], why: str) -> None:
    with pytest.raises(error, match=why):
        lora_wrapper_of(Named(answer))

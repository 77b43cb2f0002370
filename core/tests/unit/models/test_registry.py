from __future__ import annotations

from collections.abc import Mapping

import pytest
import torch
from torch import nn

from dougong.contracts import Registration
from dougong.contracts.registration import model_mark
from dougong.errors import ConfigError, ContractError, PluginError
from dougong.models.encoder_model import EncoderModel, EncoderStep
from dougong.models.llama import LlamaForCausalLM
from dougong.models.loadable import WeightTarget
from dougong.models.mistral import MistralForCausalLM
from dougong.models.registry import ModelRegistry


class AcmeForCausalLM(LlamaForCausalLM):
    pass


class NoModel:
    pass


class HalfModel(nn.Module):
    def compute_logits(self) -> None: ...


def registration(
    architecture: str, target: object = None, alias_of: str | None = None, plugin: str = "acme"
) -> Registration:
    return Registration(
        mark=model_mark(architecture, alias_of=alias_of),
        target=target,
        plugin=plugin,
        distribution=f"dougong-{plugin} 1.2",
    )


def test_the_core_brings_the_llama_family() -> None:
    registry = ModelRegistry()
    assert registry.resolve(["LlamaForCausalLM"]) is LlamaForCausalLM
    assert registry.resolve(["MistralForCausalLM"]) is MistralForCausalLM
    assert registry.resolve(["LLaMAForCausalLM"]) is LlamaForCausalLM


def test_every_name_resolves() -> None:
    registry = ModelRegistry()
    assert all(issubclass(registry.resolve([name]), nn.Module) for name in registry.names())
    assert list(registry.names()) == sorted(registry.names())


def test_the_first_known_of_several_architectures_is_taken() -> None:
    assert ModelRegistry().resolve(["Nobody", "MistralForCausalLM"]) is MistralForCausalLM


@pytest.mark.parametrize("asked", ["LamaForCausalLM", "llamaforcausallm", "LlamaForCausal"])
def test_an_unknown_architecture_is_refused_with_the_known_ones_and_the_nearest(asked: str) -> None:
    with pytest.raises(ConfigError) as caught:
        ModelRegistry().resolve([asked])
    message = str(caught.value)
    assert asked in message
    assert "nearest is L" in message
    assert "LlamaForCausalLM, MistralForCausalLM" in message


def test_a_checkpoint_without_architecture_is_refused() -> None:
    with pytest.raises(ConfigError, match="names no architecture"):
        ModelRegistry().resolve([])


def test_a_plugin_adds_overrides_and_renames_and_each_is_told() -> None:
    registry = ModelRegistry(
        [
            registration("AcmeForCausalLM", AcmeForCausalLM),
            registration("MistralForCausalLM", f"{__name__}:AcmeForCausalLM"),
            registration("AcmeChatForCausalLM", alias_of="AcmeForCausalLM"),
        ]
    )
    assert registry.resolve(["AcmeForCausalLM"]) is AcmeForCausalLM
    assert registry.resolve(["AcmeChatForCausalLM"]) is AcmeForCausalLM
    assert registry.resolve(["MistralForCausalLM"]).__name__ == "AcmeForCausalLM"
    adds, overrides, renames = registry.changes
    assert "dougong-acme 1.2 adds architecture AcmeForCausalLM" in adds
    assert "dougong-acme 1.2 overrides the core's architecture MistralForCausalLM" in overrides
    assert "AcmeChatForCausalLM: the same as AcmeForCausalLM" in renames


def test_two_registries_do_not_share_registrations() -> None:
    ModelRegistry([registration("AcmeForCausalLM", AcmeForCausalLM)])
    assert "AcmeForCausalLM" not in ModelRegistry().names()


def test_two_plugins_with_one_architecture_are_refused_by_name() -> None:
    one = registration("AcmeForCausalLM", AcmeForCausalLM)
    other = registration("AcmeForCausalLM", LlamaForCausalLM, plugin="emca")
    with pytest.raises(PluginError, match=r"dougong-acme 1\.2 .*dougong-emca 1\.2"):
        ModelRegistry([one, other])


def test_the_same_class_twice_is_no_conflict() -> None:
    one = registration("AcmeForCausalLM", AcmeForCausalLM)
    other = registration("AcmeForCausalLM", AcmeForCausalLM, plugin="emca")
    assert ModelRegistry([one, other]).resolve(["AcmeForCausalLM"]) is AcmeForCausalLM


def test_a_registration_of_nothing_is_refused() -> None:
    with pytest.raises(PluginError, match="neither a class nor an alias"):
        ModelRegistry([registration("AcmeForCausalLM")])


def test_an_alias_of_nothing_is_refused_when_asked_for() -> None:
    registry = ModelRegistry([registration("A", alias_of="B")])
    with pytest.raises(PluginError, match="'A' is the same as 'B', which is unknown"):
        registry.resolve(["A"])


def test_aliases_in_a_circle_are_refused_when_asked_for() -> None:
    registry = ModelRegistry([registration("A", alias_of="B"), registration("B", alias_of="A")])
    with pytest.raises(PluginError, match="leads back to it"):
        registry.resolve(["A"])


def test_a_class_that_cannot_be_imported_names_its_plugin() -> None:
    registry = ModelRegistry([registration("A", "no_such_module_here:Model")])
    with pytest.raises(PluginError, match=r"dougong-acme 1\.2.*ModuleNotFoundError") as caught:
        registry.resolve(["A"])
    assert caught.value.plugin == "acme"


def test_what_is_no_model_is_refused_with_every_problem() -> None:
    with pytest.raises(ContractError, match=r"not a torch\.nn\.Module class"):
        ModelRegistry([registration("A", NoModel)]).resolve(["A"])
    with pytest.raises(ContractError) as caught:
        ModelRegistry([registration("A", HalfModel)]).resolve(["A"])
    assert caught.value.problems == (
        "it has no method __init__(hf_config, dtype, max_model_len)",
        "it has no method forward(token_ids, positions, step)",
        "compute_logits does not take (hidden)",
        "it has no method weight_targets()",
    )


class AcmeEncoder(EncoderModel):
    def forward(
        self, token_ids: torch.Tensor, positions: torch.Tensor, step: EncoderStep
    ) -> torch.Tensor:
        return token_ids.float()

    def weight_targets(self) -> Mapping[str, WeightTarget]:
        return {}


def test_an_encoder_needs_no_logits_and_another_model_does() -> None:
    class AcmeDecoder(nn.Module):
        __init__, forward = LlamaForCausalLM.__init__, AcmeEncoder.forward
        weight_targets = AcmeEncoder.weight_targets

    registry = ModelRegistry(
        [registration("AcmeModel", AcmeEncoder), registration("AcmeForCausalLM", AcmeDecoder)]
    )
    assert registry.resolve(["AcmeModel"]) is AcmeEncoder
    with pytest.raises(ContractError, match="has no method compute_logits"):
        registry.resolve(["AcmeForCausalLM"])


def test_the_core_brings_encoders() -> None:
    registry = ModelRegistry()
    names = ("BertModel", "RobertaModel", "XLMRobertaModel", "BertForMaskedLM")
    assert all(issubclass(registry.resolve([name]), EncoderModel) for name in names)

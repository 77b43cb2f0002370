"""Architecture name → model class: what the core brings and what plugins add, one per engine."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import cast

from torch import nn

from dougong.contracts import Registration, RegistrationKind
from dougong.describe import unknown_architecture
from dougong.errors import ContractError, PluginError
from dougong.models.causal_lm import CausalLM
from dougong.models.encoder_model import EncoderModel

ModelClass = type[CausalLM] | type[EncoderModel]
"""What the registry gives; a plugin's class that derives from neither is used as the first."""

_CORE = "dougong"
_BUILT_IN: Mapping[str, str] = MappingProxyType(
    {
        "BertModel": "dougong.models.bert:BertModel",
        "Gemma3ForCausalLM": "dougong.models.gemma3:Gemma3ForCausalLM",
        "GraniteForCausalLM": "dougong.models.granite:GraniteForCausalLM",
        "LlamaForCausalLM": "dougong.models.llama:LlamaForCausalLM",
        "MistralForCausalLM": "dougong.models.mistral:MistralForCausalLM",
        "Phi3ForCausalLM": "dougong.models.phi3:Phi3ForCausalLM",
        "Qwen2ForCausalLM": "dougong.models.qwen2:Qwen2ForCausalLM",
        "Qwen3ForCausalLM": "dougong.models.qwen3:Qwen3ForCausalLM",
        "RobertaModel": "dougong.models.bert:RobertaModel",
    }
)
_BUILT_IN_ALIASES: Mapping[str, str] = MappingProxyType(
    {
        "BertForMaskedLM": "BertModel",  # whose layers are saved with one of its training heads
        "LLaMAForCausalLM": "LlamaForCausalLM",  # as the first Llama conversions spelt it
        "XLMRobertaModel": "RobertaModel",
    }
)
_CALLS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "__init__": ("hf_config", "dtype", "max_model_len"),
        "forward": ("token_ids", "positions", "step"),
        "compute_logits": ("hidden",),
        "weight_targets": (),
    }
)


_OF_TEXT = frozenset({"compute_logits"})


@dataclass(frozen=True, slots=True)
class _Entry:
    """Who serves an architecture: a class, or the place of one, or another architecture."""

    target: str | ModelClass | None
    alias_of: str | None
    plugin: str | None
    origin: str

    def __str__(self) -> str:
        if self.alias_of is not None:
            return f"the same as {self.alias_of}"
        if isinstance(self.target, type):
            return f"{self.target.__module__}:{self.target.__qualname__}"
        return str(self.target)


class ModelRegistry:
    """Architectures an engine can build. Classes are imported when they are asked for.

    Args:
        registrations: Of plugins; kinds other than `RegistrationKind.MODEL` are left alone. A name
            the core has is overridden, another one added.

    Attributes:
        changes: What was overridden or added, one sentence each, for whoever starts the engine to
            log; every process of the engine makes a registry, and one of them tells.

    Raises:
        PluginError: Two plugins claim one architecture with different classes (naming both), or a
            registration has neither a class nor an architecture it equals.
    """

    def __init__(self, registrations: Iterable[Registration] = ()) -> None:
        self._entries = {
            name: _Entry(place, None, None, _CORE) for name, place in _BUILT_IN.items()
        }
        self._entries |= {
            name: _Entry(None, other, None, _CORE) for name, other in _BUILT_IN_ALIASES.items()
        }
        self.changes: list[str] = []
        for registration in registrations:
            if registration.mark.kind is RegistrationKind.MODEL:
                self._add(registration)

    def names(self) -> tuple[str, ...]:
        """Every architecture known, aliases included, sorted."""
        return tuple(sorted(self._entries))

    def resolve(self, architectures: Sequence[str]) -> ModelClass:
        """The class of the first architecture that is known.

        Args:
            architectures: As the checkpoint names them; usually one.

        Raises:
            CheckpointError: None is known; the message lists those that are, and the nearest.
            PluginError: A plugin's class cannot be imported or is no model.
        """
        for name in architectures:
            if name in self._entries:
                return self._load(name)
        raise unknown_architecture(architectures, self.names(), reference="the checkpoint")

    def _add(self, registration: Registration) -> None:
        name = registration.mark.key
        alias_of = registration.mark.details
        target = None if alias_of is not None else registration.target
        entry = _Entry(target, alias_of, registration.plugin, registration.distribution)
        if target is None and alias_of is None:
            raise PluginError(
                f"{registration.distribution} registers the architecture {name!r} with neither a "
                "class nor an alias; give it a target or alias_of.",
                plugin=registration.plugin,
            )
        earlier = self._entries.get(name)
        if earlier is not None and earlier.plugin is not None:
            if (earlier.target, earlier.alias_of) == (entry.target, entry.alias_of):
                return
            raise PluginError(
                f"the architecture {name!r} is registered by {earlier.origin} ({earlier}) and by "
                f"{entry.origin} ({entry}); uninstall one of the two, or leave its plugin out with "
                "DOUGONG_PLUGINS.",
                plugin=registration.plugin,
            )
        verb = "adds" if earlier is None else "overrides the core's"
        self.changes.append(f"{entry.origin} {verb} architecture {name}: {entry}")
        self._entries[name] = entry

    def _load(self, name: str) -> ModelClass:
        entry = self._follow(name)
        place = entry.target
        found = _import(place, entry) if isinstance(place, str) else place
        problems = _problems(found)
        if problems:
            raise ContractError(
                f"{entry.origin}'s model {entry}", tuple(problems), plugin=entry.plugin
            )
        return cast(ModelClass, found)

    def _follow(self, name: str) -> _Entry:
        path = [name]
        entry = self._entries[name]
        while (other := entry.alias_of) is not None:
            if other not in self._entries or other in path:
                why = "is unknown" if other not in path else "leads back to it"
                raise PluginError(
                    f"{entry.origin} says that {path[-1]!r} is the same as {other!r}, which {why}; "
                    f"known: {', '.join(self.names())}",
                    plugin=entry.plugin,
                )
            path.append(other)
            entry = self._entries[other]
        return entry


def _import(place: str, entry: _Entry) -> object:
    module, _, attribute = place.partition(":")
    try:
        return getattr(importlib.import_module(module), attribute)
    except Exception as exc:  # a plugin's module may raise anything; the reason is shown
        raise PluginError(
            f"{entry.origin}'s model {place!r} cannot be imported: {type(exc).__name__}: {exc}",
            plugin=entry.plugin,
        ) from exc


def _problems(found: object) -> list[str]:
    if not (isinstance(found, type) and issubclass(found, nn.Module)):
        return [f"it is {found!r}, not a torch.nn.Module class"]
    problems = []
    for method, arguments in _calls_of(found).items():
        own = getattr(found, method, None)
        if own is None or own is getattr(nn.Module, method, None):
            problems.append(f"it has no method {method}({', '.join(arguments)})")
        elif not _takes(own, len(arguments)):
            problems.append(f"{method} does not take ({', '.join(arguments)})")
    return problems


def _calls_of(cls: type[nn.Module]) -> Mapping[str, tuple[str, ...]]:
    """An encoder has no next token to give logits of."""
    is_encoder = issubclass(cls, EncoderModel)
    return {name: args for name, args in _CALLS.items() if not is_encoder or name not in _OF_TEXT}


def _takes(method: Callable[..., object], num_arguments: int) -> bool:
    try:
        inspect.signature(method).bind(*[None] * (num_arguments + 1))  # and self
    except TypeError:
        return False
    return True

"""What a checkpoint's config says about rotary embeddings, in one spelling."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from dougong.errors import ConfigError

ROPE_TYPES = ("default", "linear", "dynamic", "yarn", "llama3", "longrope")
_DEFAULT_THETA = 10000.0
_HAS_ORIGINAL_LENGTH = frozenset({"yarn", "llama3", "longrope"})


@dataclass(frozen=True, slots=True)
class RotarySettings:
    """What a config says about rotary embeddings, in one spelling.

    Attributes:
        rope_type: One of `ROPE_TYPES`.
        rotary_dim: Leading elements of a head that are rotated.
        theta: Base of the wavelengths.
        max_position_embeddings: As the config states it.
        parameters: The other numbers of the type, by their names in the config.
    """

    rope_type: str
    rotary_dim: int
    theta: float
    max_position_embeddings: int
    parameters: Mapping[str, Any]

    def factors(self, key: str) -> list[float]:
        """One number per rotated pair, that this type cannot do without.

        Raises:
            ConfigError: They are missing, too many or too few, or no numbers.
        """
        values = self.parameters.get(key)
        wanted = self.rotary_dim // 2
        if not isinstance(values, list | tuple) or len(values) != wanted:
            found = f"{len(values)} of them" if isinstance(values, list | tuple) else repr(values)
            raise ConfigError(
                f"rope_parameters: rope_type={self.rope_type!r} needs {wanted} numbers in {key!r}, "
                f"found {found}. Correct the checkpoint's config.json."
            )
        if not all(isinstance(value, int | float) for value in values):
            raise ConfigError(
                f"rope_parameters: {key!r} must hold numbers, found {values!r}. "
                "Correct the checkpoint's config.json."
            )
        return [float(value) for value in values]

    def number(self, key: str) -> float:
        """A number this type cannot do without.

        Raises:
            ConfigError: It is missing or no number.
        """
        value = self.parameters.get(key)
        if not isinstance(value, int | float) or isinstance(value, bool):
            raise ConfigError(
                f"rope_parameters: rope_type={self.rope_type!r} needs the number {key!r}, "
                f"found {value!r}. Correct the checkpoint's config.json."
            )
        return value


def read_rotary_settings(hf_config: Mapping[str, Any], head_dim: int) -> RotarySettings:
    """Read ``rope_parameters``, or the older ``rope_scaling`` and ``rope_theta``.

    As in `transformers`, ``rope_scaling`` wins where both exist, values inside them win over those
    beside them, except ``original_max_position_embeddings``, where the one beside them wins.

    Args:
        hf_config: The checkpoint's configuration.
        head_dim: Elements per head.

    Raises:
        ConfigError: The type is unknown, the rotated part of a head is odd, or there are settings
            per kind of layer.
    """
    parameters = dict(hf_config.get("rope_scaling") or hf_config.get("rope_parameters") or {})
    rope_type = str(parameters.get("rope_type") or parameters.get("type") or "default")
    _check_one_for_all_layers(parameters)
    if rope_type not in ROPE_TYPES:
        raise ConfigError(
            f"rope_type={rope_type!r} is not known; known: {', '.join(ROPE_TYPES)}. "
            "Another rotation would give wrong text, so the model is not loaded."
        )
    max_positions = int(hf_config.get("max_position_embeddings", 2048))
    if rope_type in _HAS_ORIGINAL_LENGTH:
        beside = hf_config.get("original_max_position_embeddings")
        inside = parameters.get("original_max_position_embeddings")
        parameters["original_max_position_embeddings"] = beside or inside or max_positions
    share = _first(parameters, hf_config, "partial_rotary_factor", 1.0)
    rotary_dim = int(head_dim * share)
    if rotary_dim < 2 or rotary_dim % 2:
        raise ConfigError(
            f"{rotary_dim} of the {head_dim} elements of a head would be rotated "
            f"(partial_rotary_factor={share}); pairs need an even number of 2 or more."
        )
    theta = float(_first(parameters, hf_config, "rope_theta", _DEFAULT_THETA))
    return RotarySettings(rope_type, rotary_dim, theta, max_positions, parameters)


def _check_one_for_all_layers(parameters: Mapping[str, Any]) -> None:
    nested = [key for key, value in parameters.items() if isinstance(value, Mapping)]
    if nested:
        raise ConfigError(
            f"rope_parameters differ per kind of layer ({', '.join(nested)}); models of this "
            "family rotate every layer alike. Choose a model with one set of them."
        )


def default_num_positions(settings: RotarySettings) -> int:
    """Positions the config promises: its own length, stretched where the scaling says so.

    ``linear`` and ``dynamic`` state the length before scaling. For ``yarn``, configs exist that
    state either; the original length times the factor is right for both.
    """
    stated = settings.max_position_embeddings
    if settings.rope_type in ("linear", "dynamic"):
        return math.ceil(stated * settings.number("factor"))
    if settings.rope_type == "yarn" and settings.parameters.get("factor") is not None:
        original = settings.number("original_max_position_embeddings")
        return max(stated, math.ceil(original * settings.number("factor")))
    return stated


def _first(inside: Mapping[str, Any], beside: Mapping[str, Any], key: str, default: float) -> float:
    for place in (inside, beside):
        if place.get(key) is not None:
            return float(place[key])
    return default

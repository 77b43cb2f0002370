"""``adapter_config.json``: what of it is computed here, and what is refused by its name."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from dougong.errors import RequestError

CONFIG_FILE = "adapter_config.json"
_LARGEST_RANK = 4096
_LARGEST_FILE = 2**20  # bytes
_REFUSED: Mapping[str, tuple[Any, ...]] = {
    "use_dora": (False,),
    "use_qalora": (False,),
    "use_bdlora": (False, None),
    "bias": ("none",),
    "lora_bias": (False,),
    "modules_to_save": (None, []),
    "fan_in_fan_out": (False,),
    "rank_pattern": (None, {}),
    "alpha_pattern": (None, {}),
    "layer_replication": (None, []),
    "trainable_token_indices": (None, [], {}),
    "target_parameters": (None, []),
    "alora_invocation_tokens": (None, []),
}
"""Fields that change what an adapter computes, with the values that leave it plain; unstated is as
good."""
_CHANGES_BASE = ("pissa", "olora", "corda", "loftq")
"""Ways to begin a training that change the base model's weights too."""


@dataclass(frozen=True, slots=True)
class PeftConfig:
    """What an adapter's configuration says.

    Attributes:
        rank: ``r``.
        scale: What ``B @ A`` is multiplied by.
    """

    rank: int
    scale: float


def read_peft_config(folder: Path) -> PeftConfig:
    """Read and check it.

    Raises:
        RequestError: It is not there or no JSON, or asks for something that is not computed here;
            all of that is named.
    """
    path = folder / CONFIG_FILE
    try:
        if path.stat().st_size > _LARGEST_FILE:
            raise _refused(folder, (f"{CONFIG_FILE} is larger than {_LARGEST_FILE} bytes",))
        config = msgspec.json.decode(path.read_bytes())
    except OSError as exc:
        why = f"{CONFIG_FILE} cannot be read ({exc.strerror}); give the folder that peft saved"
        raise _refused(folder, (why,)) from exc
    except (msgspec.DecodeError, RecursionError) as exc:
        raise _refused(folder, (f"{CONFIG_FILE} is no JSON ({exc})",)) from exc
    if not isinstance(config, Mapping):
        raise _refused(folder, (f"{CONFIG_FILE} holds no object",))
    if problems := tuple(_problems(config)):
        raise _refused(folder, problems)
    rank, alpha = config["r"], float(config["lora_alpha"])
    divisor = math.sqrt(rank) if config.get("use_rslora") else rank
    return PeftConfig(rank, alpha / divisor)


def _problems(config: Mapping[str, Any]) -> Iterator[str]:
    if config.get("peft_type") != "LORA":
        yield f"peft_type={config.get('peft_type')!r}; LORA is what is computed"
    rank = config.get("r")
    if not isinstance(rank, int) or isinstance(rank, bool) or not 1 <= rank <= _LARGEST_RANK:
        yield f"r={rank!r} is no rank from 1 to {_LARGEST_RANK}"
    alpha = config.get("lora_alpha")
    if isinstance(alpha, bool) or not isinstance(alpha, int | float) or not math.isfinite(alpha):
        yield f"lora_alpha={alpha!r} is no number"
    for name, plain in _REFUSED.items():
        if name in config and config[name] not in plain:
            yield f"{name}={config[name]!r} is not computed here"
    begun = config.get("init_lora_weights")
    if isinstance(begun, str) and begun.startswith(_CHANGES_BASE):
        yield (
            f"init_lora_weights={begun!r} changed the base model's weights too; save it with peft "
            "as a plain adapter"
        )


def _refused(folder: Path, problems: tuple[str, ...]) -> RequestError:
    told = "; ".join(problems)
    return RequestError(f"The adapter in {folder} cannot be loaded: {told}.", field="lora_path")

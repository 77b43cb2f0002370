"""Adapters: how many, how large, and which are loaded at the start."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from dougong.config.decision import CORE
from dougong.config.wishes import Wishes

_DEFAULT_LORAS = 4
_DEFAULT_RANK = 16
_MOST = {"max_loras": 256, "max_lora_rank": 4096}


@dataclass(frozen=True, slots=True, kw_only=True)
class LoRAConfig:
    """What an engine takes of adapters.

    Attributes:
        max_loras: Adapters that are loaded at once.
        max_rank: Largest rank of one.
        adapters: Name and folder of those that are loaded at the start.
    """

    max_loras: int
    max_rank: int
    adapters: tuple[tuple[str, str], ...] = ()


def resolve_lora(wishes: Wishes) -> LoRAConfig | None:
    """What was asked for of adapters; ``None``: none are taken."""
    named = tuple(_named(wishes))
    is_asked = wishes.get("enable_lora", bool)
    if not (is_asked or (is_asked is None and named)):
        _refuse_sizes_without_adapters(wishes)
        wishes.settle_or("enable_lora", False, CORE, "default", is_default=True)
        return None
    wishes.settle_or("enable_lora", True, CORE, "--lora names an adapter")
    count, rank = max(_DEFAULT_LORAS, len(named)), _DEFAULT_RANK
    max_loras = wishes.settle_or("max_loras", count, CORE, "default, or as many as are named")
    max_rank = wishes.settle_or("max_lora_rank", rank, CORE, "default", is_default=True)
    for name, value in (("max_loras", max_loras), ("max_lora_rank", max_rank)):
        if not 1 <= value <= _MOST[name]:
            wishes.refuse(f"{name}={value}; it takes 1 to {_MOST[name]}.", of=name)
    if len(named) > max_loras:
        wishes.refuse(
            f"--lora names {len(named)} adapters, and max_loras={max_loras} can be loaded at once. "
            f"Ask for --max-loras {len(named)}, or name fewer.",
            of="max_loras",
        )
    if named:
        wishes.settle_asked("lora", ", ".join(name for name, _ in named))
    return LoRAConfig(max_loras=max(1, max_loras), max_rank=max(1, max_rank), adapters=named)


def _named(wishes: Wishes) -> Iterator[tuple[str, str]]:
    """Name and folder of each ``NAME=PATH``."""
    seen = set()
    for one in wishes.get("lora", tuple) or ():
        name, sign, path = str(one).partition("=")
        name, path = name.strip(), path.strip()
        if not (sign and name and path):
            wishes.refuse(
                f"lora={one!r}; it takes NAME=PATH, such as mine=./my-adapter.", of="lora"
            )
        elif name in seen:
            wishes.refuse(f"lora names {name!r} twice; give each adapter a name of its own.")
        else:
            seen.add(name)
            yield name, path


def _refuse_sizes_without_adapters(wishes: Wishes) -> None:
    for name in ("max_loras", "max_lora_rank", "lora"):
        if name in wishes.asked:
            option = name.replace("_", "-")
            wishes.refuse(
                f"--{option} says something of adapters, and none are taken. Give --enable-lora, "
                f"or leave --{option} out.",
                of=name,
            )

"""Marked objects as the loader would hand them over."""

from __future__ import annotations

from typing import Any

from dougong.contracts import Registration
from dougong.contracts.registration import marked_objects
from dougong.ops import OP_KEYS, OpRegistry


def registry(*targets: Any, distribution: str = "acme 1.0") -> OpRegistry:
    return OpRegistry.from_registrations(
        registrations(*targets, distribution=distribution), OP_KEYS
    )


def registrations(*targets: Any, distribution: str = "acme 1.0") -> list[Registration]:
    namespace = {f"target{index}": target for index, target in enumerate(targets)}
    return [
        Registration(mark=mark, target=target, plugin="acme", distribution=distribution)
        for target, mark in marked_objects([namespace])
    ]

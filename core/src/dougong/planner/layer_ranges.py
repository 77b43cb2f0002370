"""Numbers of layers in words."""

from __future__ import annotations

from collections.abc import Iterable


def describe_layers(indices: Iterable[int]) -> str:
    """Sorted, with neighbours drawn together: ``"0-3, 7"``."""
    runs: list[list[int]] = []
    for index in sorted(indices):
        if runs and index == runs[-1][1] + 1:
            runs[-1][1] = index
        else:
            runs.append([index, index])
    return ", ".join(f"{first}" if first == last else f"{first}-{last}" for first, last in runs)

"""What may be captured once and replayed: the user's wishes, and the memory it may take."""

from __future__ import annotations

from dataclasses import dataclass

from dougong.config.decision import CORE
from dougong.config.wishes import Wishes
from dougong.contracts.graph import GraphLevel

SHARE_OF_MEMORY = 20
"""Graphs take a twentieth of what the engine may use, where nobody says otherwise."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GraphConfig:
    """Wishes for captured steps.

    Attributes:
        level: Asked for; ``None``: as much as device and attention allow.
        sizes: Token counts that were asked for, ascending; empty: the planner's.
        memory_bytes: Device memory that all graphs together may take.
    """

    level: GraphLevel | None = None
    sizes: tuple[int, ...] = ()
    memory_bytes: int = 0


def resolve_graphs(
    wishes: Wishes, *, enforce_eager: bool, budget_bytes: int, max_num_tokens: int
) -> GraphConfig:
    """Read the options; what contradicts itself or the size of a step is refused.

    Args:
        wishes: All of them; decisions and problems are noted there.
        enforce_eager: Nothing may be captured.
        budget_bytes: Memory that the engine may use.
        max_num_tokens: Tokens of the largest step.
    """
    level = _resolve_level(wishes)
    sizes = _resolve_sizes(wishes, max_num_tokens)
    memory_bytes = wishes.settle_or(
        "graph_memory_bytes",
        budget_bytes // SHARE_OF_MEMORY,
        CORE,
        "a twentieth of what the engine may use",
        is_default=True,
    )
    without = "enforce_eager" if enforce_eager else ""
    if level is GraphLevel.NONE:
        without = without or "graph_level=none"
    elif level is not None and enforce_eager:
        wishes.refuse(
            f"enforce_eager allows no graph, and graph_level={level.value} was asked for. Leave "
            "one of them out.",
            of="graph_level",
        )
        level = None
    if without and wishes.is_explicit("graph_memory_bytes"):
        wishes.refuse(
            f"{without} allows no graph, and graph_memory_bytes={memory_bytes} was asked for. "
            "Leave one of them out.",
            of="graph_memory_bytes",
        )
    if sizes and without:
        wishes.refuse(
            f"{without} allows no graph, and graph_sizes={_listed(sizes)} was asked for. Leave one "
            "of them out.",
            of="graph_sizes",
        )
        sizes = ()
    return GraphConfig(level=level, sizes=sizes, memory_bytes=memory_bytes)


def parse_sizes(text: str) -> tuple[int, ...] | None:
    """Whole numbers from 1 between commas, ascending, each once; ``None``: it is something else."""
    parts = [part.strip() for part in text.split(",")]
    if not all(part.isascii() and part.isdigit() and int(part) > 0 for part in parts):
        return None
    sizes = tuple(sorted(map(int, parts)))
    return sizes if len(set(sizes)) == len(sizes) else None


def _resolve_level(wishes: Wishes) -> GraphLevel | None:
    reason = "as much as device and attention allow"
    asked = wishes.settle_or("graph_level", None, CORE, reason, is_default=True)
    if asked is None:
        return None
    levels = tuple(level.value for level in GraphLevel)
    if asked not in levels:
        wishes.refuse(
            f"graph_level={asked} is none of {', '.join(levels)}. Use one of those, or leave it "
            "unset.",
            of="graph_level",
        )
        wishes.drop("graph_level")
        return None
    return GraphLevel(asked)


def _resolve_sizes(wishes: Wishes, max_num_tokens: int) -> tuple[int, ...]:
    reason = "each twice the one before"
    asked = wishes.settle_or("graph_sizes", None, CORE, reason, is_default=True)
    if asked is None:
        return ()
    sizes = parse_sizes(str(asked))
    if sizes is None:
        wishes.refuse(
            f"graph_sizes={asked} is no list of token counts: write whole numbers from 1 between "
            "commas, each once (1,2,4,8).",
            of="graph_sizes",
        )
    elif sizes[-1] > max_num_tokens:
        wishes.refuse(
            f"graph_sizes={asked}: no step has {sizes[-1]} tokens, since max_num_batched_tokens is "
            f"{max_num_tokens}. Leave out what is larger.",
            of="graph_sizes",
        )
    else:
        return sizes
    wishes.drop("graph_sizes")
    return ()


def _listed(sizes: tuple[int, ...]) -> str:
    return ",".join(map(str, sizes))

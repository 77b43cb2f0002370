"""Bytes available → number of blocks."""

from __future__ import annotations

from dataclasses import dataclass

from dougong.errors import ConfigError

GIB = 1024**3


@dataclass(frozen=True, slots=True)
class PoolSize:
    """A pool that fits.

    Attributes:
        num_blocks: Blocks, the reserved ones included.
        num_bytes: What they take.
        num_token_slots: Tokens that fit at once.
        reason: How the size came about, for the list of decisions.
    """

    num_blocks: int
    num_bytes: int
    num_token_slots: int
    reason: str


def resolve_pool_size(
    *,
    available_bytes: int,
    block_bytes: int,
    block_size: int,
    asked_blocks: int | None = None,
    asked_bytes: int | None = None,
    reserved_blocks: int = 0,
    num_groups: int = 1,
    useful_token_slots: int | None = None,
    most_blocks: int | None = None,
) -> PoolSize:
    """How many blocks the KV cache gets.

    Args:
        available_bytes: Memory left for the KV cache, after weights, activations and workspaces.
        block_bytes: Bytes of one block over all its layers, alignment included.
        block_size: Tokens per block.
        asked_blocks: The user's number of blocks; at most one of the two ``asked`` is given.
        asked_bytes: The user's size of the KV cache.
        reserved_blocks: Blocks the KV layout keeps for itself.
        num_groups: KV cache groups drawing from the pool.
        useful_token_slots: More than this can never be in use (``max_num_seqs * max_model_len``);
            an automatic size stops there.
        most_blocks: Blocks whose slots can be numbered; an automatic size stops there too.

    Raises:
        ConfigError: An explicit size is above the memory available (the message has both
            numbers), or not even one token fits.
    """
    assert asked_blocks is None or asked_bytes is None, "one explicit size, not two"
    if asked_blocks is not None:
        num_blocks, reason = asked_blocks, f"num_blocks={asked_blocks} was asked for"
        wanted = f"num_blocks={asked_blocks} takes {_gib(asked_blocks * block_bytes)}"
        _check_fits(wanted, asked_blocks * block_bytes, available_bytes)
    elif asked_bytes is not None:
        num_blocks, reason = asked_bytes // block_bytes, f"{_gib(asked_bytes)} was asked for"
        wanted = f"A KV cache of {_gib(asked_bytes)} was asked for"
        _check_fits(wanted, asked_bytes, available_bytes)
    else:
        num_blocks, reason = _automatic_blocks(
            max(0, available_bytes) // block_bytes,
            None
            if useful_token_slots is None
            else reserved_blocks + -(-useful_token_slots // block_size) * num_groups,
            f"{_gib(available_bytes)} available",
        )
        if most_blocks is not None and num_blocks > most_blocks:
            num_blocks = most_blocks
            reason = f"all that slots can number, of {_gib(available_bytes)} available"
    slots = max(0, num_blocks - reserved_blocks) // num_groups * block_size
    if not slots:
        raise ConfigError(
            f"{num_blocks} KV cache blocks of {_gib(block_bytes)} hold no token: {reserved_blocks} "
            f"are reserved and one token needs {num_groups}; {_gib(available_bytes)} is available. "
            "Free memory, use a smaller model or a narrower KV dtype."
        )
    size = PoolSize(num_blocks, num_blocks * block_bytes, slots, reason)
    assert size.num_bytes <= available_bytes, f"{size} is above {available_bytes} bytes"
    return size


def _automatic_blocks(fitting: int, useful: int | None, available: str) -> tuple[int, str]:
    if useful is not None and useful < fitting:
        return useful, f"all that max_num_seqs requests of max_model_len can use, of {available}"
    return fitting, f"all of {available}"


def _check_fits(wanted: str, num_bytes: int, available_bytes: int) -> None:
    if num_bytes > available_bytes:
        raise ConfigError(
            f"{wanted}, and {_gib(max(0, available_bytes))} is available "
            f"({num_bytes} bytes against {max(0, available_bytes)}). Ask for at most the second, "
            "or leave the size unset to have it chosen."
        )


def _gib(num_bytes: int) -> str:
    return f"{num_bytes / GIB:.3f} GiB"

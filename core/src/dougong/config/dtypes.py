"""Compute and KV dtype: obeyed or refused when asked for, else the nearest that is claimed."""

from __future__ import annotations

from dougong.config.decision import CHECKPOINT, platform_author
from dougong.config.wishes import Wishes
from dougong.contracts.capabilities import Claims
from dougong.contracts.kv_cache import dtype_bytes

_SHORT_NAMES = {
    "bf16": "bfloat16", "fp16": "float16", "half": "float16", "fp32": "float32",
    "float": "float32", "fp8": "float8_e4m3fn", "fp8_e4m3": "float8_e4m3fn",
    "fp8_e5m2": "float8_e5m2",
}  # fmt: skip


def resolve_dtype(wishes: Wishes, stored: str, claims: Claims, platform: str) -> str:
    """Compute dtype.

    Args:
        wishes: Asked values; the decision or the refusal is noted there.
        stored: Dtype of the checkpoint.
        claims: Of the device family.
        platform: Name, for the reasons.
    """
    author = platform_author(platform)
    asked = _resolve_asked(wishes, "dtype", claims.dtypes, platform)
    if asked is not None:
        return asked
    if stored in claims.dtypes:
        wishes.settle("dtype", stored, CHECKPOINT, "dtype of the checkpoint", is_default=True)
        return stored
    chosen = claims.dtypes[0]
    wishes.settle(
        "dtype", chosen, author,
        f"the checkpoint is {stored}, which {_device(claims)} does not compute in; "
        f"{chosen} is what it prefers",
    )  # fmt: skip
    return chosen


def resolve_kv_dtype(wishes: Wishes, compute: str, claims: Claims, platform: str) -> str:
    """Dtype of the stored KV cache: as computed where the device can store that."""
    asked = _resolve_asked(wishes, "kv_cache_dtype", claims.kv_dtypes, platform)
    if asked is not None:
        return asked
    author = platform_author(platform)
    if compute in claims.kv_dtypes:
        wishes.settle(
            "kv_cache_dtype", compute, author, "same as the compute dtype", is_default=True
        )
        return compute
    chosen = claims.kv_dtypes[0]
    wishes.settle(
        "kv_cache_dtype", chosen, author, f"{_device(claims)} stores no KV cache in {compute}"
    )
    return chosen


def canonical_dtype(name: str) -> str:
    """A dtype's full name, whichever way it was written."""
    return _SHORT_NAMES.get(name, name)


def _resolve_asked(
    wishes: Wishes, name: str, claimed: tuple[str, ...], platform: str
) -> str | None:
    """What was asked for; ``None``: nothing, or nothing that is a dtype."""
    asked = wishes.get(name, str)
    if asked is None:
        return None
    dtype = canonical_dtype(asked)
    if not _is_known(dtype):
        wishes.refuse(
            f"{name}={asked} is not a dtype. Platform {platform} takes {', '.join(claimed)}.",
            of=name,
        )
        wishes.drop(name)
        return None
    if dtype not in claimed:
        wishes.doubt(
            f"{name}={asked} is not supported by platform {platform} on this device, which "
            f"takes {', '.join(claimed)}. Use one of those, or leave {name} unset.",
            of=name,
        )
    wishes.settle_asked(name, dtype)
    return dtype


def _is_known(dtype: str) -> bool:
    try:
        dtype_bytes(dtype)
    except ValueError:
        return False
    return True


def _device(claims: Claims) -> str:
    return f"a device of family {claims.arch}" if claims.arch else "this device"

"""What types cannot say of a capability file that somebody may have written by hand."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from typing import Any

from dougong.contracts import CONTRACT_VERSION, AttentionLimits
from dougong.describe.capability_form import StoredFile
from dougong.describe.declared_backend import DeclaredAttention
from dougong.describe.declared_layout import dtype_problems, layout_problems

MOST_NESTED = 32
"""Far more than the form has; data that is deeper is no such file."""

_VERSION = re.compile(r"(\d{1,6})\.\d{1,6}(\.\d{1,6})?")


def is_too_deep(plain: Any) -> bool:
    """Whether data is nested more than `MOST_NESTED` levels."""
    level = [plain]
    for _ in range(MOST_NESTED):
        level = [inner for one in level for inner in _inside(one)]
        if not level:
            return False
    return True


def _inside(plain: Any) -> Iterator[Any]:
    if isinstance(plain, dict):
        yield from plain.values()
    elif isinstance(plain, list):
        yield from plain


def value_problems(file: StoredFile) -> Iterator[str]:
    """Every value that cannot be, with its place."""
    yield from _contract_problems(file.contract)
    yield from _empty_names(file)
    yield from _claimed_lists(file)
    if file.claims.slot_dtype not in ("int64", "int32"):
        yield f"claims.slot_dtype is {file.claims.slot_dtype!r}; int64 or int32"
    yield from _rate_problems(file)
    for place, least, value in _whole_numbers(file):
        if value is not None and value < least:
            yield f"{place} is {value}; it must be at least {least}"
    for name, declared in file.attention.items():
        yield from _attention_problems(declared, f"attention.{name}")


def _contract_problems(contract: str) -> Iterator[str]:
    match = _VERSION.fullmatch(contract)
    if match is None:
        yield f"contract is {contract!r}; write a version, as in {CONTRACT_VERSION!r}"
    elif match[1] != CONTRACT_VERSION.partition(".")[0]:
        yield (
            f"contract is {contract!r}, and this dougong has contract {CONTRACT_VERSION}: the same "
            "words mean other things there. Make the file again with a dougong of this contract"
        )


def _empty_names(file: StoredFile) -> Iterator[str]:
    places: dict[str, str] = {"platform": file.platform, "facts.name": file.facts.name}
    if file.kernels is not None:
        loaded = enumerate(file.kernels.loaded)
        places |= {f"kernels.loaded[{index}]": library for index, library in loaded}
        places |= {f"kernels.missing.{name}": why for name, why in file.kernels.missing.items()}
    quantization = enumerate(file.quantization)
    places |= {f"quantization[{index}].format": one.format for index, one in quantization}
    yield from (f"{place} is empty" for place, value in places.items() if not value.strip())
    groups: dict[str, Mapping[str, object]] = {
        "kernels.missing": file.kernels.missing if file.kernels else {},
        "attention": file.attention,
        "environment": file.environment,
    }
    for place, group in groups.items():
        if not all(name.strip() for name in group):
            yield f"{place} has an empty name in it"


def _claimed_lists(file: StoredFile) -> Iterator[str]:
    for name in ("dtypes", "kv_dtypes", "kv_block_sizes"):
        if not getattr(file.claims, name):
            yield f"claims.{name} is empty; it names at least one"
    for name in ("dtypes", "kv_dtypes"):
        for index, dtype in enumerate(getattr(file.claims, name)):
            yield from dtype_problems(dtype, f"claims.{name}[{index}]")


def _rate_problems(file: StoredFile) -> Iterator[str]:
    rates: dict[str, float | None] = {
        "claims.memory_bandwidth": file.claims.memory_bandwidth,
        "facts.memory_bandwidth": file.facts.memory_bandwidth,
    }
    rates |= {f"claims.compute_rate.{name}": one for name, one in file.claims.compute_rate.items()}
    for place, rate in rates.items():
        if rate is not None and not (math.isfinite(rate) and rate > 0):
            yield f"{place} is {rate:g}; it must be above 0"


def _whole_numbers(file: StoredFile) -> Iterator[tuple[str, int, int | None]]:
    """Place, least value, value."""
    claims, facts = file.claims, file.facts
    yield from _each("claims.kv_block_sizes", claims.kv_block_sizes)
    yield "claims.kv_alignment_bytes", 1, claims.kv_alignment_bytes
    yield "claims.max_head_size", 1, claims.max_head_size
    yield "claims.max_steps_in_flight", 1, claims.max_steps_in_flight
    yield "facts.device_index", 0, facts.device_index
    yield "facts.memory_total_bytes", 1, facts.memory_total_bytes
    yield "facts.memory_free_bytes", 0, facts.memory_free_bytes
    yield "facts.memory_quota_bytes", 1, facts.memory_quota_bytes
    yield "facts.num_compute_units", 0, facts.num_compute_units
    if file.graph is not None:
        yield from _each("graph.sizes", file.graph.sizes)
        yield "graph.max_graphs", 0, file.graph.max_graphs


def _each(place: str, values: tuple[int, ...]) -> Iterator[tuple[str, int, int | None]]:
    yield from ((f"{place}[{index}]", 1, value) for index, value in enumerate(values))


def _attention_problems(declared: DeclaredAttention, place: str) -> Iterator[str]:
    for name in ("workspace_bytes", "workspace_bytes_per_token"):
        if getattr(declared, name) < 0:
            yield f"{place}.{name} is {getattr(declared, name)}; it must be at least 0"
    if declared.library is not None and not declared.library.strip():
        yield f"{place}.library is empty"
    if declared.limits is not None:
        yield from _limits_problems(declared.limits, f"{place}.limits")
    for index, layout in enumerate(declared.layouts):
        yield from layout_problems(layout, f"{place}.layouts[{index}]")


def _limits_problems(limits: AttentionLimits, place: str) -> Iterator[str]:
    for name in ("dtypes", "phases"):
        if not getattr(limits, name):
            yield f"{place}.{name} is empty; it names at least one"
    for dtype in sorted(limits.dtypes | limits.kv_dtypes):
        which = "dtypes" if dtype in limits.dtypes else "kv_dtypes"
        yield from dtype_problems(dtype, f"{place}.{which}")
    numbers: list[tuple[str, int, int | None]] = [
        *_each(f"{place}.block_sizes", limits.block_sizes),
        *((f"{place}.head_sizes", 1, size) for size in sorted(limits.head_sizes)),
        (f"{place}.head_size_multiple", 1, limits.head_size_multiple),
        (f"{place}.max_head_size", 1, limits.max_head_size),
    ]
    for where, least, value in numbers:
        if value is not None and value < least:
            yield f"{where} is {value}; it must be at least {least}"

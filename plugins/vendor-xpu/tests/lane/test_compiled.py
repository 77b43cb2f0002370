"""The attention kernels that the wheel holds are those that `dougong_xpu.compiled` says."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest

from dougong_xpu import compiled
from tests.shown import shows
from tools.elf import read_library

pytestmark = pytest.mark.lane

Kernel = tuple[int, int, int]
LIBRARIES = ("libattn_kernels_xe_2.so", "libattn_kernels_xe_3.so")

_DECODE = re.compile(
    r"decode_policy_qpacked_head<cute::C<(\d+)>, cute::C<(\d+)>, cute::C<(\d+)> ?>, "
    r"((?:true|false|, )+)>"
)
"""Group of query heads, head size, tile of keys; causal, local, sink, and for Xe3 one flag more."""

_PREFILL = re.compile(rb"chunk_policy_head(\d+)_b16_tt([tf]{2})f")
"""Head size; paged, causal, two flags of which one is local and one sink, and no log-sum."""


def _decode(library: Path) -> dict[str, set[Kernel]]:
    """Causal, local, sink, and what else there is, as ``t`` and ``f`` → group, head size, tile."""
    mangled = "\n".join(name for name in read_library(library).defined if "decode_policy" in name)
    done = subprocess.run(["c++filt"], input=mangled, capture_output=True, text=True, check=True)
    found: dict[str, set[Kernel]] = {}
    for group, head, tile, flags in _DECODE.findall(done.stdout):
        key = "".join(flag[0] for flag in flags.split(", "))
        found.setdefault(key, set()).add((int(group), int(head), int(tile)))
    return found


def _always(
    decode: Mapping[str, set[tuple[int, int, int]]], flags: str
) -> set[tuple[int, int, int]]:
    """Kernels that are there whatever the flags behind these are."""
    return set.intersection(*(found for key, found in decode.items() if key.startswith(flags)))


def _prefill(library: Path) -> dict[str, set[int]]:
    """The two flags that may be local and sink → head sizes."""
    found: dict[str, set[int]] = {}
    for head, flags in _PREFILL.findall(library.read_bytes()):
        found.setdefault(flags.decode(), set()).add(int(head))
    return found


@pytest.mark.parametrize("name", LIBRARIES)
def test_the_stated_kernels_are_in_the_wheel(name: str, kernels: Path) -> None:
    what = f"the attention kernels that the plugin offers are all in {name} of vllm-xpu-kernels"
    with shows("beside", what, "xpu") as said:
        decode, prefill = _decode(kernels / name), _prefill(kernels / name)
        said.details["decode"] = {flags: sorted(found) for flags, found in sorted(decode.items())}
        said.details["prefill"] = {flags: sorted(found) for flags, found in sorted(prefill.items())}
        assert _always(decode, "fff") >= compiled.DECODE
        assert _always(decode, "ftf") >= compiled.DECODE_WINDOW
        assert prefill["ff"] >= compiled.PREFILL
        assert prefill["tf"] & prefill["ft"] >= compiled.PREFILL_WINDOW


def test_a_kernel_that_is_not_there_is_found(kernels: Path) -> None:
    decode = _decode(kernels / LIBRARIES[0])
    assert not _always(decode, "fff") >= compiled.DECODE | {(8, 80, 64)}
    assert not _always(decode, "ftf") >= compiled.DECODE

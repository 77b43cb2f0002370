"""What instructions this processor certainly has, as named features.

``isa.*`` are sets of vector instructions, ``mm.DTYPE.*`` instructions that multiply and add that
dtype faster than widening it would. Those named ``amx`` exist and still have to be asked for, once
per process, by whoever uses them.
"""

from __future__ import annotations

import platform
from pathlib import Path

_CPUINFO = Path("/proc/cpuinfo")

# Feature name -> the kernel's flag names that must all be present.
_REQUIRED_FLAGS: dict[str, frozenset[str]] = {
    "isa.avx2": frozenset({"avx2", "fma", "f16c"}),
    "isa.avx512f": frozenset({"avx512f", "avx512bw", "avx512dq", "avx512vl"}),
    "mm.bf16.avx512": frozenset({"avx512f", "avx512bw", "avx512vl", "avx512_bf16"}),
    "mm.bf16.amx": frozenset({"amx_tile", "amx_bf16"}),
    "mm.fp16.avx512": frozenset({"avx512_fp16"}),
    "mm.int8.avx_vnni": frozenset({"avx_vnni"}),
    "isa.avx512vbmi": frozenset({"avx512f", "avx512bw", "avx512vl", "avx512vbmi"}),
    "mm.int8.vnni": frozenset({"avx512f", "avx512bw", "avx512vl", "avx512_vnni"}),
    "mm.int8.amx": frozenset({"amx_tile", "amx_int8"}),
    "mm.fp16.amx": frozenset({"amx_tile", "amx_fp16"}),
    "isa.neon": frozenset({"asimd"}),
    "isa.sve": frozenset({"asimd", "sve"}),
    "isa.sve2": frozenset({"asimd", "sve", "sve2"}),
    "mm.fp16.neon": frozenset({"asimd", "asimdhp"}),
    "mm.bf16.neon": frozenset({"asimd", "bf16"}),
    "mm.int8.dot.neon": frozenset({"asimd", "asimddp"}),
    "mm.int8.neon": frozenset({"asimd", "i8mm"}),
}


def parse_features(cpuinfo: str) -> frozenset[str]:
    """Features every processor of a ``/proc/cpuinfo`` text has; a core that lacks one denies it.

    The kernel lists a flag only where it also saves the registers the instruction needs.
    """
    flag_sets = [
        frozenset(value.split())
        for name, _, value in (line.partition(":") for line in cpuinfo.splitlines())
        if name.strip().lower() in ("flags", "features")
    ]
    if not flag_sets:
        return frozenset()
    flags = frozenset.intersection(*flag_sets)
    return frozenset(name for name, needed in _REQUIRED_FLAGS.items() if needed <= flags)


def detect_features() -> frozenset[str]:
    """Features of this machine; empty where they cannot be read without running a probe."""
    if platform.system() != "Linux":
        return frozenset()
    try:
        return parse_features(_CPUINFO.read_text())
    except OSError:
        return frozenset()

"""Kernels in Triton that any vendor's plugin may call: one source for every compiler.

Import the launchers from their modules: `attention`, `kv_cache`, `norm`, `rotary`, `activation`.
They import torch; triton is imported where a kernel is first called. This package itself imports
neither.
"""

from __future__ import annotations

__version__ = "0.1.0"

"""The kernels themselves. Importing a module in here imports triton."""

from __future__ import annotations

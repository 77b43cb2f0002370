"""The older kernel library, ``intel-extension-for-pytorch``, behind two names.

Its development has ended: 2.8, for torch 2.8, is its last version, and the core needs a newer torch
(`dougong_xpu.providers.extension_refusal`). So no engine runs on it; its kernels are held against
their meaning where it is installed alone.
"""

from __future__ import annotations

import importlib
from typing import Any

functional: Any = None
"""``intel_extension_for_pytorch.llm.functional``, once it is loaded."""

paged: Any = None
"""``intel_extension_for_pytorch.llm.modules.PagedAttention``, once it is loaded."""


def load() -> str:
    """Import it and bind the names.

    Returns:
        Why it cannot be used; empty: it can.
    """
    global functional, paged
    package = "intel_extension_for_pytorch"
    try:
        modules = importlib.import_module(f"{package}.llm.modules")
        functional = importlib.import_module(f"{package}.llm.functional")
    except (ImportError, OSError, AttributeError) as error:  # it ends a wrong torch by os.exit
        return f"it cannot be loaded beside this torch: {error}"
    paged = modules.PagedAttention
    return ""

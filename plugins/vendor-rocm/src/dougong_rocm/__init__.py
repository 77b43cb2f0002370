"""AMD GPUs as a platform of Dougong.

Importing this package imports neither torch nor the vendor's runtime.
"""

from __future__ import annotations

__version__ = "0.1.0"

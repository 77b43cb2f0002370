"""The conformance suite: what a platform plugin can be trusted with, and with what evidence."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version

try:
    __version__ = version("dougong-conformance")
except PackageNotFoundError:  # a source folder on the path
    __version__ = "0+unknown"

SPEC_VERSION = "1.0"
"""Minor version of the specification that this suite judges by."""

__all__ = ["SPEC_VERSION", "__version__"]

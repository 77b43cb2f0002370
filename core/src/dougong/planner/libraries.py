"""Kernel libraries: which of them are usable, as far as anybody has tried."""

from __future__ import annotations

from dougong.contracts import KernelReport


def library_name(entry: str) -> str:
    """A library's name, of an entry of `KernelReport.loaded` that has its version too."""
    return entry.split()[0]


def loaded_names(report: KernelReport | None) -> frozenset[str] | None:
    """Names of the usable libraries, without versions; ``None``: nobody has tried."""
    return None if report is None else frozenset(map(library_name, report.loaded))


def library_problem(library: str | None, report: KernelReport | None) -> str:
    """Why a kernel library is not usable; empty where it is, or where nobody has tried."""
    loaded = loaded_names(report)
    if library is None or report is None or loaded is None or library in loaded:
        return ""
    return f"needs {library}: {report.missing.get(library, 'it was not loaded')}"

"""How much memory there really is: the machine's, or a control group's limit below it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

# A version-1 group without a limit says a huge number, rounded to pages, instead of nothing.
_UNLIMITED_V1 = 1 << 60


@dataclass(frozen=True, slots=True)
class HostMemory:
    """Memory in bytes.

    Attributes:
        total_bytes: Of the machine.
        free_bytes: What can be had without swapping, within the quota if there is one.
        quota_bytes: The tightest limit of a control group around this process; ``None``: none.
        quota_source: The file it was read from.
    """

    total_bytes: int
    free_bytes: int
    quota_bytes: int | None = None
    quota_source: str = ""

    @property
    def limit_bytes(self) -> int:
        """What counts."""
        if self.quota_bytes is None:
            return self.total_bytes
        return min(self.total_bytes, self.quota_bytes)


def read_memory(root: Path = Path("/")) -> HostMemory:
    """Read the machine's memory and every control group limit from this process's group upwards.

    Args:
        root: Where ``proc`` and ``sys`` lie.
    """
    info = _meminfo(root / "proc/meminfo")
    total, free = info.get("MemTotal", 0), info.get("MemAvailable", 0)
    limits = [*_limits_v2(root), *_limits_v1(root)]
    if not limits:
        return HostMemory(total, free)
    # The tightest limit need not be the fullest: a group further up may have less left.
    left = min(limit - used for limit, used, _ in limits)
    quota, _, source = min(limits, key=lambda limit: limit[0])
    if quota >= total:
        return HostMemory(total, free)
    return HostMemory(total, max(0, min(free, left)), quota, source)


def resident_bytes(root: Path = Path("/")) -> int:
    """Anonymous memory of this process: what it cannot give back."""
    status = _meminfo(root / "proc/self/status")
    return status.get("RssAnon", 0) + status.get("RssShmem", 0)


def _meminfo(path: Path) -> dict[str, int]:
    values = {}
    try:
        for line in path.read_text().splitlines():
            name, _, rest = line.partition(":")
            fields = rest.split()
            if len(fields) == 2 and fields[1] == "kB":
                values[name] = int(fields[0]) * 1024
    except OSError:
        return {}
    return values


def _groups(root: Path) -> dict[str, str]:
    """Controller → path of this process's group; version 2 under the empty name."""
    found = {}
    try:
        for line in (root / "proc/self/cgroup").read_text().splitlines():
            _, controllers, path = line.split(":", 2)
            for controller in controllers.split(","):
                found[controller] = path.lstrip("/")
    except (OSError, ValueError):
        return {}
    return found


def _limits_v2(root: Path) -> list[tuple[int, int, str]]:
    names = _Files("memory.max", "memory.current", "inactive_file")
    return _limits_upwards(root / "sys/fs/cgroup", _groups(root).get(""), names)


def _limits_v1(root: Path) -> list[tuple[int, int, str]]:
    names = _Files("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")
    limits = _limits_upwards(root / "sys/fs/cgroup/memory", _groups(root).get("memory"), names)
    return [limit for limit in limits if limit[0] < _UNLIMITED_V1]


@dataclass(frozen=True, slots=True)
class _Files:
    """Names of a group's files, and of the file cache that is given back when memory is wanted."""

    limit: str
    usage: str
    reclaimable: str


def _limits_upwards(mount: Path, group: str | None, names: _Files) -> list[tuple[int, int, str]]:
    """``(limit, bytes in use, file)`` of the group and of all above it.

    Inside a container the group's own path may not exist under the mount, whose root is then the
    container's group.
    """
    if group is None:
        return []
    folders = [mount]
    for part in Path(group).parts:
        folders.append(folders[-1] / part)
    found = []
    for folder in folders:
        limit = _number(folder / names.limit)
        if limit is not None:
            # A model file that was just read counts as use, but makes way for anything else.
            cached = _statistics(folder / "memory.stat").get(names.reclaimable, 0)
            used = max(0, (_number(folder / names.usage) or 0) - cached)
            found.append((limit, used, str(folder / names.limit)))
    return found


def _statistics(path: Path) -> dict[str, int]:
    try:
        rows = [line.split() for line in path.read_text().splitlines()]
    except OSError:
        return {}
    return {row[0]: int(row[1]) for row in rows if len(row) == 2 and row[1].isdigit()}


def _number(path: Path) -> int | None:
    try:
        return int(path.read_text())
    except (OSError, ValueError):  # absent, or "max"
        return None

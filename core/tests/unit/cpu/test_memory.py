"""Memory limits as containers state them: version 2, version 1, none, and "unlimited"."""

from __future__ import annotations

from pathlib import Path

import pytest

from dougong.cpu.memory import read_memory

GIB = 1 << 30
MACHINE_KB = 24 * GIB // 1024


def machine(root: Path, cgroup: str, files: dict[str, str]) -> Path:
    texts = {
        "proc/meminfo": f"MemTotal: {MACHINE_KB} kB\nMemAvailable: {MACHINE_KB // 2} kB\n",
        "proc/self/cgroup": cgroup,
        **files,
    }
    for name, text in texts.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return root


@pytest.mark.parametrize(
    ("cgroup", "folder", "limit_name", "usage_name"),
    [
        ("0::/a/b\n", "sys/fs/cgroup/a", "memory.max", "memory.current"),
        ("0::/a/b\n", "sys/fs/cgroup/a/b", "memory.max", "memory.current"),
        ("0::/elsewhere\n", "sys/fs/cgroup", "memory.max", "memory.current"),
        (
            "5:memory:/a\n",
            "sys/fs/cgroup/memory/a",
            "memory.limit_in_bytes",
            "memory.usage_in_bytes",
        ),
        (
            "5:memory:/elsewhere\n",
            "sys/fs/cgroup/memory",
            "memory.limit_in_bytes",
            "memory.usage_in_bytes",
        ),
    ],
)
def test_a_limit_of_this_group_or_above_counts(
    tmp_path: Path, cgroup: str, folder: str, limit_name: str, usage_name: str
) -> None:
    root = machine(
        tmp_path,
        cgroup,
        {f"{folder}/{limit_name}": f"{2 * GIB}\n", f"{folder}/{usage_name}": f"{GIB // 2}\n"},
    )
    memory = read_memory(root)
    assert memory.total_bytes == 24 * GIB
    assert memory.quota_bytes == 2 * GIB
    assert memory.limit_bytes == 2 * GIB
    assert memory.free_bytes == 2 * GIB - GIB // 2
    assert memory.quota_source.endswith(limit_name)


@pytest.mark.parametrize(
    ("cgroup", "files"),
    [
        ("0::/a\n", {"sys/fs/cgroup/a/memory.max": "max\n"}),
        ("0::/a\n", {}),
        ("5:memory:/a\n", {"sys/fs/cgroup/memory/a/memory.limit_in_bytes": "9223372036854771712"}),
        ("0::/a\n", {"sys/fs/cgroup/a/memory.max": f"{64 * GIB}\n"}),
    ],
)
def test_without_a_limit_that_binds_it_is_as_on_bare_metal(
    tmp_path: Path, cgroup: str, files: dict[str, str]
) -> None:
    memory = read_memory(machine(tmp_path, cgroup, files))
    assert memory.quota_bytes is None
    assert memory.limit_bytes == 24 * GIB
    assert memory.free_bytes == 12 * GIB


def test_the_tightest_of_several_limits_counts(tmp_path: Path) -> None:
    files = {
        "sys/fs/cgroup/a/memory.max": f"{2 * GIB}",
        "sys/fs/cgroup/a/b/memory.max": f"{3 * GIB}",
    }
    assert read_memory(machine(tmp_path, "0::/a/b\n", files)).quota_bytes == 2 * GIB


@pytest.mark.parametrize(
    ("cgroup", "folder", "usage_name", "limit_name", "cached"),
    [
        ("0::/a\n", "sys/fs/cgroup/a", "memory.current", "memory.max", "inactive_file"),
        (
            "5:memory:/a\n",
            "sys/fs/cgroup/memory/a",
            "memory.usage_in_bytes",
            "memory.limit_in_bytes",
            "total_inactive_file",
        ),
    ],
)
def test_file_cache_that_makes_way_counts_as_free(
    tmp_path: Path, cgroup: str, folder: str, usage_name: str, limit_name: str, cached: str
) -> None:
    files = {
        f"{folder}/{limit_name}": f"{2 * GIB}",
        f"{folder}/{usage_name}": f"{2 * GIB}",
        f"{folder}/memory.stat": f"anon 5\n{cached} {GIB}\n",
    }
    assert read_memory(machine(tmp_path, cgroup, files)).free_bytes == GIB


def test_what_is_left_is_that_of_the_fullest_group_above(tmp_path: Path) -> None:
    files = {
        "sys/fs/cgroup/a/memory.max": f"{4 * GIB}",
        "sys/fs/cgroup/a/memory.current": f"{3 * GIB}",
        "sys/fs/cgroup/a/b/memory.max": f"{2 * GIB}",
        "sys/fs/cgroup/a/b/memory.current": "0",
    }
    memory = read_memory(machine(tmp_path, "0::/a/b\n", files))
    assert memory.quota_bytes == 2 * GIB
    assert memory.free_bytes == GIB

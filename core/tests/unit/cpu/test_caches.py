from __future__ import annotations

from pathlib import Path

from dougong.cpu.caches import read_caches


def _cache(root: Path, index: int, level: str, kind: str, size: str, line: str = "64") -> None:
    folder = root / f"sys/devices/system/cpu/cpu0/cache/index{index}"
    folder.mkdir(parents=True)
    entries = {"level": level, "type": kind, "size": size, "coherency_line_size": line}
    for name, text in entries.items():
        (folder / name).write_text(f"{text}\n")


def test_each_level_is_a_named_limit_in_bytes(tmp_path: Path) -> None:
    _cache(tmp_path, 0, "1", "Data", "48K")
    _cache(tmp_path, 1, "1", "Instruction", "32K")
    _cache(tmp_path, 2, "2", "Unified", "2048K")
    _cache(tmp_path, 3, "3", "Unified", "105M")
    assert read_caches(tmp_path) == {
        "cpu.cache_line_bytes": 64,
        "cpu.l1d_bytes": 49152,
        "cpu.l2_bytes": 2 << 20,
        "cpu.l3_bytes": 105 << 20,
    }


def test_what_the_kernel_does_not_state_is_left_out(tmp_path: Path) -> None:
    assert read_caches(tmp_path) == {}
    _cache(tmp_path, 0, "2", "Unified", "", line="")
    assert read_caches(tmp_path) == {}

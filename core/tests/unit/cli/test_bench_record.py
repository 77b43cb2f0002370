from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from dougong.cli.bench_record import BenchRecord, check_comparable, compare, load_record
from dougong.errors import ConfigError

RECORD = BenchRecord(
    workload={"kind": "throughput", "num_requests": 3},
    platform="null",
    dtype="float32",
    results={"output_tokens_per_s": 10.0, "total_s": 2.0, "num_steps": 4.0},
    memory={"peak_host_bytes": 100},
    versions={"dougong": "0.1.0"},
    decisions={"block_size": 16},
)


def test_a_record_survives_the_disk(tmp_path: Path) -> None:
    RECORD.save(tmp_path / "r.json")
    assert load_record(tmp_path / "r.json") == RECORD


@pytest.mark.parametrize("content", ["", "[]", "{}", '{"format": "other"}'])
def test_another_file_is_refused(tmp_path: Path, content: str) -> None:
    path = tmp_path / "r.json"
    path.write_text(content)
    with pytest.raises(ConfigError, match=r"r\.json"):
        load_record(path)


def test_a_missing_file_and_an_unwritable_place_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="--against"):
        load_record(tmp_path / "none.json")
    with pytest.raises(ConfigError, match="--save"):
        RECORD.save(tmp_path / "none" / "r.json")


def test_different_work_is_refused_with_every_difference() -> None:
    other = {"kind": "latency", "num_requests": 5}
    with pytest.raises(ConfigError) as caught:
        check_comparable(other, RECORD, Path("r.json"))
    assert len(caught.value.problems) == 2


def test_a_ratio_is_now_over_earlier_and_knows_which_way_is_better() -> None:
    now = replace(
        RECORD,
        results={"output_tokens_per_s": 20.0, "total_s": 3.0, "num_steps": 5.0, "new_s": 1.0},
        memory={"peak_host_bytes": 50},
    )
    rows = {row.name: row for row in compare(now, RECORD)}
    assert rows["output_tokens_per_s"].ratio == 2.0
    assert rows["output_tokens_per_s"].is_better is True
    assert rows["total_s"].is_better is False
    assert rows["peak_host_bytes"].is_better is True
    assert rows["num_steps"].is_better is None
    assert "new_s" not in rows

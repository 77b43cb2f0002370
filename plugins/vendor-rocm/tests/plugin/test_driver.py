from __future__ import annotations

from pathlib import Path

import pytest
from dougong.contracts import ConfigError

from dougong_rocm.topology import arch_of, driver_version, read_gpus
from tests.plugin.machine import GIB, TWO_CARDS, Card, build

FOUR = tuple(Card(serial=serial) for serial in (0xA0, 0xA1, 0xB0, 0xC0))


@pytest.mark.parametrize(
    ("target", "arch"),
    [
        (90402, "gfx942"),
        (90010, "gfx90a"),
        (90500, "gfx950"),
        (110000, "gfx1100"),
        (110001, "gfx1101"),
        (120001, "gfx1201"),
    ],
)
def test_a_target_version_is_named_as_compilers_name_it(target: int, arch: str) -> None:
    assert arch_of(target) == arch


def test_gpus_are_listed_in_the_drivers_order_without_hosts(tmp_path: Path) -> None:
    machine = build(tmp_path)
    first, second = machine.all_gpus()
    assert (first.node, first.arch, first.uuid) == (1, "gfx942", "GPU-000000000000000a")
    assert (second.node, second.arch) == (2, "gfx90a")
    assert (first.memory_bytes, first.memory_used_bytes) == (64 * GIB, GIB)
    assert first.num_compute_units == 304
    assert driver_version(tmp_path) == "6.12.12"


def test_ten_gpus_are_sorted_as_numbers(tmp_path: Path) -> None:
    build(tmp_path, [Card(serial=serial) for serial in range(1, 12)])
    assert [gpu.node for gpu in read_gpus(tmp_path)] == list(range(1, 12))


def test_a_gpu_that_a_container_may_not_use_is_left_out(tmp_path: Path) -> None:
    machine = build(tmp_path, (Card(serial=1, is_readable=False), Card(serial=2)))
    (gpu,) = machine.all_gpus()
    assert gpu.uuid.endswith("2")


def test_memory_without_a_card_is_what_the_banks_hold(tmp_path: Path) -> None:
    machine = build(tmp_path, (Card(has_drm=False),))
    (gpu,) = machine.all_gpus()
    assert (gpu.memory_bytes, gpu.memory_used_bytes, gpu.uuid) == (64 * GIB, None, "")


def test_a_node_that_is_a_host_too_is_integrated(tmp_path: Path) -> None:
    (info,) = build(tmp_path, (Card(cpu_cores=24),)).list_devices()
    assert info.is_integrated


def test_partitions_of_one_gpu_are_told_apart(tmp_path: Path) -> None:
    machine = build(tmp_path, (Card(serial=5), Card(serial=5), Card(serial=5)))
    assert [gpu.uuid[-3:] for gpu in machine.all_gpus()] == ["005", "5/2", "5/3"]


@pytest.mark.parametrize(
    ("environment", "left"),
    [
        ({}, [0, 1, 2, 3]),
        ({"HIP_VISIBLE_DEVICES": "2,0"}, [2, 0]),
        ({"CUDA_VISIBLE_DEVICES": "3"}, [3]),
        ({"HIP_VISIBLE_DEVICES": "1", "CUDA_VISIBLE_DEVICES": "1"}, [1]),
        ({"GPU_DEVICE_ORDINAL": "1,2"}, [1, 2]),
        ({"ROCR_VISIBLE_DEVICES": "3,1"}, [3, 1]),
        ({"ROCR_VISIBLE_DEVICES": "3,1", "HIP_VISIBLE_DEVICES": "1,0"}, [1, 3]),
        ({"HIP_VISIBLE_DEVICES": "GPU-00000000000000c0, 0"}, [3, 0]),
        ({"ROCR_VISIBLE_DEVICES": "gpu-00000000000000B0"}, [2]),
        ({"ROCR_VISIBLE_DEVICES": "GPU-00000000-0000-00a1"}, [1]),
        ({"HIP_VISIBLE_DEVICES": "-1"}, []),
    ],
)
def test_masks_are_followed_in_their_order(
    tmp_path: Path, environment: dict[str, str], left: list[int]
) -> None:
    machine = build(tmp_path, FOUR, environment)
    everything = machine.all_gpus()
    assert list(machine.gpus()) == [everything[index] for index in left]
    assert [info.index for info in machine.list_devices()] == list(range(len(left)))


@pytest.mark.parametrize(
    ("environment", "told"),
    [
        ({"HIP_VISIBLE_DEVICES": "0,4"}, "'4' names no device"),
        ({"HIP_VISIBLE_DEVICES": "0,0"}, "a second time"),
        ({"HIP_VISIBLE_DEVICES": "GPU-dead"}, "names no device"),
        ({"HIP_VISIBLE_DEVICES": "GPU-00000000000000a"}, "more than one"),
        ({"HIP_VISIBLE_DEVICES": "0,-1"}, "'-1' names no device"),
        ({"HIP_VISIBLE_DEVICES": ""}, "set to nothing"),
        ({"HIP_VISIBLE_DEVICES": "0", "CUDA_VISIBLE_DEVICES": "1"}, "disagree"),
        ({"ROCR_VISIBLE_DEVICES": "0,1", "HIP_VISIBLE_DEVICES": "2"}, "'2' names no device"),
        (
            {"ROCR_VISIBLE_DEVICES": "0", "HIP_VISIBLE_DEVICES": "GPU-00000000000000a0"},
            "torch refuses",
        ),
    ],
)
def test_a_mask_that_cannot_be_followed_is_refused(
    tmp_path: Path, environment: dict[str, str], told: str
) -> None:
    with pytest.raises(ConfigError, match=told):
        build(tmp_path, FOUR, environment).list_devices()


@pytest.mark.parametrize(
    ("is_there", "cards", "told"),
    [(False, TWO_CARDS, "no /dev/kfd"), (True, (), "lists no GPU"), (True, TWO_CARDS, "")],
)
def test_what_the_driver_lacks_is_told_with_what_to_do(
    tmp_path: Path, is_there: bool, cards: tuple[Card, ...], told: str
) -> None:
    machine = build(tmp_path, cards)
    if not is_there:
        (tmp_path / "dev" / "kfd").unlink()
    obstacle = machine.obstacle()
    assert obstacle.startswith(told) if not told else told in obstacle
    assert bool(obstacle) is bool(told)


def test_a_door_that_may_not_be_opened_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine = build(tmp_path)
    monkeypatch.setattr("os.access", lambda path, mode: False)
    assert "groups render and video" in machine.obstacle()

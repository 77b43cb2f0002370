from __future__ import annotations

import signal

import pytest

from dougong.engine.process_end import how_it_ended


@pytest.mark.parametrize(
    ("exit_code", "expected"),
    [
        (0, "pid 7) ended with exit code 0"),
        (3, "ended with exit code 3"),
        (None, "ended with exit code None"),
        (-signal.SIGKILL, "killed by signal 9 (SIGKILL)"),
        (-signal.SIGTERM, "killed by signal 15 (SIGTERM)"),
    ],
)
def test_the_end_is_named(exit_code: int | None, expected: str) -> None:
    assert expected in how_it_ended(7, exit_code)


def test_a_signal_without_a_name_is_told_by_its_number() -> None:
    number = signal.SIGRTMIN + 1
    assert f"killed by signal {number} (" in how_it_ended(7, -number)


def test_the_signal_of_a_system_out_of_memory_is_explained() -> None:
    assert "out of memory" in how_it_ended(7, -signal.SIGKILL)
    assert "out of memory" not in how_it_ended(7, -signal.SIGTERM)

from __future__ import annotations

from dougong.engine.step_times import StepTimes


def test_times_add_up() -> None:
    times = StepTimes()
    times.add(0.125, 3.0, 0.125)
    times.add(0.25, 4.0, 0.5)
    assert times.step_s == 8.0
    assert times.overhead_fraction == 0.125
    summary = times.summary()
    assert summary["num_steps"] == 2
    assert summary["median_model_s"] == 3.5
    assert summary["median_around_s"] == 0.5


def test_before_the_first_step_and_after_a_reset_all_is_zero() -> None:
    times = StepTimes()
    times.add(1.0, 1.0, 1.0)
    times.reset()
    assert times.overhead_fraction == 0.0
    assert set(times.summary().values()) == {0.0}

"""Numbers from seed and position: repeatable, spread, independent of each other."""

from __future__ import annotations

import numpy as np

from dougong.sampling import uniform_numbers


def test_a_number_depends_on_its_seed_and_position_alone() -> None:
    seeds, positions = np.array([7, 8, 7]), np.array([0, 0, 5])
    together = uniform_numbers(seeds, positions)
    for index in range(3):
        alone = uniform_numbers(seeds[index : index + 1], positions[index : index + 1])
        assert alone[0] == together[index]
    assert len(set(together.tolist())) == 3


def test_numbers_fill_the_unit_interval_evenly() -> None:
    count = 20_000
    for seeds, positions in (
        (np.zeros(count, np.int64), np.arange(count)),
        (np.arange(count), np.zeros(count, np.int64)),
    ):
        numbers = uniform_numbers(seeds, positions)
        assert numbers.dtype == np.float32
        assert numbers.min() >= 0
        assert numbers.max() < 1
        counts, _ = np.histogram(numbers, bins=20, range=(0, 1))
        # Each bin holds 1000 with a deviation of 31; five deviations.
        assert abs(counts - count / 20).max() < 155
        assert abs(np.corrcoef(numbers[:-1], numbers[1:])[0, 1]) < 0.03


def test_the_largest_seed_is_taken() -> None:
    assert 0 <= uniform_numbers(np.array([2**63 - 1]), np.array([2**31]))[0] < 1

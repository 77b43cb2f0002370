"""Where the time of each step goes: to the model, or to everything around it."""

from __future__ import annotations

import statistics
from collections import deque
from collections.abc import Mapping

WINDOW = 512  # its medians are asked for every second, between two steps: sorting more would show


class StepTimes:
    """Seconds per step, as sums since the last reset and as a window of the latest steps.

    Cheap enough to be always on: two additions to sums and one to a ring per step.

    Attributes:
        num_steps: Steps counted.
        schedule_s: Deciding what the steps compute.
        model_s: Forward and sampling, as the executor took.
        update_s: Taking in what was sampled.
    """

    __slots__ = ("_window", "model_s", "num_steps", "schedule_s", "update_s")

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        """Forget every step."""
        self.num_steps = 0
        self.schedule_s = 0.0
        self.model_s = 0.0
        self.update_s = 0.0
        self._window: deque[tuple[float, float]] = deque(maxlen=WINDOW)

    def add(self, schedule_s: float, model_s: float, update_s: float) -> None:
        """Count one step."""
        self.num_steps += 1
        self.schedule_s += schedule_s
        self.model_s += model_s
        self.update_s += update_s
        self._window.append((model_s, schedule_s + update_s))

    @property
    def step_s(self) -> float:
        """All of it."""
        return self.schedule_s + self.model_s + self.update_s

    @property
    def overhead_fraction(self) -> float:
        """Time outside the model over the whole, 0 to 1; 0 before the first step."""
        return (self.schedule_s + self.update_s) / self.step_s if self.step_s else 0.0

    def summary(self) -> Mapping[str, float]:
        """Sums, and medians over the window, by name; seconds."""
        model = [model for model, _ in self._window] or [0.0]
        around = [around for _, around in self._window] or [0.0]
        return {
            "num_steps": self.num_steps,
            "schedule_s": self.schedule_s,
            "model_s": self.model_s,
            "update_s": self.update_s,
            "step_s": self.step_s,
            "overhead_fraction": self.overhead_fraction,
            "median_model_s": statistics.median(model),
            "median_around_s": statistics.median(around),
        }

"""The work both schedulers get, and the stop watch around it. Standard library only."""

from __future__ import annotations

import argparse
import gc
import json
import os
import random
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from statistics import median
from typing import Any, NamedTuple, Protocol

PROMPT_LEN = 128
BLOCK_SIZE = 16
MAX_MODEL_LEN = 4096
CHURN_OUTPUT_LEN = 128
TOKEN_BUDGET = 8192
VOCABULARY = 49_152
WARM_UP_STEPS = 20


@dataclass(frozen=True, slots=True)
class Scenario:
    """One state in which steps are timed.

    Attributes:
        num_running: Requests that decode in every step; also ``max_num_seqs``.
        num_waiting: Requests that wait for a seat all the time.
        num_finished: Requests that came and went before.
        has_churn: Answers end after `CHURN_OUTPUT_LEN` tokens, at different steps, and each one
            that ends is replaced; otherwise nothing ends while steps are timed.
        num_steps: Steps timed.
        prefix_caching: On or off, the same for both.
    """

    num_running: int
    num_waiting: int = 0
    num_finished: int = 0
    has_churn: bool = False
    num_steps: int = 300
    prefix_caching: bool = True

    @property
    def name(self) -> str:
        """As shown in tables."""
        if self.has_churn:
            return f"{self.num_running} running, answers of {CHURN_OUTPUT_LEN} come and go"
        text = f"{self.num_running} running"
        if self.num_waiting:
            text += f", {self.num_waiting:,} waiting"
        if self.num_finished:
            text += f", after {self.num_finished:,} finished"
        return text

    @property
    def num_blocks(self) -> int:
        """Enough that nothing is ever preempted."""
        steps = CHURN_OUTPUT_LEN if self.has_churn else self.num_steps + WARM_UP_STEPS
        per_request = (PROMPT_LEN + steps + TOKEN_BUDGET // self.num_running) // BLOCK_SIZE + 2
        return self.num_running * per_request + TOKEN_BUDGET // BLOCK_SIZE


@dataclass(frozen=True, slots=True)
class StepCost:
    """Microseconds per step.

    Attributes:
        schedule_us: Deciding, median.
        update_us: Taking in the tokens, median.
        add_us: Adding one request, mean.
        total_us: Schedule and update together, median.
        p99_us: The same, 99th percentile.
        mean_us: The same, mean.
        cpu_us: The same, median, in CPU time of the thread: what remains of ``total_us`` when
            other processes take the CPU away.
    """

    schedule_us: float
    update_us: float
    add_us: float
    total_us: float
    p99_us: float
    mean_us: float
    cpu_us: float


class SchedulerDriver(Protocol):
    """One scheduler under test. ``schedule`` and ``update`` are timed, the rest is not."""

    def make_request(self, request_id: str, prompt: Sequence[int], max_tokens: int) -> Any:
        """What `add` takes; nothing is scheduled yet."""
        ...

    def add(self, request: Any) -> None:
        """Let the scheduler know a request."""
        ...

    def schedule(self) -> Any:
        """The scheduler's own decision for one step."""
        ...

    def num_scheduled(self, step: Any) -> Mapping[str, int]:
        """Tokens per request of a decision."""
        ...

    def answer(self, step: Any, due: Sequence[str]) -> Any:
        """What a worker would answer: one token for each request in ``due``."""
        ...

    def update(self, step: Any, answer: Any) -> Any:
        """The scheduler takes the answer in."""
        ...

    def finished(self, update: Any) -> Sequence[str]:
        """Requests that ended with an update."""
        ...


class TimedStep(NamedTuple):
    """Nanoseconds of one step, and the requests that ended in it."""

    schedule_ns: int
    update_ns: int
    cpu_ns: int
    finished: Sequence[str]


class Bench:
    """Drives one scheduler through one scenario."""

    def __init__(self, driver: SchedulerDriver, scenario: Scenario) -> None:
        """Keep both; nothing is added yet."""
        self._driver = driver
        self._scenario = scenario
        self._draw = random.Random(scenario.num_running)
        self._prompt_left: dict[str, int] = {}
        self._next_id = 0
        self._add_ns: list[int] = []

    def measure(self) -> StepCost:
        """Bring about the scenario's state, then time its steps."""
        scenario = self._scenario
        self._finish_some(scenario.num_finished)
        for index in range(scenario.num_running):
            self._add(self._output_len(first=True, index=index))
        while self._prompt_left:
            self._step()
        for _ in range(scenario.num_waiting):
            self._add(self._output_len())
        for _ in range(WARM_UP_STEPS):
            self._replace(self._step().finished)
        # Both engines freeze what start-up allocated; a full collection is not a step's cost.
        gc.collect()
        gc.freeze()
        steps = []
        for _ in range(scenario.num_steps):
            step = self._step()
            steps.append(step)
            self._replace(step.finished)
        return self._summary(steps)

    def _summary(self, steps: Sequence[TimedStep]) -> StepCost:
        total = sorted(step.schedule_ns + step.update_ns for step in steps)
        return StepCost(
            schedule_us=median(step.schedule_ns for step in steps) / 1e3,
            update_us=median(step.update_ns for step in steps) / 1e3,
            add_us=sum(self._add_ns) / len(self._add_ns) / 1e3,
            total_us=median(total) / 1e3,
            p99_us=total[len(total) * 99 // 100] / 1e3,
            mean_us=sum(total) / len(total) / 1e3,
            cpu_us=median(step.cpu_ns for step in steps) / 1e3,
        )

    def _output_len(self, *, first: bool = False, index: int = 0) -> int:
        if not self._scenario.has_churn:
            return MAX_MODEL_LEN - PROMPT_LEN
        # The first ones have ends spread over the whole length, as in an engine long at work.
        return (
            1 + index * CHURN_OUTPUT_LEN // self._scenario.num_running
            if first
            else CHURN_OUTPUT_LEN
        )

    def _add(self, max_tokens: int) -> None:
        request_id = f"request-{self._next_id}"
        self._next_id += 1
        prompt = [self._draw.randrange(VOCABULARY) for _ in range(PROMPT_LEN)]
        request = self._driver.make_request(request_id, prompt, max_tokens)
        start = time.perf_counter_ns()
        self._driver.add(request)
        self._add_ns.append(time.perf_counter_ns() - start)
        self._prompt_left[request_id] = PROMPT_LEN

    def _step(self) -> TimedStep:
        driver = self._driver
        cpu_start, start = time.thread_time_ns(), time.perf_counter_ns()
        step = driver.schedule()
        schedule_ns = time.perf_counter_ns() - start
        cpu_ns = time.thread_time_ns() - cpu_start
        answer = driver.answer(step, self._due(driver.num_scheduled(step)))
        cpu_start, start = time.thread_time_ns(), time.perf_counter_ns()
        update = driver.update(step, answer)
        update_ns = time.perf_counter_ns() - start
        cpu_ns += time.thread_time_ns() - cpu_start
        return TimedStep(schedule_ns, update_ns, cpu_ns, driver.finished(update))

    def _due(self, num_scheduled: Mapping[str, int]) -> list[str]:
        due = []
        for request_id, num_tokens in num_scheduled.items():
            left = self._prompt_left.pop(request_id, 0) - num_tokens
            if left > 0:
                self._prompt_left[request_id] = left
            else:
                due.append(request_id)
        return due

    def _replace(self, finished: Sequence[str]) -> None:
        if self._scenario.has_churn:
            for _ in finished:
                self._add(CHURN_OUTPUT_LEN)

    def _finish_some(self, count: int) -> None:
        batch = min(self._scenario.num_running, TOKEN_BUDGET // PROMPT_LEN)
        for begin in range(0, count, batch):
            for _ in range(min(batch, count - begin)):
                self._add(1)
            while self._prompt_left:
                self._step()


def main(make_driver: Callable[[Scenario], SchedulerDriver], versions: Mapping[str, str]) -> None:
    """Measure the scenario given as JSON on the command line; print one JSON line.

    What others print goes to standard error. The process ends without tidying up: it holds
    nothing, and some peers leave threads behind.
    """
    parser = argparse.ArgumentParser(description="Used by benchmarks.scheduler_cost.")
    parser.add_argument("scenario", help="a Scenario as JSON")
    scenario = Scenario(**json.loads(parser.parse_args().scenario))
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    cost = Bench(make_driver(scenario), scenario).measure()
    answers.write(json.dumps({"cost": asdict(cost), "versions": dict(versions)}) + "\n")
    answers.flush()
    sys.stderr.flush()
    os._exit(0)

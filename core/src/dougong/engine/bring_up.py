"""From an early plan to ranks that are ready; what fails at its first use is planned around."""

from __future__ import annotations

import gc
import logging
import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass

from dougong.engine.candidates import agreed_kernels, known_failures, without_returned
from dougong.engine.kv_sizing import SizedCache, size_kv_cache
from dougong.engine.planning import PlannedStart
from dougong.engine.start_times import timed
from dougong.errors import ConfigError, DeviceError, ImplementationError
from dougong.executor import Executor, LoadedRanks
from dougong.log import get_logger
from dougong.planner.mode import GRAPH_CAPTURE

_logger = get_logger(__name__)


@dataclass(frozen=True, slots=True)
class ReadyRanks:
    """Ranks that are ready for the first step.

    Attributes:
        executor: Drives them.
        planned: With all that was learnt on the way.
        start: What they measured.
        sized: Their KV cache.
    """

    executor: Executor
    planned: PlannedStart
    start: LoadedRanks
    sized: SizedCache


def bring_up(
    planned: PlannedStart,
    make_executor: Callable[[PlannedStart], Executor],
    seconds: dict[str, float],
) -> ReadyRanks:
    """Open, plan with what was found there, load, size, warm up.

    An implementation that fails at its first use is left out: the ranks are shut down, since they
    may be beyond repair and packed weights cannot be unpacked, and everything begins anew without
    it. Each round has fewer libraries and implementations than the one before, or the same values,
    so there is an end. Where a round fails for good its ranks are shut down.

    Args:
        planned: Before any device was opened.
        make_executor: For ranks that are told the values of this plan.
        seconds: What each part took is added.

    Raises:
        ConfigError: What was asked for cannot be had, or only with an implementation that failed.
        ImplementationError: Something failed that the plan does not name, or that was left out.
        DeviceError: The device failed; where an implementation failed on it before, both are told.
    """
    while True:
        try:
            outcome = _one_round(planned, make_executor, seconds)
        except DeviceError as error:
            if not (failed := known_failures(planned.inputs.candidates)):
                raise
            raise _beyond_repair(error, failed) from error
        if isinstance(outcome, ReadyRanks):
            return outcome
        gc.collect()  # a model of the round before may hang in a traceback
        planned = outcome


def shut_down_quietly(executor: Executor) -> None:
    """Free what a failed start left; the failure itself is what the user must see."""
    with suppress(Exception, SystemExit):  # a vendor's code, on its way out
        executor.shutdown()


def _one_round(
    planned: PlannedStart,
    make_executor: Callable[[PlannedStart], Executor],
    seconds: dict[str, float],
) -> ReadyRanks | PlannedStart:
    """Ranks, or the plan of the next round."""
    executor, final = make_executor(planned), planned
    try:
        with timed(seconds, "open"):
            reports = executor.open()
        known = planned.inputs.candidates.kernels
        final = planned.knowing(kernels=without_returned(known, agreed_kernels(reports)))
        if final.config == planned.config:
            return _load(executor, final, seconds)
        shut_down_quietly(executor)  # it was told values that hold no more
    except ImplementationError as error:
        shut_down_quietly(executor)
        final = _without(error, final)
    except BaseException:
        shut_down_quietly(executor)
        raise
    return final


def _beyond_repair(error: DeviceError, failed: Mapping[str, str]) -> DeviceError:
    """``error`` with what failed on the device before it."""
    before = " ".join(
        f"{name} failed at its first use: {reason.rstrip('. ')}." for name, reason in failed.items()
    )
    told = type(error)(
        f"{error}. Before that, in the same start: {before} If it left the device unusable, start "
        "again without it, with --op or --custom-ops."
    )
    told.device_index, told.rank, told.step_id = error.device_index, error.rank, error.step_id
    return told


def _load(executor: Executor, planned: PlannedStart, seconds: dict[str, float]) -> ReadyRanks:
    with timed(seconds, "load"):
        start = executor.load(planned.plan.rank_plan)
    sized = size_kv_cache(planned.config, start)
    with timed(seconds, "warm_up"):
        executor.initialize(sized.worker)
    return ReadyRanks(executor, planned, start, sized)


def _without(error: ImplementationError, planned: PlannedStart) -> PlannedStart:
    """The plan without what failed; call it inside the handler.

    Raises:
        ConfigError: The user insists on it, or nothing else is left.
        ImplementationError: It was left out already, so leaving it out does not help.
    """
    problems = tuple(
        f"{name} failed at its first use: {reason} {insistence}"
        for name, reason in _sentences(error).items()
        if (insistence := _insistence(name, planned))
    )
    if problems:
        raise ConfigError(
            "What was asked for does not run here, and nothing else takes its place. Leave the "
            "option out, or report the failure to the vendor:",
            problems,
        ) from error
    if set(error.failures) <= set(known_failures(planned.inputs.candidates)):
        raise error
    again = planned.knowing(failed=error.failures)
    for name, reason in _sentences(error).items():
        # What something more general takes the place of is warned of as a fallback.
        is_fallback = any(error.failures[name] in one.reason for one in again.plan.fallbacks)
        level = logging.INFO if is_fallback else logging.WARNING
        told = "%s failed at its first use: %s Starting anew without it."
        _logger.log(level, told, name, reason)
    return again


def _sentences(error: ImplementationError) -> dict[str, str]:
    return {name: reason.rstrip(". ") + "." for name, reason in error.failures.items()}


def _insistence(name: str, planned: PlannedStart) -> str:
    """How the user insists on an implementation, as a sentence; empty: nothing does."""
    args = planned.args
    for key, chosen in planned.inputs.switches.implementations.items():
        if chosen == name:
            return f"It was asked for with --op {key}={name}."
    backend = args.attention_backend
    if backend is not None and name in re.split("[=,]", backend.replace(" ", "")):
        return f"It was asked for with --attention-backend {backend}."
    if name == GRAPH_CAPTURE:
        for option in ("graph_level", "graph_sizes"):
            if (value := getattr(args, option)) is not None:
                return f"It was asked for with --{option.replace('_', '-')} {value}."
    if args.plan is not None:
        return f"It was asked for with --plan {args.plan}."
    return "--strict refuses to go on without it." if args.strict else ""

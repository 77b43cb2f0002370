"""What a loaded platform and its extensions offer to planning, each answer checked."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from dougong import envs
from dougong.attention import load_backends
from dougong.contracts import (
    Capabilities,
    GraphSupport,
    KernelReport,
    Platform,
    QuantizationSupport,
    Registration,
    RegistrationKind,
)
from dougong.describe import OpCandidate
from dougong.engine.platform_answers import ask_platform
from dougong.errors import PluginError
from dougong.ops.registry import OpRegistry
from dougong.planner import Candidates
from dougong.planner.libraries import library_name
from dougong.planner.mode import GRAPH_CAPTURE
from dougong.platforms import report_problems
from dougong.platforms.graph_runner import load_graph_runner
from dougong.platforms.lora_wrapper import lora_wrapper_of


def candidates_of(
    platform: Platform,
    registrations: Iterable[Registration],
    capabilities: Capabilities,
    kernels: KernelReport | None,
) -> Candidates:
    """All that may be chosen from.

    Args:
        platform: The loaded one.
        registrations: Of its hooks and of extensions.
        capabilities: Of the device.
        kernels: What the ranks could import; ``None``: nobody has tried yet.

    Raises:
        PluginError: A query raised or its answer cannot be used, or a registration is refused.
    """
    registrations = tuple(registrations)
    registry = OpRegistry.from_registrations(registrations)
    return Candidates(
        attention=load_backends(platform),
        preferred=platform.get_attn_backend_cls,
        ops=tuple(registry.candidates()),
        op_keys=registry.keys,
        quantization=_quantization(platform, registrations, capabilities),
        graph=_graph_support(platform, capabilities),
        lora_wrapper=lora_wrapper_of(platform),
        kernels=kernels,
        notes=registry.notes,
    )


def condition_environment(ops: Iterable[OpCandidate]) -> dict[str, str]:
    """Environment variables that conditions name and that are set."""
    return envs.condition_variables(name for one in ops for name, _ in one.when.env)


def agreed_kernels(reports: Iterable[KernelReport]) -> KernelReport:
    """One report for all ranks: a library is loaded where every rank has it, in one version.

    Raises:
        PluginError: A rank's answer is no report, or names no library.
    """
    ranks = tuple(reports)
    for rank, report in enumerate(ranks):
        _check_report(rank, report)
    everywhere = set.intersection(*(set(report.loaded) for report in ranks)) if ranks else set()
    missing: dict[str, str] = {}
    for rank, report in enumerate(ranks):
        for name, reason in report.missing.items():
            missing.setdefault(name, reason if len(ranks) == 1 else f"rank {rank}: {reason}")
    for rank, report in enumerate(ranks):
        for library in report.loaded:
            name = library_name(library)
            if library not in everywhere:
                missing.setdefault(name, f"rank {rank} has {library}, and not every rank does")
    loaded = (library for report in ranks[:1] for library in report.loaded)
    return KernelReport(tuple(one for one in loaded if one in everywhere), missing)


def without_returned(before: KernelReport | None, now: KernelReport) -> KernelReport:
    """A later report, in which a library that was not there once stays away.

    Whoever plans with what comes and goes never ends.

    Args:
        before: When the devices were opened the last time; ``None``: they were not.
        now: When they were opened again.
    """
    if before is None:
        return now
    missing = {**now.missing, **before.missing}
    for library in dict.fromkeys((*before.loaded, *now.loaded)):
        name = library_name(library)
        if library not in before.loaded:
            missing.setdefault(name, f"{library} was not there when the device was opened before")
        elif library not in now.loaded:
            missing.setdefault(name, f"{library} was not there when the device was opened again")
    loaded = tuple(one for one in now.loaded if one in before.loaded)
    return KernelReport(loaded, missing)


def without_failed(candidates: Candidates, failures: Mapping[str, str]) -> Candidates:
    """The same, with what failed at its first use known beside what failed before."""
    others = {name: why for name, why in failures.items() if name != GRAPH_CAPTURE}
    ops, backends = failures_by_kind(candidates, others)
    return replace(
        candidates,
        failed={**candidates.failed, **ops},
        failed_backends={**candidates.failed_backends, **backends},
        failed_capture=failures.get(GRAPH_CAPTURE, candidates.failed_capture),
    )


def known_failures(candidates: Candidates) -> dict[str, str]:
    """All that failed so far, each by the name that was passed to `without_failed`."""
    capture = candidates.failed_capture
    return {
        **candidates.failed,
        **candidates.failed_backends,
        **({GRAPH_CAPTURE: capture} if capture else {}),
    }


def failures_by_kind(
    candidates: Candidates, failures: Mapping[str, str]
) -> tuple[dict[str, str], dict[str, str]]:
    """Failures of ops' implementations, and those of attention backends.

    Names of the two do not share a namespace: one that both have is left out of both.
    """
    backends = {name: why for name, why in failures.items() if name in candidates.attention}
    ops = {one.name for one in candidates.ops} | {one.kernel for one in candidates.quantization}
    others = {name: why for name, why in failures.items() if name in ops or name not in backends}
    return others, backends


def _graph_support(platform: Platform, capabilities: Capabilities) -> GraphSupport | None:
    """What the platform's graph runner can capture; not asked where the device claims nothing."""
    if not capabilities.claims.graph_capture:
        return None
    runner_cls = load_graph_runner(platform)
    return None if runner_cls is None else runner_cls.support


def _check_report(rank: int, report: object) -> None:
    problem = "it is no KernelReport"
    if isinstance(report, KernelReport):
        problem = "; ".join(report_problems(report))
    if problem:
        raise PluginError(
            f"Rank {rank}: what Platform.import_kernels() found is told as {report!r}: {problem}. "
            "Report this to the platform's vendor."
        )


def _quantization(
    platform: Platform, registrations: Iterable[Registration], capabilities: Capabilities
) -> tuple[QuantizationSupport, ...]:
    """Formats by name: what the platform answers, what extensions bring, what its family claims."""
    query = "get_supported_quantization"
    answer = ask_platform(platform.name, query, platform.get_supported_quantization)
    by_format = {one.format: one for one in capabilities.claims.quantization}
    for one in registrations:
        if one.mark.kind is RegistrationKind.QUANTIZATION:
            whose = f"{one.distribution} marks the weight format {one.mark.key!r} with"
            by_format[one.mark.key] = _check(one.mark.details, whose, one.plugin)
    for support in _items(answer, f"Platform {platform.name}: {query}()", platform.name):
        by_format[support.format] = support
    return tuple(by_format.values())


def _items(answer: object, whose: str, plugin: str) -> Iterator[QuantizationSupport]:
    if not isinstance(answer, Sequence):
        raise PluginError(f"{whose} gave {answer!r}, which is no sequence", plugin=plugin)
    for one in answer:
        yield _check(one, f"{whose} gave", plugin)


def _check(item: object, whose: str, plugin: str) -> QuantizationSupport:
    if not isinstance(item, QuantizationSupport):
        raise PluginError(
            f"{whose} {item!r}; a weight format is described by a QuantizationSupport. Report this "
            "to its vendor.",
            plugin=plugin,
        )
    return item

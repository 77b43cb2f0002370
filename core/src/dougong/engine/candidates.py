"""What a loaded platform and its extensions offer to planning, each answer checked."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from dougong import envs
from dougong.attention import load_backends
from dougong.contracts import (
    Capabilities,
    KernelReport,
    Platform,
    QuantizationSupport,
    Registration,
    RegistrationKind,
)
from dougong.describe import OpCandidate
from dougong.engine.platform_answers import ask_platform
from dougong.errors import PluginError
from dougong.ops import OpRegistry
from dougong.planner import Candidates


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
        kernels=kernels,
    )


def condition_environment(ops: Iterable[OpCandidate]) -> dict[str, str]:
    """Environment variables that conditions name and that are set."""
    return envs.condition_variables(name for one in ops for name, _ in one.when.env)


def agreed_kernels(reports: Iterable[KernelReport]) -> KernelReport:
    """One report for all ranks: a library is loaded where every rank has it, in one version."""
    ranks = tuple(reports)
    everywhere = set.intersection(*(set(report.loaded) for report in ranks)) if ranks else set()
    missing: dict[str, str] = {}
    for rank, report in enumerate(ranks):
        for name, reason in report.missing.items():
            missing.setdefault(name, reason if len(ranks) == 1 else f"rank {rank}: {reason}")
    for rank, report in enumerate(ranks):
        for library in report.loaded:
            name = library.partition(" ")[0]
            if library not in everywhere:
                missing.setdefault(name, f"rank {rank} has {library}, and not every rank does")
    loaded = (library for report in ranks[:1] for library in report.loaded)
    return KernelReport(tuple(one for one in loaded if one in everywhere), missing)


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

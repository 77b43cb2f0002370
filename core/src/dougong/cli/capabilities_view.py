"""How ``dougong capabilities`` looks in a terminal; all of it is in the capability file."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import fields

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from dougong.contracts import AttentionLimits, Claims, DeviceFacts, GraphSupport
from dougong.describe import CapabilityFile

_PIPE_WIDTH = 160  # where there is no terminal to ask, lines need not be short
_GIB = 2**30


def print_capabilities(found: CapabilityFile, reasons: Sequence[str]) -> None:
    """Print to the standard output.

    Args:
        found: What was described.
        reasons: Why this platform and this device.
    """
    console = Console(highlight=False)
    if not console.is_terminal:
        console = Console(highlight=False, width=_PIPE_WIDTH)
    for reason in reasons:
        console.print(escape(reason), style="bold")
    for assumption in found.assumed:
        console.print(f"assumed: {escape(assumption)}", style="yellow")
    console.print(_pairs(f"Device {found.facts.device_index}", _facts(found)))
    console.print(_pairs("Claims of its family", _claims(found.claims)))
    if found.graph is not None:
        console.print(_pairs("Graphs", _graphs(found.graph)))
    console.print(_kernels(found))
    console.print(_attention(found))
    if found.ops:
        console.print(_ops(found))
    if found.quantization:
        console.print(_quantization(found))
    if found.environment:
        rows = ((name, value or "not set") for name, value in found.environment.items())
        console.print(_pairs("Environment that conditions ask for", rows))


def _table(title: str, *columns: str) -> Table:
    table = Table(title=title, title_justify="left", expand=False)
    for column in columns:
        table.add_column(column, overflow="fold")
    return table


def _pairs(title: str, rows: Iterable[tuple[str, str]]) -> Table:
    table = _table(title, "what", "value")
    for name, value in rows:
        table.add_row(name, escape(value))
    return table


def _facts(found: CapabilityFile) -> Iterator[tuple[str, str]]:
    facts = found.facts
    yield "platform", f"{found.platform} ({found.wheel or 'no wheel'})"
    yield "name", facts.name
    yield "arch", facts.arch + (" (unknown: generic claims)" if found.claims.is_generic else "")
    yield "memory", _memory(facts)
    yield "compute units", str(facts.num_compute_units or "unknown")
    yield "driver", facts.driver_version or "unknown"
    yield "runtime", facts.runtime_version or "unknown"
    can_measure = "" if found.assumed else "; --measure measures it"
    yield "memory bandwidth", _bandwidth(facts, found.claims, can_measure)


def _memory(facts: DeviceFacts) -> str:
    text = f"{facts.memory_total_bytes / _GIB:.1f} GiB"
    if facts.memory_free_bytes is not None:
        text += f", {facts.memory_free_bytes / _GIB:.1f} GiB free"
    if facts.memory_quota_bytes is not None:
        text += f"; limit {facts.memory_quota_bytes / _GIB:.1f} GiB ({facts.memory_quota_source})"
    return text + ("; the host's" if facts.is_integrated else "")


def _bandwidth(facts: DeviceFacts, claims: Claims, can_measure: str) -> str:
    if facts.memory_bandwidth is not None:
        return f"{facts.memory_bandwidth / 1e9:.1f} GB/s measured"
    if claims.memory_bandwidth is not None:
        return f"{claims.memory_bandwidth / 1e9:.1f} GB/s claimed{can_measure}"
    return f"unknown{can_measure}"


def _claims(claims: Claims) -> Iterator[tuple[str, str]]:
    yield "dtypes", ", ".join(claims.dtypes)
    yield "KV dtypes", ", ".join(claims.kv_dtypes)
    yield "collective dtypes", ", ".join(claims.collective_dtypes) or "none"
    yield "KV block sizes", _numbers(claims.kv_block_sizes)
    yield "KV alignment, slots", f"{claims.kv_alignment_bytes} bytes, {claims.slot_dtype}"
    yield "largest head size", str(claims.max_head_size or "no limit known")
    yield "features", ", ".join(sorted(claims.features)) or "none"
    yield "limits", _mapping(claims.limits)
    flags = (field.name for field in fields(claims) if getattr(claims, field.name) is True)
    yield "abilities", ", ".join(name for name in flags if name != "is_generic") or "none"
    yield "torch.compile", ", ".join(claims.compile_backends) or "none"
    if claims.compute_rate:
        rates = {dtype: f"{rate / 1e12:.1f} T/s" for dtype, rate in claims.compute_rate.items()}
        yield "compute rate", _mapping(rates)


def _graphs(graph: GraphSupport) -> Iterator[tuple[str, str]]:
    yield "captured at most", graph.level.value
    most = graph.max_graphs
    yield "graphs at once", "no limit known" if most is None else str(most)
    yield "token counts", _numbers(graph.sizes) or "any"


def _numbers(values: Iterable[int]) -> str:
    return ", ".join(map(str, values))


def _mapping(values: Mapping[str, object]) -> str:
    return ", ".join(f"{name} {value}" for name, value in sorted(values.items())) or "none"


def _kernels(found: CapabilityFile) -> Table:
    table = _table("Kernel libraries", "library", "state", "reason")
    kernels = found.kernels
    for library in kernels.loaded if kernels else ():
        table.add_row(escape(library), "[green]loaded[/]", "")
    for library, reason in (kernels.missing if kernels else {}).items():
        table.add_row(escape(library), "[yellow]missing[/]", escape(reason))
    if kernels is None:
        table.add_row("", "not tried", "there was no device to load them on")
    elif not table.rows:
        table.add_row("", "none", "import_kernels() names no library")
    return table


def _attention(found: CapabilityFile) -> Table:
    columns = "name", "takes", "KV layout", "library", "device claims"
    table = _table("Attention backends, preferred first", *columns)
    for name, declared in found.attention.items():
        takes = "; ".join(_takes(declared.limits)) if declared.limits else "only itself can say"
        layouts = ", ".join(dict.fromkeys(one.name for one in declared.layouts))
        needed = ", ".join(sorted(declared.features))
        texts = (name, takes, layouts or "only itself can say", declared.library or "", needed)
        table.add_row(*map(escape, texts))
    return table


def _takes(limits: AttentionLimits) -> Iterator[str]:
    yield ", ".join(sorted(limits.dtypes))
    if limits.kv_dtypes:
        yield f"KV {', '.join(sorted(limits.kv_dtypes))}"
    if limits.head_sizes:
        yield f"head sizes {_numbers(sorted(limits.head_sizes))}"
    if limits.head_size_multiple > 1:
        yield f"head sizes in multiples of {limits.head_size_multiple}"
    if limits.max_head_size is not None:
        yield f"head sizes up to {limits.max_head_size}"
    if limits.block_sizes:
        yield f"block sizes {_numbers(limits.block_sizes)}"
    yield ", ".join(sorted(limits.phases))
    names = {
        "sliding_window": "windows",
        "soft_cap": "soft caps",
        "sinks": "sinks",
        "mla": "latent attention only",
        "graph": "graph capture",
    }
    yield from (text for name, text in names.items() if getattr(limits, name))


def _ops(found: CapabilityFile) -> Table:
    table = _table("Implementations of ops", "op", "name", "kind", "when", "tokens", "origin")
    for op in found.ops:
        tokens = "" if op.tokens is None else str(op.tokens)
        table.add_row(*map(escape, (op.key, op.name, op.kind, str(op.when), tokens, op.origin)))
    return table


def _quantization(found: CapabilityFile) -> Table:
    table = _table(
        "Weight formats", "format", "stored as", "with", "kernel", "scales", "dequantized"
    )
    for one in found.quantization:
        activations = ", ".join(one.activation_dtypes)
        where = "never" if one.is_native and not one.dequantized else one.dequantized
        texts = (one.format, one.storage, activations, one.kernel, one.scale_layout, where)
        table.add_row(*map(escape, texts))
    return table

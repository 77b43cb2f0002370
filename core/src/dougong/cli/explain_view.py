"""How ``dougong explain`` looks in a terminal; what it says is in its JSON."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from rich.console import Console
from rich.tree import Tree

from dougong.cli.explain_attention import attention_tree, kv_cache_tree
from dougong.cli.explain_fallbacks import fallbacks_tree
from dougong.cli.explain_ops import ops_tree
from dougong.cli.explain_switches import switch_lines
from dougong.cli.explain_text import counted, entry, line, size
from dougong.config import Decision
from dougong.config.decision import CHECKPOINT, CORE, USER
from dougong.planner import (
    ExecutionMode,
    ExecutionPlan,
    ExecutionWay,
    LoRAPlan,
    PassedOver,
    WeightPlan,
)

_GUIDES = "dim"


def print_plan(plan: ExecutionPlan, *, is_verbose: bool = False) -> None:
    """Print a plan to the standard output, what matters most first.

    Args:
        plan: Any, a saved one too.
        is_verbose: Show values that the core takes everywhere.
    """
    console = Console(highlight=False)
    console.print(plan_tree(plan, is_verbose=is_verbose))
    if not is_verbose:
        more = "more: --ops the switch of every op, --verbose every option, --json all of it"
        console.print(line((more, "dim")))


def print_switches(plan: ExecutionPlan) -> None:
    """Print the effective table of op switches."""
    console = Console(highlight=False)
    asked = [f"--{name.replace('_', '-')} {plan.choices[name]}"
             for name in ("custom_ops", "op") if name in plan.choices]  # fmt: skip
    console.print(line(("switches: ", "bold"), " ".join(asked) or "none given; every op is on"))
    for one in switch_lines(plan):
        console.print(one)


def plan_tree(plan: ExecutionPlan, *, is_verbose: bool = False) -> Tree:
    """The whole plan."""
    tree = Tree(
        line(
            (f"{plan.model} on platform {plan.platform}", "bold"),
            f": {plan.architecture} in {plan.dtype}",
        ),
        guide_style=_GUIDES,
    )
    tree.children.extend(
        (
            _platform(plan),
            fallbacks_tree(plan),
            attention_tree(plan),
            kv_cache_tree(plan),
            ops_tree(plan),
            _weights(plan.weights, {one.reason for one in plan.fallbacks}),
            _execution(plan.execution, plan.mode),
            _adapters(plan.lora),
            _libraries(plan),
            _configuration(plan.decisions, is_verbose=is_verbose),
            _unmatched(plan.unmatched),
        )
    )
    if plan.notes:
        notes = tree.add(entry("notes:", str(len(plan.notes))))
        for note in plan.notes:
            notes.add(line(note))
    return tree


def _platform(plan: ExecutionPlan) -> Tree:
    wheel = plan.platform_wheel or "its wheel is not installed here"
    tree = Tree(entry("platform:", f"{plan.platform} ({wheel})"))
    for reason in plan.platform_reasons:
        tree.add(entry("why:", reason))
    tree.add(entry("device:", plan.device or "no device named"))
    generic = (
        ", a family that the platform does not know: what follows counts on nothing but what holds "
        "for every device of it"
    )
    tree.add(entry("family:", (plan.arch or "unnamed") + (generic if plan.is_generic else "")))
    return tree


def _weights(weights: Sequence[WeightPlan], told: Collection[str]) -> Tree:
    tree = Tree(entry("weights:", counted(len(weights), "format")))
    for one in weights:
        stored = "no file here" if one.stored_bytes is None else size(one.stored_bytes)
        becomes = "" if one.computed_as == one.format else f" to {one.computed_as}"
        branch = tree.add(line((one.format, "bold"), f" ({stored}): {one.where}{becomes}"))
        if one.kernel:
            branch.add(entry("kernel:", one.kernel))
        if one.scale_layout:
            branch.add(entry("scales:", one.scale_layout))
        if one.reason:
            branch.add(entry("why:", "see fallbacks" if one.reason in told else one.reason))
    return tree


def _execution(way: ExecutionWay, mode: ExecutionMode) -> Tree:
    tree = Tree(entry("execution:", f"{way.name}: {way.reason}"))
    graphs = mode.graphs
    tree.add(entry("captured:", f"{mode.name}: {mode.reason}"))
    for kind, sizes, unit in (
        ("decode", graphs.decode, "sequences with one token each, whole"),
        ("full", graphs.full, "tokens, whole"),
        ("piecewise", graphs.piecewise, "tokens, all but attention"),
    ):
        if sizes:
            tree.add(entry(f"{kind} graphs:", f"{', '.join(map(str, sizes))} {unit}"))
    if graphs:
        drop = "what does not fit is left out, the largest first" if graphs.may_drop else (
            "what does not fit stops the start"
        )  # fmt: skip
        tree.add(entry("memory of graphs:", f"at most {size(graphs.max_bytes)}; {drop}"))
    return tree


def _adapters(lora: LoRAPlan) -> Tree:
    if lora.assignment is None:
        return Tree(entry("adapters:", f"none: {lora.reason or 'not asked for'}"))
    most = f"up to {lora.assignment.max_loras} at once, of rank up to {lora.assignment.max_rank}"
    tree = Tree(entry("adapters:", most))
    tree.add(entry("computed by:", lora.wrapper))
    tree.add(entry("memory of their slots:", size(lora.num_bytes)))
    return tree


def _libraries(plan: ExecutionPlan) -> Tree:
    if plan.kernels_loaded is None:
        waiting = (
            "not tried yet; a start loads them and plans again, and until then an implementation "
            "that needs one counts as usable"
        )
        return Tree(entry("kernel libraries:", waiting))
    if not plan.kernels_loaded and not plan.kernels_missing:
        return Tree(entry("kernel libraries:", "the platform has none"))
    tree = Tree(entry("kernel libraries:"))
    for library in plan.kernels_loaded:
        tree.add(line(library, (" loaded", "green")))
    for library, reason in plan.kernels_missing.items():
        tree.add(line(library, (" missing", "yellow"), f": {reason}"))
    return tree


_AUTHORS = {USER: 0, CHECKPOINT: 2, CORE: 3}
"""The user first, then platforms and commands, who changed something, then the rest."""


def _configuration(decisions: Iterable[Decision], *, is_verbose: bool) -> Tree:
    every = sorted(decisions, key=lambda one: _AUTHORS.get(one.author, 1))
    shown = [one for one in every if is_verbose or not one.is_default]
    hidden = len(every) - len(shown)
    rest = f"{counted(hidden, 'default')} not shown" if hidden else "every option"
    tree = Tree(entry("configuration:", rest))
    for one in shown:
        tree.add(line((f"{one.field} = {one.value}", "bold"), f" by {one.author}: {one.reason}"))
    return tree


def _unmatched(unmatched: Sequence[PassedOver]) -> Tree:
    """Those with one reason together."""
    names_by_reason: dict[str, list[str]] = {}
    for one in unmatched:
        names_by_reason.setdefault(one.reason, []).append(one.name)
    number = str(len(unmatched) or "none")
    tree = Tree(entry("registered, never used by this model:", number))
    for reason, names in names_by_reason.items():
        tree.add(line((", ".join(names), "bold"), f": {reason}"))
    return tree

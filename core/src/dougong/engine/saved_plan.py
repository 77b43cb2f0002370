"""``--plan FILE``: ask for what a saved plan asked for, and insist that the same comes of it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from dougong.config import CommandDefault, EngineArgs
from dougong.config.same_choice import is_same_choice
from dougong.contracts import KernelReport
from dougong.errors import ConfigError
from dougong.planner import ExecutionPlan
from dougong.planner.compare import differences
from dougong.planner.record import plan_from_json

_SIZED_BY_FREE_MEMORY = ("max_num_seqs", "max_num_batched_tokens")
"""Values that follow from the memory that happens to be free, and that decide which kernels can be
reached: they are taken from the plan."""
_KV_SIZES = ("num_kv_blocks", "kv_cache_memory_bytes")


def with_saved_choices(args: EngineArgs) -> EngineArgs:
    """Wishes with those of the saved plan among them; the same where there is none.

    What a command would take for a value that the plan settled gives way to it.

    Raises:
        ConfigError: The file cannot be read, or another value was asked for than it has.
    """
    if args.plan is None:
        return args
    saved = _read(args.plan)
    problems = tuple(
        f"{name}={getattr(args, name)} was asked for, and the plan was made with {other}={value}. "
        "Leave the option out, or save a plan with the new value."
        for other, value in saved.choices.items()
        for name in _meaning_the_same(other)
        if name in args.explicit
        and (name != other or not is_same_choice(name, getattr(args, name), value))
    )
    if problems:
        raise ConfigError(f"--plan {args.plan} contradicts other options:", problems)
    kept = {
        one.field: CommandDefault(one.field, one.value, f"plan {args.plan}", "as saved")
        for one in saved.decisions
        if one.field in _SIZED_BY_FREE_MEMORY
    }
    others = (one for one in args.defaults if one.field not in kept)
    try:
        return replace(args.with_choices(saved.choices), defaults=(*others, *kept.values()))
    except ConfigError as exc:
        raise ConfigError(
            f"--plan {args.plan} asks for what this version does not understand: {exc} "
            "Save a new plan."
        ) from exc


def _meaning_the_same(name: str) -> tuple[str, ...]:
    """Options that give the same thing a value, among them ``name``."""
    return _KV_SIZES if name in _KV_SIZES else (name,)


def saved_kernels(args: EngineArgs) -> KernelReport | None:
    """Kernel libraries of the saved plan; ``None``: there is no such plan, or it knows of none."""
    if args.plan is None:
        return None
    saved = _read(args.plan)
    if saved.kernels_loaded is None:
        return None
    return KernelReport(saved.kernels_loaded, saved.kernels_missing)


def check_same_plan(args: EngineArgs, plan: ExecutionPlan) -> None:
    """Refuse a plan that is not the saved one.

    Raises:
        ConfigError: With what changed and why.
    """
    if args.plan is None:
        return
    problems = tuple(map(str, differences(_read(args.plan), plan)))
    if problems:
        raise ConfigError(
            f"--plan {args.plan} cannot be had any more; this changed since it was saved. Undo the "
            "change, or look at `dougong explain` and save the plan of now:",
            problems,
        )


def _read(path: str) -> ExecutionPlan:
    try:
        text = Path(path).expanduser().read_bytes()
    except OSError as exc:
        raise ConfigError(
            f"--plan {path} cannot be read: {exc.strerror or exc}. Name a file that "
            "`dougong explain --save` wrote."
        ) from exc
    try:
        return plan_from_json(text)
    except ConfigError as exc:
        first = str(exc).partition("\n")[0]
        raise ConfigError(f"--plan {path}: {first}", exc.problems) from exc

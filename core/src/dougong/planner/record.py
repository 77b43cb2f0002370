"""A plan as JSON: kept in a file, shown by a server, read back and insisted on."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from dougong.config.args import saved_value_problem
from dougong.describe import unknown_keys
from dougong.errors import ConfigError
from dougong.planner.execution_plan import PLAN_VERSION, ExecutionPlan

FORMAT = "dougong-plan"
_NEVER_CHOSEN = ("model", "plan")


def plan_to_json(plan: ExecutionPlan) -> str:
    """Indented, keys in the order of the fields; ends with a newline."""
    record = {"format": FORMAT, **msgspec.to_builtins(plan)}
    return msgspec.json.format(msgspec.json.encode(record), indent=2).decode() + "\n"


def plan_from_json(text: str | bytes) -> ExecutionPlan:
    """The plan that `plan_to_json` wrote.

    Raises:
        ConfigError: It is no JSON, no plan, one of another version, or has unknown keys, missing
            ones, or values that cannot be; each with its path.
    """
    try:
        plan = _read(text)
    except RecursionError as exc:
        raise ConfigError("This is no saved plan: its values are nested without end.") from exc
    if problems := tuple(_impossible_values(plan)):
        raise ConfigError(
            "This saved plan has values that no plan has; save it anew:",
            tuple(f"{path}: {why}" for path, why in problems),
        )
    return plan


def _read(text: str | bytes) -> ExecutionPlan:
    try:
        record = msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeError) as exc:
        raise ConfigError(f"This is no saved plan: it is no JSON ({exc}).") from exc
    _check_head(record)
    values = {key: value for key, value in record.items() if key != "format"}
    unknown = tuple(unknown_keys(ExecutionPlan, values, "$"))
    if unknown:
        raise ConfigError(
            "This saved plan has keys that no plan of this version has; save it anew:",
            unknown,
        )
    try:
        return msgspec.convert(values, ExecutionPlan)
    except msgspec.ValidationError as exc:
        raise ConfigError(f"This saved plan cannot be read: {exc}. Save it anew.") from exc


def _impossible_values(plan: ExecutionPlan) -> Iterator[tuple[str, str]]:
    """Paths of values that have the right type and would still mislead whoever uses the plan."""
    for index, library in enumerate(plan.kernels_loaded or ()):
        if not library.strip():
            yield f"$.kernels_loaded[{index}]", f"{library!r} is no name of a library"
    for name, value in plan.choices.items():
        if name in _NEVER_CHOSEN:
            yield f"$.choices.{name}", "a plan is made for a model, and chooses none and no plan"
        elif why := saved_value_problem(name, value):
            yield f"$.choices.{name}", why
    for index, one in enumerate(plan.decisions):
        if why := saved_value_problem(one.field, one.value):
            yield f"$.decisions[{index}].value", why


def _check_head(record: Any) -> None:
    if not isinstance(record, Mapping) or record.get("format") != FORMAT:
        raise ConfigError(
            f"This is no saved plan: it does not begin with "
            f'"format": "{FORMAT}", as what `dougong explain --save FILE` writes does.'
        )
    version = record.get("plan_version")
    if version != PLAN_VERSION:
        raise ConfigError(
            f"This saved plan has plan_version {version!r}, and this version of Dougong reads "
            f"{PLAN_VERSION}. Save it anew with `dougong explain --save FILE`."
        )

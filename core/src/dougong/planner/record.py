"""A plan as JSON: kept in a file, shown by a server, read back and insisted on."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from dougong.errors import ConfigError
from dougong.planner.execution_plan import PLAN_VERSION, ExecutionPlan

FORMAT = "dougong-plan"


def plan_to_json(plan: ExecutionPlan) -> str:
    """Indented, keys in the order of the fields; ends with a newline."""
    record = {"format": FORMAT, **msgspec.to_builtins(plan)}
    return msgspec.json.format(msgspec.json.encode(record), indent=2).decode() + "\n"


def plan_from_json(text: str | bytes) -> ExecutionPlan:
    """The plan that `plan_to_json` wrote.

    Raises:
        ConfigError: It is no JSON, no plan, one of another version, or has unknown keys, missing
            ones or values of the wrong type; each with its path.
    """
    try:
        record = msgspec.json.decode(text)
    except msgspec.DecodeError as exc:
        raise ConfigError(f"This is no saved plan: it is no JSON ({exc}).") from exc
    _check_head(record)
    values = {key: value for key, value in record.items() if key != "format"}
    unknown = tuple(_unknown_keys(values, msgspec.inspect.type_info(ExecutionPlan), "$"))
    if unknown:
        raise ConfigError(
            "This saved plan has keys that no plan of this version has; save it anew:",
            tuple(f"{path} is unknown" for path in unknown),
        )
    try:
        return msgspec.convert(values, ExecutionPlan)
    except msgspec.ValidationError as exc:
        raise ConfigError(f"This saved plan cannot be read: {exc}. Save it anew.") from exc


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


def _unknown_keys(value: Any, kind: msgspec.inspect.Type, path: str) -> Iterator[str]:
    """Paths of keys that no field has; what has the wrong type altogether is told by decoding."""
    if isinstance(kind, msgspec.inspect.UnionType):
        for one in kind.types:
            if isinstance(one, msgspec.inspect.DataclassType | msgspec.inspect.VarTupleType):
                yield from _unknown_keys(value, one, path)
    elif isinstance(kind, msgspec.inspect.DataclassType) and isinstance(value, Mapping):
        fields = {one.name: one.type for one in kind.fields}
        for key, held in value.items():
            if key not in fields:
                yield f"{path}.{key}"
            else:
                yield from _unknown_keys(held, fields[key], f"{path}.{key}")
    elif isinstance(kind, msgspec.inspect.VarTupleType) and isinstance(value, list):
        for index, held in enumerate(value):
            yield from _unknown_keys(held, kind.item_type, f"{path}[{index}]")

"""Tools that a request offers, and what it says of their use."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import msgspec

from dougong.errors import RequestError
from dougong.messages import StructuredOutput
from dougong.server.body import WireModel
from dougong.server.openai.call_reader import BareCalls, CallReader
from dougong.server.openai.call_schema import calls_schema
from dougong.server.openai.tool_formats import ToolFormat, ToolSupport

MAX_TOOLS = 128
FunctionName = Annotated[str, msgspec.Meta(pattern="^[a-zA-Z0-9_.-]{1,64}$")]
_CALLS_AS_LIST = "[,]"  # what stands around and between the calls of a list


class Function(WireModel, frozen=True, kw_only=True):
    """What a tool does; ``parameters`` is the JSON schema of an object."""

    name: FunctionName
    description: str | None = None
    parameters: dict[str, Any] | None = None
    strict: bool | None = None


class Tool(WireModel, frozen=True, kw_only=True):
    """A function that the client runs where the model asks for it."""

    type: Literal["function"]
    function: Function


class ChosenFunction(WireModel, frozen=True, kw_only=True):
    """Its name."""

    name: FunctionName


class ChosenTool(WireModel, frozen=True, kw_only=True):
    """The one tool that is to be called."""

    type: Literal["function"]
    function: ChosenFunction


Tools = Annotated[list[Tool], msgspec.Meta(max_length=MAX_TOOLS)]
ToolChoice = Literal["none", "auto", "required"] | ChosenTool


@dataclass(frozen=True, slots=True)
class ToolUse:
    """What a request's tools mean for its answer.

    Attributes:
        shown: Tools for the template; ``None``: it is told of none.
        structured: What the answer must be, so that it is a call in any case.
        format: How the model writes calls of its own accord.
        names: Of the tools.
        only: The tool that is called whatever the model thinks.
        has_list: The answer is a JSON list of calls.
        is_single: At most one call is told.
    """

    shown: list[dict[str, Any]] | None = None
    structured: StructuredOutput | None = None
    format: ToolFormat | None = None
    names: tuple[str, ...] = ()
    only: str | None = None
    has_list: bool = False
    is_single: bool = False

    @property
    def is_used(self) -> bool:
        """Whether calls are looked for in the answer."""
        return self.shown is not None

    def reader(self) -> CallReader | None:
        """For one answer; ``None`` where all of it is words, or the arguments of ``only``."""
        if self.has_list:
            return BareCalls(self.names, separators=_CALLS_AS_LIST)
        return None if self.format is None else self.format.reader(self.names)


def tool_use(
    tools: Sequence[Tool] | None,
    choice: ToolChoice | None,
    *,
    is_parallel: bool,
    support: ToolSupport,
) -> ToolUse:
    """What is to be done with a request's tools.

    With ``required`` and with a named tool the answer is held to JSON by a grammar: a list of
    calls, or the arguments of the one.

    Raises:
        RequestError: The choice does not fit the tools, or this model has no use for any.
    """
    try:
        return _tool_use(tools, choice, is_parallel=is_parallel, support=support)
    except RecursionError:
        raise RequestError(
            "parameters of a tool are nested too deep; make them flatter.", field="tools"
        ) from None


def _tool_use(
    tools: Sequence[Tool] | None,
    choice: ToolChoice | None,
    *,
    is_parallel: bool,
    support: ToolSupport,
) -> ToolUse:
    if not tools:
        _check_needs_none(choice)
        return ToolUse()
    names = tuple(tool.function.name for tool in tools)
    _check_unlike(names)
    if isinstance(choice, ChosenTool) and choice.function.name not in names:
        raise RequestError(
            f"tool_choice names {choice.function.name!r}, which is not among the tools: "
            f"{', '.join(names)[:500]}.",
            field="tool_choice",
        )
    if choice == "none":
        return ToolUse()
    shown = [shown_tool(tool) for tool in tools]
    if isinstance(choice, ChosenTool):
        support.check_template()
        only = next(tool for tool in tools if tool.function.name == choice.function.name)
        schema = StructuredOutput(json_schema=json.dumps(_parameters(only)))
        return ToolUse(shown, schema, names=names, only=choice.function.name)
    if choice == "required":
        support.check_template()
        schema = StructuredOutput(
            json_schema=json.dumps(
                calls_schema(
                    {tool.function.name: _parameters(tool) for tool in tools},
                    is_parallel=is_parallel,
                )
            )
        )
        return ToolUse(shown, schema, names=names, has_list=True, is_single=not is_parallel)
    return ToolUse(shown, format=support.format(), names=names, is_single=not is_parallel)


def _check_needs_none(choice: ToolChoice | None) -> None:
    if choice is not None and choice not in ("none", "auto"):
        raise RequestError(
            "tool_choice asks for a call, and there are no tools. Give tools, or leave it out.",
            field="tool_choice",
        )


def _check_unlike(names: Sequence[str]) -> None:
    for index, name in enumerate(names):
        if name in names[:index]:
            raise RequestError(
                f"tools has two functions named {name!r}; a call could not say which it means.",
                field=f"tools.{index}.function.name",
            )


def shown_tool(tool: Tool) -> dict[str, Any]:
    """As `transformers` shows a tool to a template; ``strict`` is not the model's business."""
    function: dict[str, Any] = {"name": tool.function.name}
    if tool.function.description is not None:
        function["description"] = tool.function.description
    function["parameters"] = _parameters(tool)
    return {"type": tool.type, "function": function}


def _parameters(tool: Tool) -> dict[str, Any]:
    """The schema; a tool that names no parameters takes none."""
    given = tool.function.parameters
    return {"type": "object", "properties": {}} if given is None else given

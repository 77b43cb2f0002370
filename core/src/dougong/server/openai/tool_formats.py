"""The forms in which checkpoints write calls of tools, and which of them a model uses."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass

from dougong.errors import ConfigError, RequestError
from dougong.server.openai.call_reader import BareCalls, CallReader, TaggedCalls

_READS_TOOLS = re.compile(r"\btools\b")


@dataclass(frozen=True, slots=True)
class ToolFormat:
    """One form.

    Attributes:
        name: For ``--tool-call-parser``.
        what: In a few words.
        is_in: Whether a chat template teaches it.
        reader: Makes a reader of one answer, given the names of the tools.
    """

    name: str
    what: str
    is_in: Callable[[str], bool]
    reader: Callable[[Collection[str]], CallReader]


def _teaches_hermes(template: str) -> bool:
    """Some write something else than JSON between the same tags."""
    return "<tool_call>" in template and not re.search(r"<function=|<arg_key>", template)


def _teaches_llama(template: str) -> bool:
    return "<|python_tag|>" in template or '{"name": function name, "parameters":' in template


_ALL = (
    ToolFormat(
        name="hermes",
        what='<tool_call>{"name": ..., "arguments": {...}}</tool_call>, as Hermes and Qwen write',
        is_in=_teaches_hermes,
        reader=lambda names: TaggedCalls("<tool_call>", "</tool_call>"),
    ),
    ToolFormat(
        name="llama3_json",
        what='{"name": ..., "parameters": {...}} and nothing else, as Llama 3 writes',
        is_in=_teaches_llama,
        reader=lambda names: BareCalls(names, marks=("<|python_tag|>",)),
    ),
)
TOOL_FORMATS: Mapping[str, ToolFormat] = {one.name: one for one in _ALL}


def check_tool_format(name: str | None) -> None:
    """Refuse a name that no form has.

    Raises:
        ConfigError: Lists those that there are.
    """
    if name is not None and name not in TOOL_FORMATS:
        known = "; ".join(f"{one.name}: {one.what}" for one in _ALL)
        raise ConfigError(f"--tool-call-parser {name!r} is unknown. It takes one of {known}.")


class ToolSupport:
    """What a model does with tools, by its chat template.

    Args:
        template: The template's source; ``None``: there is none.
        asked: The operator's choice of a form; ``None``: it is found in the template.
    """

    def __init__(self, template: str | None, asked: str | None) -> None:
        self._reads_tools = template is not None and bool(_READS_TOOLS.search(template))
        found = [one for one in _ALL if template is not None and one.is_in(template)]
        self._format = TOOL_FORMATS[asked] if asked is not None else next(iter(found), None)

    def check_template(self) -> None:
        """Refuse tools of which the model would hear nothing.

        Raises:
            RequestError: The template does not mention them.
        """
        if not self._reads_tools:
            raise RequestError(
                "This model's chat template takes no tools, so the model would not hear of them. "
                "Leave tools out, or have the server started with a --chat-template that takes "
                "them.",
                field="tools",
            )

    def format(self) -> ToolFormat:
        """How the model writes calls.

        Raises:
            RequestError: It is not known, or the template takes no tools.
        """
        self.check_template()
        if self._format is None:
            raise RequestError(
                "This server does not know how this model writes calls of tools: its chat template "
                "shows none of the forms it reads. Have it started with --tool-call-parser "
                f"({', '.join(TOOL_FORMATS)}), or set tool_choice to 'required' or to a function.",
                field="tools",
            )
        return self._format

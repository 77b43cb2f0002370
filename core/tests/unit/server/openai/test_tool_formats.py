from __future__ import annotations

import pytest

from dougong.errors import ConfigError, RequestError
from dougong.server.openai.tool_formats import ToolSupport, check_tool_format

HERMES = "{% for tool in tools %}{{ tool | tojson }}{% endfor %}<tool_call>{{ x }}</tool_call>"
LLAMA = '{{ tools }}Respond in the format {"name": function name, "parameters": dictionary}.'


@pytest.mark.parametrize(
    ("template", "name"),
    [
        (HERMES, "hermes"),
        (LLAMA, "llama3_json"),
        ("{{ tools }}<|python_tag|>", "llama3_json"),
    ],
    ids=str,
)
def test_a_form_is_found_in_the_template(template: str, name: str) -> None:
    assert ToolSupport(template, None).format().name == name


@pytest.mark.parametrize(
    "template",
    [
        "{{ tools }}",
        "{{ tools }}<tool_call><function=f><parameter=a>",
        "{{ tools }}<tool_call>f<arg_key>a</arg_key>",
    ],
    ids=str,
)
def test_a_form_that_is_not_known_is_refused_with_the_way_out(template: str) -> None:
    support = ToolSupport(template, None)
    support.check_template()
    with pytest.raises(RequestError, match="--tool-call-parser") as caught:
        support.format()
    assert caught.value.field == "tools"
    assert ToolSupport(template, "hermes").format().name == "hermes"


@pytest.mark.parametrize("template", [None, "{{ messages }}<tool_call>", "{{ tools_of }}"], ids=str)
def test_a_template_that_takes_no_tools_is_told_of_none(template: str | None) -> None:
    for asked in (None, "hermes"):
        with pytest.raises(RequestError, match="takes no tools") as caught:
            ToolSupport(template, asked).format()
        assert caught.value.field == "tools"


def test_an_unknown_form_is_refused_with_those_that_there_are() -> None:
    check_tool_format(None)
    check_tool_format("hermes")
    with pytest.raises(ConfigError, match=r"'herm' is unknown.*hermes.*llama3_json"):
        check_tool_format("herm")

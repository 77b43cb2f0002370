from __future__ import annotations

import datetime
from pathlib import Path

import pytest

from dougong.engine.chat_template import ChatTemplate, resolve_chat_template
from dougong.errors import ConfigError, RequestError

MESSAGES = [{"role": "user", "content": "Hi <&> 世界"}]
TOKENS = {"bos_token": "<s>", "eos_token": "</s>"}


def render(source: str, **options: object) -> str:
    return ChatTemplate(source, TOKENS).render(MESSAGES, variables=options)


def test_messages_tokens_and_the_prompt_flag_reach_the_template() -> None:
    template = ChatTemplate(
        "{{ bos_token }}{% for m in messages %}[{{ m.role }}]{{ m['content'] }}{{ eos_token }}"
        "{% endfor %}{% if add_generation_prompt %}[assistant]{% endif %}",
        TOKENS,
    )
    assert template.render(MESSAGES) == "<s>[user]Hi <&> 世界</s>[assistant]"
    assert template.render(MESSAGES, add_generation_prompt=False) == "<s>[user]Hi <&> 世界</s>"


def test_white_space_is_trimmed_as_models_were_trained() -> None:
    assert render("{% if true %}\n    a\n  {% endif %}\nb") == "    a\nb"


def test_tools_may_be_absent_or_given_and_json_is_not_escaped_for_html() -> None:
    source = "{% if tools %}{{ tools | tojson }}{% else %}none{% endif %}"
    template = ChatTemplate(source, TOKENS)
    assert template.render(MESSAGES) == "none"
    assert template.render(MESSAGES, tools=[{"name": "<f>é"}]) == '[{"name": "<f>é"}]'


def test_variables_loop_controls_generation_blocks_and_dates_work() -> None:
    assert render("{{ enable_thinking }}", enable_thinking=False) == "False"
    assert render("{% for x in [1, 2] %}{{ x }}{% break %}{% endfor %}") == "1"
    assert render("{% generation %}words{% endgeneration %}") == "words"
    assert render("{{ strftime_now('%Y') }}") == str(datetime.datetime.now().year)


def test_a_syntax_error_is_refused_at_start_with_its_line() -> None:
    with pytest.raises(ConfigError, match="syntax error in line 2"):
        ChatTemplate("fine\n{% if %}", TOKENS)


def test_a_template_that_raises_answers_with_its_own_words() -> None:
    with pytest.raises(RequestError, match="roles must alternate") as caught:
        render("{{ raise_exception('roles must alternate') }}")
    assert caught.value.field == "messages"


@pytest.mark.parametrize(
    "source",
    ["{{ messages[3]['content'] + 1 }}", "{{ nothing.at.all }}", "{{ 1 / 0 }}"],
    ids=["index", "attribute", "arithmetic"],
)
def test_a_template_that_fails_is_the_requests_error(source: str) -> None:
    with pytest.raises(RequestError, match="fails on these messages"):
        render(source)


@pytest.mark.parametrize("source", ["{{ messages.__class__.__mro__ }}", "{{ messages.append(1) }}"])
def test_a_template_cannot_leave_its_sandbox(source: str) -> None:
    with pytest.raises(RequestError, match="SecurityError"):
        render(source)


def test_the_callers_messages_are_not_changed() -> None:
    message = {"role": "user", "content": "x"}
    ChatTemplate("{{ messages }}", TOKENS).render([message])
    assert message == {"role": "user", "content": "x"}


def test_a_template_is_given_as_a_file_or_inline(tmp_path: Path) -> None:
    path = tmp_path / "chat.jinja"
    path.write_text("{{ messages }}")
    assert resolve_chat_template(str(path)) == "{{ messages }}"
    assert resolve_chat_template("{{ inline }}") == "{{ inline }}"


def test_a_misspelt_template_file_is_refused() -> None:
    with pytest.raises(ConfigError, match="neither a readable file"):
        resolve_chat_template("no/such/file.jinja")

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from dougong.cli.sampling_options import with_sampling_options
from dougong.errors import ConfigError, RequestError
from dougong.messages import StructuredOutput
from dougong.messages.request import SamplingParams


def params_of(*arguments: str) -> SamplingParams:
    """What a command with these options is given."""
    found: list[SamplingParams] = []

    def command(params: SamplingParams, text: str = "x") -> None:
        assert text == "x"
        found.append(params)

    app = typer.Typer()
    app.command()(with_sampling_options(command))
    result = CliRunner().invoke(app, arguments, catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return found[0]


def test_without_options_the_likeliest_tokens_are_taken() -> None:
    assert params_of() == SamplingParams(max_tokens=256, temperature=0.0)


def test_every_option_reaches_its_parameter() -> None:
    given: dict[str, Any] = {
        "max_tokens": 9, "min_tokens": 2, "temperature": 0.5, "top_p": 0.9, "top_k": 5,
        "min_p": 0.1, "repetition_penalty": 1.5, "frequency_penalty": 0.5,
        "presence_penalty": -1.0, "seed": 3, "logprobs": 2, "prompt_logprobs": 1,
    }  # fmt: skip
    options = [f"--{name.replace('_', '-')}={value}" for name, value in given.items()]
    repeatable = (
        "--stop=x", "--stop=y", "--stop-token-id=5", "--logit-bias=7=2.5", "--logit-bias=8=-100",
        "--allowed-token-ids=7,8", "--bad-word=bad", "--bad-word=worse", "--ignore-eos",
    )  # fmt: skip
    expected = SamplingParams(
        **given, stop=("x", "y"), stop_token_ids=[5], logit_bias={7: 2.5, 8: -100},
        allowed_token_ids=[7, 8], bad_words=("bad", "worse"), ignore_eos=True,
    )  # fmt: skip
    assert params_of(*options, *repeatable) == expected


def test_the_form_of_an_answer_is_given_as_text_or_as_a_file(tmp_path: Path) -> None:
    schema, grammar = '{"type": "integer"}', 'start: "a" | "b"'
    (tmp_path / "schema.json").write_text(schema)
    (tmp_path / "answer.lark").write_text(grammar)
    forms = {
        f"--json-schema={schema}": StructuredOutput(json_schema=schema),
        f"--json-schema={tmp_path / 'schema.json'}": StructuredOutput(json_schema=schema),
        f"--grammar={tmp_path / 'answer.lark'}": StructuredOutput(grammar=grammar),
        f"--grammar={grammar}": StructuredOutput(grammar=grammar),
        "--json-object": StructuredOutput(json_object=True),
        "--regex=a+": StructuredOutput(regex="a+"),
    }
    for option, expected in forms.items():
        assert params_of(option).structured_output == expected
    assert params_of("--choice=yes", "--choice=no").structured_output == StructuredOutput(
        choice=("yes", "no")
    )


@pytest.mark.parametrize(
    ("options", "error", "says"),
    [
        (("--logit-bias", "7"), ConfigError, "Write ID=BIAS"),
        (("--logit-bias", "a=1"), ConfigError, "Write ID=BIAS"),
        (("--logit-bias", "7=200"), RequestError, "logit_bias"),
        (("--allowed-token-ids", "1,x"), ConfigError, "between commas"),
        (("--min-p", "2"), RequestError, "min_p"),
        (("--regex", "a", "--json-object"), RequestError, "json_object and regex"),
        (("--json-schema", "no.json"), RequestError, "json_schema is not JSON"),
        (("--choice", ""), RequestError, "choice"),
        (("--regex", "a", "--ignore-eos"), RequestError, "ignore_eos"),
    ],
    ids=str,
)
def test_an_option_that_is_malformed_or_out_of_range_is_refused(
    options: tuple[str, ...], error: type[Exception], says: str
) -> None:
    with pytest.raises(error, match=says):
        params_of(*options)


def test_a_file_that_is_no_text_is_refused_by_its_option(tmp_path: Path) -> None:
    path = tmp_path / "schema.json"
    path.write_bytes(b"\xff\xfe")
    with pytest.raises(ConfigError, match="--json-schema"):
        params_of(f"--json-schema={path}")

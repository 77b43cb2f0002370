from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.support.command_line import run_command
from tests.support.null_engine import NullModels

Capture = pytest.CaptureFixture[str]


@pytest.fixture
def model(null_models: NullModels) -> str:
    return null_models.write({"A": "an answer, 好", "<|im_start|>": "a reply"})


@pytest.mark.parametrize("flag", ["--stream", "--no-stream"])
def test_the_text_goes_to_the_output_and_the_summary_beside_it(
    model: str, capsys: Capture, flag: str
) -> None:
    assert run_command("generate", "A", "--model", model, "--platform", "null", flag) == 0
    shown = capsys.readouterr()
    assert shown.out == "an answer, 好\n"
    for word in ("tokens/s", "platform null", "float32", "memory:", "first"):
        assert word in shown.err


def test_the_prompt_may_be_an_option(model: str, capsys: Capture) -> None:
    arguments = ("--prompt", "A", "--max-tokens", "2")
    assert run_command("generate", *arguments, "--model", model, "--platform", "null") == 0
    assert capsys.readouterr().out == "an\n"


def test_a_question_goes_through_the_template(model: str, capsys: Capture) -> None:
    arguments = ("--chat", "why?", "--system", "be brief", "--json")
    assert run_command("generate", *arguments, "--model", model, "--platform", "null") == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["text"] == "a reply"
    assert "be brief" in answer["prompt"]


def test_json_holds_the_answer_the_numbers_and_every_decision(model: str, capsys: Capture) -> None:
    assert run_command("generate", "A", "--json", "--model", model, "--platform", "null") == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["text"] == "an answer, 好"
    assert answer["finish_reason"] == "stop"
    assert answer["metrics"]["num_output_tokens"] == len(answer["token_ids"])
    assert answer["metrics"]["time_to_first_token_s"] > 0
    decisions = {item["field"]: item for item in answer["start"]["decisions"]}
    assert decisions["max_num_seqs"]["author"] == "command generate"
    assert decisions["max_num_seqs"]["value"] == 1
    assert answer["platform"] == "null"


def test_a_stop_string_is_obeyed(model: str, capsys: Capture) -> None:
    arguments = ("A", "--stop", "swer", "--model", model, "--platform", "null")
    assert run_command("generate", *arguments) == 0
    assert capsys.readouterr().out == "an an\n"


@pytest.mark.parametrize(
    "arguments",
    [
        (),
        ("A", "--chat", "b"),
        ("A", "--prompt", "b"),
        ("A", "--system", "s"),
        ("A", "--chat-template", "{{ messages }}"),
    ],
)
def test_a_command_that_asks_nothing_or_twice_is_refused(
    model: str, arguments: tuple[str, ...]
) -> None:
    assert run_command("generate", *arguments, "--model", model, "--platform", "null") == 2


def test_an_empty_name_of_a_platform_is_refused(model: str, capsys: Capture) -> None:
    assert run_command("generate", "A", "--model", model, "--platform", "") == 2
    assert "platform='' is empty" in capsys.readouterr().err


def test_the_users_own_number_of_requests_stays_the_users(model: str, capsys: Capture) -> None:
    arguments = ("A", "--json", "--model", model, "--platform", "null", "--max-num-seqs", "3")
    assert run_command("generate", *arguments) == 0
    decisions = json.loads(capsys.readouterr().out)["start"]["decisions"]
    (decision,) = [item for item in decisions if item["field"] == "max_num_seqs"]
    assert (decision["value"], decision["author"]) == (3, "user")


def test_a_request_that_can_never_be_served_ends_with_its_own_code(
    model: str, capsys: Capture
) -> None:
    arguments = ("A" * 300, "--model", model, "--platform", "null")
    assert run_command("generate", *arguments) == 4
    assert "at most 255" in capsys.readouterr().err.splitlines()[-1]


def test_the_start_report_is_logged_when_asked_for(model: str, capsys: Capture) -> None:
    arguments = ("generate", "A", "--model", model, "--platform", "null")
    assert run_command(*arguments) == 0
    assert "max_model_len" not in capsys.readouterr().err
    assert run_command(*arguments, "-v") == 0
    assert "max_model_len = 256 [checkpoint]" in capsys.readouterr().err


def test_a_saved_plan_is_insisted_on(model: str, tmp_path: Path, capsys: Capture) -> None:
    path = str(tmp_path / "plan.json")
    asked = ("--platform", "null", "--block-size", "8", "--save", path)
    assert run_command("explain", model, *asked) == 0
    arguments = ("generate", "A", "--model", model, "--plan", path, "--json")
    capsys.readouterr()
    assert run_command(*arguments) == 0
    start = json.loads(capsys.readouterr().out)["start"]
    assert (start["platform"], start["block_size"]) == ("null", 8)
    decisions = {item["field"]: item for item in start["decisions"]}
    assert decisions["max_num_seqs"]["author"] == f"plan {path}"
    assert run_command(*arguments, "--block-size", "4") == 2
    assert "block_size=4 was asked for, and the plan was made with block_size=8" in (
        capsys.readouterr().err
    )


def test_an_option_that_cannot_be_obeyed_is_refused_with_its_reasons(
    model: str, capsys: Capture
) -> None:
    arguments = ("A", "--model", model, "--platform", "null", "--op", "linear=acme/mm", "--op", "x")
    assert run_command("generate", *arguments) == 2
    assert "--op 'x' is malformed" in capsys.readouterr().err
    assert run_command("generate", *arguments[:-2]) == 2
    assert "acme/mm" in capsys.readouterr().err


def test_help_lists_the_options_of_command_and_engine(
    capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "120")
    assert run_command("generate", "--help") == 0
    shown = capsys.readouterr().out
    for option in ("--chat", "--max-tokens", "--platform", "--kv-cache-dtype", "Examples"):
        assert option in shown


def test_log_probabilities_are_shown_with_json_alone(model: str, capsys: Capture) -> None:
    arguments = ("A", "--model", model, "--platform", "null", "--max-tokens", "2")
    assert run_command("generate", *arguments, "--logprobs", "1") == 2
    assert "--json" in capsys.readouterr().err
    asked = ("--json", "--logprobs", "1", "--prompt-logprobs", "0")
    assert run_command("generate", *arguments[1:], "--prompt", "AB", *asked) == 0
    answer = json.loads(capsys.readouterr().out)
    assert [one["token_id"] for one in answer["logprobs"]] == answer["token_ids"]
    first, *rest = answer["prompt_logprobs"]
    assert first is None
    assert [one["token_id"] for one in rest] == answer["prompt_token_ids"][1:]

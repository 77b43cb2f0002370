"""What cannot be followed is refused, with the library's reason; what would take for ever, too."""

from __future__ import annotations

import gc
import json
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

from dougong.errors import RequestError
from dougong.grammar import GrammarTrial
from dougong.messages import StructuredOutput
from tests.unit.grammar.tiny import vocabulary

DEEP = "{}"
for _ in range(30):
    DEEP = json.dumps({"type": "object", "properties": {"a": json.loads(DEEP)}})
ENDLESS = [{"type": "string", "pattern": f".*{chr(97 + one)}.*"} for one in range(26)]
COSTLY = StructuredOutput(json_schema=json.dumps({"allOf": ENDLESS}))


@pytest.fixture(scope="module")
def trial() -> Iterator[GrammarTrial]:
    made = GrammarTrial(vocabulary)
    yield made
    made.close()


@pytest.mark.parametrize(
    "fields",
    [
        {"json_schema": DEEP},
        {"json_schema": '{"properties":{"next":{"$ref":"#"}}}'},
        {"json_schema": "{}"},
        {"json_object": True},
        {"regex": r"(\w+\s){1,20}"},
        {"regex": "a/b\n|c"},
        {"regex": "a"},
        {"choice": ["yes"]},
        {"json_schema": '{"const": 1}'},
        {"json_schema": '{"type": "null"}'},
        {"choice": ['"', "\\", "\n", "/", "\N{GRINNING FACE}", "\u2028"]},
        {"choice": [f"choice {number}" for number in range(1024)]},
        {"grammar": 'start: "a" start | "b"'},
        {"grammar": 'start: "a" <turn>'},
    ],
)
def test_what_can_be_followed_is_taken(trial: GrammarTrial, fields: dict[str, Any]) -> None:
    trial.check(StructuredOutput(**fields))


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"json_schema": '{"type":"objec"}'}, "Invalid type: objec"),
        ({"json_schema": '{"type":"array","uniqueItems":true}'}, "uniqueItems"),
        ({"json_schema": '{"type":"integer","minimum":5,"maximum":3}'}, "greater than maximum"),
        ({"json_schema": '{"pattern":"(?=a)"}'}, "look-around"),
        ({"json_schema": '{"$ref":"http://example.org/schema"}'}, "http://example.org/schema"),
        ({"regex": "("}, "unclosed group"),
        ({"regex": "a(?=b)"}, "look-around"),
        ({"regex": r"(a)\1"}, "backreferences"),
        ({"regex": r"[^\s\S]"}, "no text fits it"),
        ({"grammar": "start: foo"}, "unknown name"),
        ({"grammar": 'root ::= "a"'}, "Expected token"),
        ({"grammar": 'start: "a" <nowhere>'}, "unknown special token"),
    ],
)
def test_what_cannot_is_refused_by_its_field_with_the_reason(
    trial: GrammarTrial, fields: dict[str, Any], reason: str
) -> None:
    with pytest.raises(RequestError, match="cannot be followed") as caught:
        trial.check(StructuredOutput(**fields))
    assert {caught.value.field} == set(fields)
    assert reason in str(caught.value)
    assert "\n" not in str(caught.value)
    assert "following special tokens" not in str(caught.value)


def test_a_reason_is_never_longer_than_a_paragraph(trial: GrammarTrial) -> None:
    with pytest.raises(RequestError) as caught:
        trial.check(StructuredOutput(regex="(" + "a" * 8000))
    assert len(str(caught.value)) < 700


def test_what_would_take_hours_is_refused_in_seconds_and_the_next_is_served(
    trial: GrammarTrial,
) -> None:
    trial.check(StructuredOutput(regex="before"))
    process = trial._process
    with pytest.raises(RequestError, match="takes more than") as caught:
        trial.check(COSTLY)
    assert caught.value.field == "json_schema"
    trial.check(StructuredOutput(regex="after"))
    assert trial._process is not process


def test_what_was_found_good_is_not_tried_again(
    trial: GrammarTrial, monkeypatch: pytest.MonkeyPatch
) -> None:
    trial.check(StructuredOutput(regex="once"))
    monkeypatch.setattr(trial, "_answer", lambda line: pytest.fail("asked again"))
    trial.check(StructuredOutput(regex="once"))


def test_nothing_is_started_before_the_first_and_closing_ends_it() -> None:
    trial = GrammarTrial(vocabulary)
    assert trial._process is None
    trial.close()
    trial.check(StructuredOutput(regex="a"))
    process = trial._process
    assert process is not None
    trial.close()
    trial.close()
    assert process.returncode is not None


def test_a_forgotten_trial_leaves_no_process() -> None:
    trial = GrammarTrial(vocabulary)
    trial.check(StructuredOutput(regex="a"))
    process = trial._process
    assert process is not None
    del trial
    gc.collect()
    assert process.returncode is not None


def test_closing_does_not_wait_for_a_wish_that_takes_long() -> None:
    trial = GrammarTrial(vocabulary)
    trial.check(StructuredOutput(regex="a"))
    refused: list[RequestError] = []

    def check() -> None:
        try:
            trial.check(COSTLY)
        except RequestError as exc:
            refused.append(exc)

    thread = threading.Thread(target=check)
    thread.start()
    while not trial._lock.locked():
        time.sleep(0.001)
    trial.close()
    thread.join(10)
    assert len(refused) == 1


def test_neither_torch_nor_the_library_is_imported_where_wishes_are_sent_from() -> None:
    code = (
        "import sys, dougong.grammar as g\n"
        "from dougong.messages import StructuredOutput\n"
        "v = g.GrammarVocabulary([b'a', b''], frozenset(), frozenset({1}), list)\n"
        "t = g.GrammarTrial(lambda: v); t.check(StructuredOutput(regex='a'))\n"
        "assert not {'llguidance', 'torch'} & set(sys.modules)\n"
    )
    subprocess.run([sys.executable, "-W", "error", "-c", code], check=True)

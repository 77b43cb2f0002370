from __future__ import annotations

from collections.abc import Generator, Sequence

import pytest

from dougong.cli.chatting.session import HELP, AnswerStats, ChatSession, Message
from dougong.errors import EngineDeadError, RequestError


class ScriptedTerminal:
    """Lines by script; an exception among them is raised."""

    def __init__(self, *lines: str | BaseException) -> None:
        self._lines = list(lines)
        self.prompts: list[str] = []
        self.text = ""
        self.notes: list[str] = []

    def read(self, prompt: str) -> str:
        self.prompts.append(prompt)
        if not self._lines:
            raise EOFError
        line = self._lines.pop(0)
        if isinstance(line, BaseException):
            raise line
        return line

    def write(self, text: str) -> None:
        self.text += text

    def note(self, text: str) -> None:
        self.notes.append(text)


class Echo:
    """Repeats the question; raises ``error`` after the first piece, or before it."""

    def __init__(self, error: BaseException | None = None, *, is_early: bool = False) -> None:
        self.error, self.is_early = error, is_early
        self.seen: list[list[Message]] = []
        self.num_closed = 0

    def answer(self, messages: Sequence[Message], stats: AnswerStats) -> Generator[str]:
        self.seen.append(list(messages))
        try:
            if self.error is not None and self.is_early:
                raise self.error
            yield "you said "
            if self.error is not None:
                raise self.error
            yield messages[-1]["content"]
            stats.num_tokens, stats.finish_reason = 5, "length"
        finally:
            self.num_closed += 1


def talk(*lines: str | BaseException, echo: Echo | None = None) -> tuple[ScriptedTerminal, Echo]:
    terminal, echo = ScriptedTerminal(*lines), echo or Echo()
    ChatSession(echo, terminal).run()
    return terminal, echo


def contents(messages: Sequence[Message]) -> list[str]:
    return [f"{one['role']}: {one['content']}" for one in messages]


def test_every_question_goes_with_all_that_was_said_before() -> None:
    terminal, echo = talk("hello", "", "again")
    assert terminal.text == "you said hello\nyou said again\n"
    assert contents(echo.seen[1]) == ["user: hello", "assistant: you said hello", "user: again"]


def test_an_answer_is_followed_by_its_numbers_unless_they_are_off() -> None:
    terminal, _ = talk("hello")
    (line,) = terminal.notes
    assert line.startswith("(5 tokens, first after ")
    assert line.endswith("tokens/s, cut off by --max-tokens)")
    quiet = ScriptedTerminal("hello")
    ChatSession(Echo(), quiet, has_stats=False).run()
    assert quiet.notes == []


def test_reset_forgets_and_a_system_message_begins_anew() -> None:
    _, echo = talk("a", "/reset", "b", "/system Be brief.", "c", "/system", "d")
    assert [contents(one) for one in echo.seen[1:]] == [
        ["user: b"],
        ["system: Be brief.", "user: c"],
        ["user: d"],
    ]


def test_undo_takes_the_last_turn_back() -> None:
    terminal, echo = talk("/undo", "a", "b", "/undo", "c")
    assert terminal.notes[0] == "(nothing was said yet)"
    assert contents(echo.seen[-1]) == ["user: a", "assistant: you said a", "user: c"]


def test_quit_and_the_end_of_input_end_it_and_what_is_unknown_is_told() -> None:
    terminal, echo = talk("/what", "/help", "/quit", "never read")
    assert terminal.notes == [f"There is no command /what. {HELP}", HELP]
    assert echo.seen == []
    assert len(terminal.prompts) == 3


def test_a_backslash_lets_a_message_go_on() -> None:
    terminal, echo = talk("one\\", "two")
    assert echo.seen[0][-1]["content"] == "one\ntwo"
    assert terminal.prompts[:2] == ["> ", ". "]


def test_an_interrupt_ends_the_answer_and_keeps_what_there_is_of_it() -> None:
    terminal, echo = talk("hello", "again", echo=Echo(KeyboardInterrupt()))
    assert terminal.text == "you said \nyou said \n"
    assert terminal.notes[0].endswith("interrupted)")
    assert contents(echo.seen[1])[:2] == ["user: hello", "assistant: you said "]
    assert echo.num_closed == 2


def test_an_interrupt_at_the_prompt_ends_nothing() -> None:
    terminal, echo = talk(KeyboardInterrupt(), "hello")
    assert terminal.notes[0] == "(/quit or Ctrl-D ends)"
    assert len(echo.seen) == 1


def test_a_refused_question_is_told_and_forgotten() -> None:
    echo = Echo(RequestError("too long"), is_early=True)
    terminal, _ = talk("hello", "again", echo=echo)
    assert terminal.notes == ["too long", "too long"]
    assert contents(echo.seen[1]) == ["user: again"]


def test_an_engine_that_died_ends_the_conversation() -> None:
    with pytest.raises(EngineDeadError):
        talk("hello", echo=Echo(EngineDeadError("gone")))

"""A conversation in a terminal: its turns, its commands, its answers as they come."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from typing import Protocol

from dougong.errors import CapacityError, RequestError

Message = dict[str, str]

HELP = (
    "/reset forgets the conversation; /system TEXT sets the system message and begins anew "
    "(/system alone: none); /undo takes the last turn back; /quit or Ctrl-D ends. "
    "Ctrl-C ends an answer. Anything else is a message; a line that ends with \\ goes on."
)


@dataclass(slots=True)
class AnswerStats:
    """What is known of an answer once it has ended.

    Attributes:
        num_tokens: Of it; ``None``: the server does not say.
        finish_reason: ``length`` where it was cut off.
    """

    num_tokens: int | None = None
    finish_reason: str | None = None


class Answerer(Protocol):
    """A model that answers conversations, here or elsewhere."""

    def answer(self, messages: Sequence[Message], stats: AnswerStats) -> Generator[str]:
        """Pieces of the answer as they come; closing it ends the request.

        Raises:
            RequestError: The conversation can never be answered.
            CapacityError: Not now.
        """
        ...


class Terminal(Protocol):
    """Where a conversation takes place."""

    def read(self, prompt: str) -> str:
        """One line.

        Raises:
            EOFError: There is no more.
            KeyboardInterrupt: The user wants to begin the line anew.
        """
        ...

    def write(self, text: str) -> None:
        """Part of an answer."""
        ...

    def note(self, text: str) -> None:
        """A line that is no part of an answer."""
        ...


@dataclass(slots=True)
class ChatSession:
    """Reads messages, writes answers.

    Attributes:
        answerer: The model.
        terminal: Where.
        system: Message before the first turn.
        turns: What was said since; whole pairs only.
        has_stats: Write a line of numbers below each answer.
    """

    answerer: Answerer
    terminal: Terminal
    system: str | None = None
    has_stats: bool = True
    turns: list[Message] = field(default_factory=list)

    def run(self) -> None:
        """Until the user leaves."""
        while True:
            try:
                text = self._read()
            except EOFError:
                return
            except KeyboardInterrupt:
                self.terminal.note("(/quit or Ctrl-D ends)")
                continue
            if text == "/quit":
                return
            if text.startswith("/"):
                self._obey(text)
            elif text:
                self._answer(text)

    def _read(self) -> str:
        """A message, whose lines but the last end with a backslash."""
        lines = [self.terminal.read("> ")]
        while lines[-1].endswith("\\"):
            lines[-1] = lines[-1][:-1]
            lines.append(self.terminal.read(". "))
        return "\n".join(lines).strip()

    def _obey(self, text: str) -> None:
        word, _, rest = text.partition(" ")
        commands: dict[str, Callable[[str], str]] = {
            "/reset": self._reset,
            "/system": self._set_system,
            "/undo": self._undo,
            "/help": lambda _: HELP,
        }
        if (command := commands.get(word)) is None:
            self.terminal.note(f"There is no command {word}. {HELP}")
        else:
            self.terminal.note(command(rest.strip()))

    def _reset(self, _: str) -> str:
        self.turns.clear()
        return "(a new conversation)"

    def _set_system(self, text: str) -> str:
        self.system = text or None
        self.turns.clear()
        return "(a new conversation, " + ("with" if text else "without") + " a system message)"

    def _undo(self, _: str) -> str:
        if not self.turns:
            return "(nothing was said yet)"
        del self.turns[-2:]
        return f"({len(self.turns) // 2} turns are left)"

    def _answer(self, text: str) -> None:
        question = {"role": "user", "content": text}
        before = [] if self.system is None else [{"role": "system", "content": self.system}]
        stats, pieces = AnswerStats(), list[str]()
        asked_s, first_s = time.perf_counter(), None
        try:
            with closing(self.answerer.answer([*before, *self.turns, question], stats)) as answer:
                for piece in answer:
                    first_s = first_s or time.perf_counter()
                    pieces.append(piece)
                    self.terminal.write(piece)
        except KeyboardInterrupt:
            stats.finish_reason = "interrupted"
        except (RequestError, CapacityError) as error:
            self.terminal.note(f"{error}")
            if not pieces:
                return
        self.terminal.write("\n")
        self.turns += [question, {"role": "assistant", "content": "".join(pieces)}]
        if self.has_stats:
            self.terminal.note(_line(stats, asked_s, first_s))


def _line(stats: AnswerStats, asked_s: float, first_s: float | None) -> str:
    now_s = time.perf_counter()
    if first_s is None:
        return f"(no text in {now_s - asked_s:.2f} s)"
    parts = [f"first after {first_s - asked_s:.2f} s"]
    if stats.num_tokens is not None:
        parts.insert(0, f"{stats.num_tokens} tokens")
        if stats.num_tokens > 1 and now_s > first_s:
            parts.append(f"then {(stats.num_tokens - 1) / (now_s - first_s):.1f} tokens/s")
    if stats.finish_reason not in (None, "stop"):
        told = {"length": "cut off by --max-tokens", "interrupted": "interrupted"}
        parts.append(told.get(str(stats.finish_reason), str(stats.finish_reason)))
    return f"({', '.join(parts)})"

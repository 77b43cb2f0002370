"""Wishes tried out where they can do no harm, before an engine hears of them."""

from __future__ import annotations

import json
import select
import subprocess
import sys
import threading
import weakref
from collections import OrderedDict
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict

from dougong.errors import RequestError
from dougong.grammar.refusal import refusal
from dougong.grammar.trial_process import CPU_S, written
from dougong.grammar.vocabulary import GrammarVocabulary
from dougong.messages import StructuredOutput

_WALL_S = 60.0  # for a machine that is busy; the process ends by its processor time long before
_NUM_KEPT = 256
_TOO_COSTLY = f"it takes more than {CPU_S} s to compile, or too much memory"


class GrammarTrial:
    """One process that tries out wishes, started by the first and after each that it did not
    survive. Thread-safe; one wish at a time.

    Args:
        make_vocabulary: Of the model; called by the first wish, in its thread.
    """

    def __init__(self, make_vocabulary: Callable[[], GrammarVocabulary]) -> None:
        self._make_vocabulary = make_vocabulary
        self._lock = threading.Lock()
        self._vocabulary: str | None = None
        self._process: subprocess.Popen[str] | None = None
        self._finalizer: weakref.finalize[[subprocess.Popen[str]], GrammarTrial] | None = None
        self._good: OrderedDict[StructuredOutput, None] = OrderedDict()

    def check(self, wish: StructuredOutput) -> None:
        """Refuse a wish that cannot be followed, or not at a reasonable cost.

        Takes milliseconds, and nothing for one that was seen lately; the first one starts the
        process, and one that costs too much takes seconds.

        Raises:
            RequestError: Names the field and the library's reason.
        """
        if wish in self._good:
            return
        line = json.dumps({key: one for key, one in asdict(wish).items() if one is not None})
        with self._lock:
            answer = self._answer(line)
            if answer is None:
                self._end()
                raise refusal(wish.kind, _TOO_COSTLY)
            if reason := json.loads(answer):
                raise RequestError(reason, field=wish.kind)
            self._good[wish] = None
            if len(self._good) > _NUM_KEPT:
                self._good.popitem(last=False)

    def close(self) -> None:
        """End the process, if there is one; whoever waits for it is refused."""
        if (process := self._process) is not None:
            process.kill()
        with self._lock:
            self._end()

    def _answer(self, line: str) -> str | None:
        """The process's line; ``None`` where it ended or takes too long."""
        if self._process is None or self._process.poll() is not None:
            self._end()
            self._start()
        process = self._process
        assert process is not None, "just started"
        assert process.stdin is not None, "pipes"
        assert process.stdout is not None, "pipes"
        try:
            process.stdin.write(line + "\n")
            process.stdin.flush()
        except BrokenPipeError:
            return None
        is_there, _, _ = select.select([process.stdout], [], [], _WALL_S)
        return process.stdout.readline() or None if is_there else None

    def _start(self) -> None:
        if self._vocabulary is None:
            self._vocabulary = written(self._make_vocabulary())
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-m", "dougong.grammar.trial_process"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        self._finalizer = weakref.finalize(self, _end_process, self._process)
        assert self._process.stdin is not None, "pipes"
        self._process.stdin.write(self._vocabulary + "\n")

    def _end(self) -> None:
        self._process = None
        if self._finalizer is not None:
            self._finalizer()


def _end_process(process: subprocess.Popen[str]) -> None:
    process.kill()
    for pipe in (process.stdin, process.stdout):
        if pipe is not None:
            with suppress(OSError):  # what was not written yet finds nobody
                pipe.close()
    process.wait()

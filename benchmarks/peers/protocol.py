"""The JSON-lines protocol between `benchmarks.peers.run` and one runner process.

A runner lives in the environment of its peer, so this file needs the standard library only. One
request per line on standard input, one answer per line on standard output:

    {"command": "load", "options": {...}}  ->  {"event": "ready", "load_s": ..., "versions": {...}}
    {"command": "run", "point": {...}}     ->  {"event": "measured", "seconds": ..., ...}
    {"command": "quit"}                    ->  (the process ends)

Anything that fails answers ``{"event": "error", "error": ..., "traceback": ...}``.
"""

from __future__ import annotations

import importlib.metadata
import json
import os
import random
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Protocol, TextIO


@dataclass(frozen=True, slots=True)
class Point:
    """One piece of work.

    Attributes:
        num_requests: All submitted at once.
        prompt_len: Tokens per prompt.
        output_len: Tokens generated per request, end-of-text ignored, greedy.
        repeat: Which repetition; each one gets prompts of its own, the same for every contender.
    """

    num_requests: int
    prompt_len: int
    output_len: int
    repeat: int = 0

    def prompts(self) -> list[list[int]]:
        """Token ids, drawn without the first (special) ids; no two prompts share a prefix."""
        seed = f"{self.num_requests}/{self.prompt_len}/{self.output_len}/{self.repeat}"
        draw = random.Random(seed)
        return [
            [draw.randrange(FIRST_ORDINARY_ID, LAST_ORDINARY_ID) for _ in range(self.prompt_len)]
            for _ in range(self.num_requests)
        ]


FIRST_ORDINARY_ID, LAST_ORDINARY_ID = 100, 49_000
"""Inside the vocabulary of the demo model (49,152), away from its special tokens."""


@dataclass(frozen=True, slots=True)
class Measurement:
    """What one run took.

    Attributes:
        seconds: From submitting the first request to holding the last token.
        output_tokens: Generated, over all requests.
        prefill_s: Until every request had its first token.
        decode_s: The rest.
        first_tokens: How the first answer begins, to see that contenders do the same work.
    """

    seconds: float
    output_tokens: int
    prefill_s: float
    decode_s: float
    first_tokens: tuple[int, ...] = ()

    @classmethod
    def of(
        cls, seconds: float, prefill_s: float, generated: Sequence[Sequence[int]]
    ) -> Measurement:
        """From the two times every contender takes, and what each request generated."""
        return cls(
            seconds=seconds,
            output_tokens=sum(map(len, generated)),
            prefill_s=prefill_s,
            decode_s=seconds - prefill_s,
            first_tokens=tuple(generated[0][:8]),
        )


class Runner(Protocol):
    """One contender inside its own process."""

    def load(self, options: dict[str, Any]) -> dict[str, Any]:
        """Load the model and return facts worth keeping (threads, modes); may take minutes."""
        ...

    def run(self, point: Point) -> Measurement:
        """Do the work once."""
        ...

    def close(self) -> None:
        """Free what would keep the process alive."""
        ...


def serve(make_runner: Callable[[], Runner], packages: tuple[str, ...]) -> None:
    """Answer requests until ``quit`` or the end of input.

    Args:
        make_runner: Called once, at ``load``, so that a failing import is answered, not lost.
        packages: Distributions whose versions are reported.
    """
    answers = take_standard_output()
    runner: Runner | None = None
    for line in sys.stdin:
        request = json.loads(line)
        try:
            match request["command"]:
                case "load":
                    start = time.perf_counter()
                    runner = make_runner()
                    details = runner.load(request["options"])
                    load_s = time.perf_counter() - start
                    answer = {"event": "ready", "load_s": load_s, "details": details}
                    answer["versions"] = versions(packages)
                case "run" if runner is not None:
                    answer = {"event": "measured"}
                    answer |= asdict(runner.run(Point(**request["point"])))
                case "quit":
                    break
                case other:
                    raise ValueError(f"command {other!r} is unknown here; load comes first")
        except Exception as exc:  # noqa: BLE001 - third-party code; the reason is sent on
            error = f"{type(exc).__name__}: {exc}"
            answer = {"event": "error", "error": error, "traceback": traceback.format_exc()}
        answers.write(json.dumps(answer) + "\n")
        answers.flush()
    if runner is not None:
        runner.close()


def take_standard_output() -> TextIO:
    """Keep standard output for answers; what anyone else prints goes to standard error."""
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    return answers


def versions(packages: tuple[str, ...]) -> dict[str, str]:
    """Version of each installed distribution among ``packages``."""
    found = {}
    for name in packages:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found

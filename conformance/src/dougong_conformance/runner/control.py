"""The judge's requests for executors, over a channel that can carry a connection along."""

from __future__ import annotations

import json
import socket
from typing import Any

from dougong_conformance.outcomes import Outcome
from dougong_conformance.runner.executors import ExecutorOrder, Loss, OwnExecutors

_MAX_MESSAGE = 1 << 16


class ControlledExecutors:
    """Executors of another process: it starts and ends them, this one speaks with them.

    Args:
        control: SEQPACKET channel to that process; used by one thread at a time.
    """

    def __init__(self, control: socket.socket) -> None:
        self._control = control

    def start(self, order: ExecutorOrder) -> tuple[int, socket.socket]:
        """Ask for one; its connection comes with the answer."""
        answer, fds = self._ask({"do": "start", "order": order.to_json()})
        return answer["number"], socket.socket(fileno=fds[0])

    def why(self, number: int, because: str = "", outcome: Outcome = Outcome.CRASH) -> Loss:
        """Ask what became of one."""
        told = {"because": because, "outcome": outcome.value}
        answer, _ = self._ask({"do": "why", "number": number, **told})
        return Loss(answer["reason"], Outcome(answer["outcome"]), answer["log"])

    def kill(self, number: int) -> None:
        """Have one killed."""
        self._ask({"do": "kill", "number": number})

    def end(self, number: int) -> None:
        """Say that one is needed no more."""
        self._ask({"do": "end", "number": number})

    def _ask(self, request: dict[str, Any]) -> tuple[dict[str, Any], list[int]]:
        self._control.sendall(json.dumps(request).encode())
        message, fds, _, _ = socket.recv_fds(self._control, _MAX_MESSAGE, 1)
        if not message:
            raise SystemExit("the supervisor is gone")
        return dict(json.loads(message)), list(fds)


def answer_request(control: socket.socket, executors: OwnExecutors) -> bool:
    """Read one request and do it; ``False``: the judge has closed its end."""
    try:
        message = control.recv(_MAX_MESSAGE)
        if message:
            _answer(control, executors, json.loads(message))
    except ConnectionError:
        return False
    return bool(message)


def _answer(control: socket.socket, executors: OwnExecutors, request: dict[str, Any]) -> None:
    match request["do"]:
        case "start":
            number, connection = executors.start(ExecutorOrder(**request["order"]))
            with connection:
                _reply(control, {"number": number}, [connection.fileno()])
        case "why":
            outcome = Outcome(request["outcome"])
            loss = executors.why(request["number"], request["because"], outcome)
            _reply(
                control,
                {"reason": loss.reason, "outcome": loss.outcome.value, "log": loss.log},
            )
        case "kill":
            executors.kill(request["number"])
            _reply(control, {})
        case "end":
            executors.end(request["number"])
            _reply(control, {})
        case unknown:
            raise ValueError(f"the judge asks for {unknown!r}")


def _reply(control: socket.socket, answer: dict[str, Any], fds: list[int] | None = None) -> None:
    socket.send_fds(control, [json.dumps(answer).encode()], fds or [])

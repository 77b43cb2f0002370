"""The judge: a clean process that holds the list of cases, makes inputs, and decides each."""

from __future__ import annotations

import dataclasses
import importlib
import json
import os
import platform as machine
import secrets
import socket
import sys
import threading
import time
from collections.abc import Iterable, Iterator
from itertools import groupby
from typing import Any

from dougong_conformance.check import Case, Check, all_checks, cases_of
from dougong_conformance.kit import generate
from dougong_conformance.outcomes import BAD, Outcome, SubjectLost
from dougong_conformance.requirements import PROFILES, Requirement, all_requirements
from dougong_conformance.runner import canary
from dougong_conformance.runner.cases import LOST_KINDS, CaseEnd, repeated, run_case
from dougong_conformance.runner.clock import CaseClock
from dougong_conformance.runner.control import ControlledExecutors
from dougong_conformance.runner.extension import extension_requirements
from dougong_conformance.runner.health import is_healthy
from dougong_conformance.runner.limits import COMPILE_BUDGET_CLAIM
from dougong_conformance.runner.protocol import Setup, end_to_json
from dougong_conformance.runner.remote import RemoteSubject, SuiteFault
from dougong_conformance.runner.selection import select
from dougong_conformance.subject import Facts, SubjectRaised

_HEARTBEAT_S = 5.0
REPEATED_PROFILES = ("ops", "attention")


def main() -> None:
    """Run what the supervisor asks for; the descriptors of both channels are the arguments."""
    if sys.flags.optimize:
        raise SystemExit("the judge must not run optimized")
    control = socket.socket(fileno=int(sys.argv[1]))
    events = Events(int(sys.argv[2]))
    setup = Setup.from_json(json.loads(control.recv(1 << 20)))
    events.beat_for_ever()
    JudgeRun(setup, ControlledExecutors(control), events).run()
    events.tell("footer")
    os._exit(0)  # what was said is said: no exit handler has a part in it


class Events:
    """Writes events as lines, whole ones only, from any thread.

    Args:
        fd: To write to.
    """

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._lock = threading.Lock()

    def tell(self, event: str, **fields: Any) -> None:
        """Write one line."""
        line = json.dumps({"event": event, **fields}, default=str).encode() + b"\n"
        with self._lock:
            while line:
                line = line[os.write(self._fd, line) :]

    def beat_for_ever(self) -> None:
        """Show that this process lives, from a thread of its own."""

        def beat() -> None:
            while True:
                time.sleep(_HEARTBEAT_S)
                self.tell("heartbeat")

        threading.Thread(target=beat, daemon=True).start()


class JudgeRun:
    """One run, as the judge sees it.

    Args:
        setup: What is asked.
        executors: Who has the plugin.
        events: Where to tell.
    """

    def __init__(self, setup: Setup, executors: ControlledExecutors, events: Events) -> None:
        self._setup = setup
        self._events = events
        self._clock = CaseClock(setup.limits)
        self._subject = RemoteSubject(executors, setup.limits, clock=self._clock)
        self._lost_reason = ""

    def run(self) -> None:
        """Everything between the first event and the footer."""
        import torch

        torch.set_num_threads(1)  # the device under test has more use for the processors
        self._events.tell(
            "hello", versions={"torch": torch.__version__, "python": machine.python_version()}
        )
        checks, requirements = load_suite(self._setup.extension)
        facts = self._plugin()
        if facts is None:
            return
        self._clock.allow_compilation(compile_budget_s(facts))
        cases = {case.id: case for case in all_cases(checks, requirements, facts.dtypes)}
        chosen = select(cases, requirements, self._setup.selection)
        self._events.tell(
            "plan",
            checks=[one for one in checks if one in requirements],
            per_dtype=[one.id for one in checks.values() if one.per_dtype],
            selected=chosen,
        )
        if not self._setup.is_dry:
            self._run_all([cases[one] for one in chosen], requirements)
            self._search([cases[one] for one in chosen if cases[one].check.per_dtype])
        self._subject.close()

    def _plugin(self) -> Facts | None:
        """Load the plugin in its process and tell what it says of itself."""
        try:
            facts = self._subject.facts
        except (SubjectRaised, SubjectLost, SuiteFault, TypeError) as exc:
            raised = exc.raised if isinstance(exc, SubjectRaised) else None
            self._events.tell(
                "no_plugin",
                reason=str(exc),
                kinds=raised.kinds if raised else [type(exc).__name__],
                traceback=raised.traceback if raised else "",
            )
            return None
        seen = {**self._ask("patches.seen"), **self._ask("versions.read")}
        self._events.tell("plugin", plugin={"facts": dataclasses.asdict(facts), "seen": seen})
        return facts

    def _ask(self, procedure: str) -> dict[str, Any]:
        """Something for the header; what fails here fails in a check too."""
        self._clock.begin_case()
        try:
            return dict(self._subject.call(procedure))
        except (SubjectRaised, SubjectLost, SuiteFault, TypeError, ValueError):
            self._subject.end_of_case()
            return {}

    def _run_all(self, cases: list[Case], requirements: dict[str, Requirement]) -> None:
        for _, batch in groupby(cases, key=lambda case: case.check.profile):
            self._check_canaries()
            for case in batch:
                self._run_one(case, requirements[case.check.id])
            self._check_canaries()

    def _run_one(self, case: Case, row: Requirement) -> None:
        self._events.tell("start", id=case.id)
        if self._lost_reason:
            end = CaseEnd(id=case.id, outcome=Outcome.NOT_RUN, reason=self._lost_reason)
        else:
            end = self._run_repeatedly(case, row)
        self._events.tell("end", end=end_to_json(end))

    def _run_repeatedly(self, case: Case, row: Requirement) -> CaseEnd:
        is_repeated = row.is_core and row.profile in REPEATED_PROFILES
        ends: list[CaseEnd] = []
        for _ in range(self._setup.repeats if is_repeated else 1):
            ends.append(self._attempt(case))
            if self._lost_reason or ends[-1].outcome in (Outcome.CRASH, Outcome.TIMEOUT):
                break  # a second one would say no more, and may take as long
        return repeated(ends)

    def _attempt(self, case: Case) -> CaseEnd:
        self._clock.begin_case()
        end = run_case(case, self._subject)
        end = dataclasses.replace(end, log=self._subject.log)
        self._subject.end_of_case()
        is_suspect = end.outcome not in (Outcome.PASS, Outcome.NOT_CLAIMED, Outcome.NOT_RUN)
        if is_suspect or end.raised in LOST_KINDS:
            return self._look_at_device(end)
        return end

    def _look_at_device(self, end: CaseEnd) -> CaseEnd:
        """After a fault: a device that computes no more is lost, and nothing is blamed on it."""
        if is_healthy(self._subject, self._setup.limits):
            return end
        self._subject.renew()
        if is_healthy(self._subject, self._setup.limits):
            return end
        self._lost_reason = f"stopped: the device was lost at {end.id}"
        reason = f"the device answers no health probe after this: {end.reason}"
        return dataclasses.replace(end, outcome=Outcome.DEVICE_LOST, reason=reason)

    def _search(self, cases: list[Case]) -> None:
        """Run cases that draw inputs with further seeds; what is found fails nothing, it is told.

        A seed that finds something is told with its case, so that both can be run again.
        """
        deadline = time.monotonic() + self._setup.search_s
        while cases and not self._lost_reason and time.monotonic() < deadline:
            seed = secrets.token_hex(4)
            generate.set_hidden_seed(seed)
            for case in cases:
                if self._lost_reason or time.monotonic() > deadline:
                    break
                end = self._attempt(case)
                if end.outcome in BAD:
                    self._events.tell("finding", seed=seed, end=end_to_json(end))
            self._events.tell("searched", seed=seed)
        generate.set_hidden_seed("")

    def _check_canaries(self) -> None:
        for problem in canary.problems():
            self._events.tell("problem", text=problem)


def compile_budget_s(facts: Facts) -> float:
    """As claimed; 0 where the claim is none."""
    limits = facts.claims.get("limits")
    claimed = limits.get(COMPILE_BUDGET_CLAIM, 0) if isinstance(limits, dict) else 0
    return float(claimed) if isinstance(claimed, (int, float)) else 0.0


def load_suite(extension: str) -> tuple[dict[str, Check], dict[str, Requirement]]:
    """Checks and requirements: the suite's, or in tests of the suite those of an extension."""
    if not extension:
        return all_checks(), all_requirements()
    sys.path.append(extension)
    importlib.import_module("conformance_extension_checks")
    requirements = extension_requirements(extension)
    return {id: one for id, one in all_checks().items() if id in requirements}, requirements


def all_cases(
    checks: dict[str, Check], requirements: dict[str, Requirement], dtypes: Iterable[str]
) -> Iterator[Case]:
    """Cases on a plugin that claims ``dtypes``, in the order of requirements."""
    claimed = tuple(dtypes)
    for row in sorted(requirements.values(), key=lambda row: PROFILES.index(row.profile)):
        if row.id in checks:
            yield from cases_of(checks[row.id], claimed)

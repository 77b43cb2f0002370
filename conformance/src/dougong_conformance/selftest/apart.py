"""Mutants that need processes of their own: found by name, loaded by executors, judged from here.

All executors are copies of one template, so that a mutant costs little more than its check.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import cast

from dougong_conformance.check import Case, all_checks, cases_of
from dougong_conformance.outcomes import Outcome, SubjectLost
from dougong_conformance.runner.cases import CaseEnd, run_case
from dougong_conformance.runner.in_process import apart
from dougong_conformance.runner.limits import Limits
from dougong_conformance.runner.remote import RemoteSubject, SuiteFault
from dougong_conformance.selftest.installed import write_wheel
from dougong_conformance.selftest.mutant import Mutant
from dougong_conformance.subject import Subject, SubjectRaised

QUICK = Limits(case_min_s=12.0, term_s=2.0)
"""A mutant that hangs need not hang for long."""

_PROOFS = ("ops.embedding", "sampling.suppressed", "discovery.import_is_inert")
MODE_VARIABLE = "SIM_MODE"
"""How the simulated device runs, where it is the base."""
_REJECTED_ALREADY = (Outcome.NOT_CLAIMED,)


@dataclass(frozen=True, slots=True)
class ApartEnd:
    """What became of one mutant.

    Attributes:
        id: Of the mutant.
        killer: The check that must reject it.
        verdict: ``"killed"``, ``"alive"``, ``"broken"`` (it passes nothing else) or ``"unfit"``
            (there is no such check, or the good plugin fails it too).
        reason: Why.
        seconds: How long it took.
    """

    id: str
    killer: str
    verdict: str
    reason: str
    seconds: float


@dataclass
class Apart:
    """One good plugin, found by its name.

    Attributes:
        base: Its name.
    """

    base: str
    _good: dict[tuple[str, str], Outcome] = field(default_factory=dict)

    def judge(self, mutants: Iterable[Mutant]) -> Iterator[ApartEnd]:
        """One after the other."""
        for mutant in mutants:
            began = time.perf_counter()
            verdict, reason = self._judge(mutant)
            seconds = time.perf_counter() - began
            yield ApartEnd(mutant.id, mutant.killer, verdict, reason, seconds)

    def _judge(self, mutant: Mutant) -> tuple[str, str]:
        check = all_checks().get(mutant.killer)
        if check is None:
            return "unfit", f"there is no check {mutant.killer}"
        with tempfile.TemporaryDirectory(prefix="dougong-mutant-") as folder:
            name = write_wheel(mutant, self.base, Path(folder))
            environment = {MODE_VARIABLE: mutant.mode}
            with apart(name, import_path=folder, environment=environment, limits=QUICK) as subject:
                return self._against(mutant, subject)

    def _against(self, mutant: Mutant, subject: RemoteSubject) -> tuple[str, str]:
        check, told = all_checks()[mutant.killer], []
        try:
            dtypes = (mutant.dtype,) if mutant.dtype else subject.facts.dtypes
        except (SubjectRaised, SubjectLost, SuiteFault) as exc:
            return "broken", f"it does not load: {exc}"
        for case in cases_of(check, dtypes):
            end = run_one(subject, case)
            told.append(f"{case.id} {end.outcome}: {end.reason}")
            if end.outcome not in mutant.ends:
                continue
            good = self._outcome_of_good(case, mutant.mode)
            if good not in (Outcome.PASS, *_REJECTED_ALREADY):
                return "unfit", f"the good plugin ends {case.id} as {good}"
            if not _passes_something(subject, check.id, dtypes):
                return "broken", "it passes no other check"
            return "killed", told[-1]
        return "alive", "; ".join(told)

    def _outcome_of_good(self, case: Case, mode: str) -> Outcome:
        key = (case.id, mode)
        if key not in self._good:
            with apart(self.base, environment={MODE_VARIABLE: mode}) as subject:
                self._good[key] = run_one(subject, case).outcome
        return self._good[key]


def run_one(subject: RemoteSubject, case: Case) -> CaseEnd:
    """A case with a deadline of its own; what it lost is replaced afterwards."""
    subject.clock.begin_case()
    end = run_case(case, cast("Subject", subject))
    subject.end_of_case()
    return end


def _passes_something(subject: RemoteSubject, killer: str, dtypes: tuple[str, ...]) -> bool:
    for id in _PROOFS:
        if id != killer and id in all_checks():
            case = next(cases_of(all_checks()[id], dtypes))
            if run_one(subject, case).outcome is Outcome.PASS:
                return True
    return False


def judge_apart(
    base: str, mutants: Iterable[Mutant], say: Callable[[str], None] = lambda line: None
) -> tuple[ApartEnd, ...]:
    """Every mutant against its named check.

    Args:
        base: Name of the good plugin.
        mutants: That need processes.
        say: Told one line per mutant.
    """
    ends = []
    for end in Apart(base).judge(mutants):
        ends.append(end)
        say(f"{end.verdict:9} {end.id} {end.killer} {1e3 * end.seconds:.0f} ms {end.reason[:160]}")
    return tuple(ends)

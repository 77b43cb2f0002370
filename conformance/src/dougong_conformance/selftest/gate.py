"""The fast gate: every mutant against the check that must reject it, every witness accepted.

All in one process, on one good plugin. A mutant counts as killed only by the check it names, only
where that check passes on the good plugin, and only if it passes some other check: a plugin that
fails everything proves nothing. Mutants that need a process of their own are left to the matrix.
"""

from __future__ import annotations

import importlib
import re
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import torch

from dougong_conformance.check import Case, Check, all_checks, cases_of
from dougong_conformance.judging import Judge, Metric
from dougong_conformance.local import LocalSubject
from dougong_conformance.outcomes import BAD, CheckEnded, Outcome, SubjectLost
from dougong_conformance.selftest.changes import NotOnThisBase
from dougong_conformance.selftest.installed import is_by_name
from dougong_conformance.selftest.mutant import Mutant, all_mutants, all_witnesses
from dougong_conformance.session import PluginUnderTest, Session, load_plugin
from dougong_conformance.subject import SubjectRaised

Say = Callable[[str], None]

BASES = ("sim", "cpu")
"""Good plugins to make mutants of, preferred first."""

_PROOFS = (
    "ops.embedding",
    "ops.moe_route",
    "attention.layouts",
    "attention.decode",
    "kv.padding_slots",
    "sampling.suppressed",
    "sampling.logprobs",
    "quantization.rounding",
    "quantization.dequantize",
    "lora.scaling",
    "lora.mixed_batch",
)
"""Quick checks, one of which a mutant has to pass."""

_FINE = (Outcome.PASS, Outcome.NOT_CLAIMED)
_PLANTED_WRONGLY = re.compile(
    r"raised (ContractError|TypeError|AttributeError|NameError|NotImplementedError|ImportError)"
)
"""A mutant that dies of this was not planted as it was meant."""


@dataclass(frozen=True, slots=True)
class CaseEnd:
    """How one case ended.

    Attributes:
        id: Of the case.
        outcome: One of the ten.
        reason: Of what did not pass.
        metrics: What was measured.
        seconds: How long it took.
    """

    id: str
    outcome: Outcome
    reason: str
    metrics: tuple[Metric, ...]
    seconds: float


@dataclass(frozen=True, slots=True)
class MutantEnd:
    """What became of one mutant.

    Attributes:
        id: Of the mutant.
        killer: The check that must reject it.
        verdict: ``"killed"``, ``"alive"``, ``"broken"`` (planted wrongly, or it fails everything),
            ``"unfit"`` (the good plugin fails the check too), ``"elsewhere"`` (needs a process of
            its own) or ``"not here"`` (cannot be planted in this base).
        reason: Why.
        ends: Cases that were run.
        seconds: How long it took.
    """

    id: str
    killer: str
    verdict: str
    reason: str
    ends: tuple[CaseEnd, ...] = ()
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class WitnessEnd:
    """Whether a legal variant was accepted.

    Attributes:
        id: Of the witness.
        is_accepted: Nothing failed that the good plugin passes.
        ends: Cases that were run.
        seconds: How long it took.
    """

    id: str
    is_accepted: bool
    ends: tuple[CaseEnd, ...]
    seconds: float

    @property
    def rejected_by(self) -> tuple[CaseEnd, ...]:
        """Cases that failed."""
        return tuple(end for end in self.ends if end.outcome in BAD)


@dataclass(frozen=True, slots=True)
class GateReport:
    """Both numbers, with what stands behind them.

    Attributes:
        base: Name of the good plugin.
        mutants: Of every mutant.
        witnesses: Of every witness.
        seconds: Of all of it.
    """

    base: str
    mutants: tuple[MutantEnd, ...]
    witnesses: tuple[WitnessEnd, ...]
    seconds: float

    def with_verdict(self, verdict: str) -> tuple[MutantEnd, ...]:
        """Mutants of one verdict."""
        return tuple(one for one in self.mutants if one.verdict == verdict)

    @property
    def killed(self) -> int:
        """Mutants killed by their named check."""
        return len(self.with_verdict("killed"))

    @property
    def total(self) -> int:
        """Mutants that could be planted and judged here."""
        left_out = ("elsewhere", "not here")
        return sum(one.verdict not in left_out for one in self.mutants)

    @property
    def accepted(self) -> int:
        """Witnesses accepted."""
        return sum(one.is_accepted for one in self.witnesses)

    @property
    def is_passed(self) -> bool:
        """Whether everything that could be judged here came out as it must."""
        return self.killed == self.total and self.accepted == len(self.witnesses)

    def summary(self) -> str:
        """One line."""
        elsewhere, not_here = (len(self.with_verdict(one)) for one in ("elsewhere", "not here"))
        return (
            f"kills {self.killed}/{self.total} · accepts {self.accepted}/{len(self.witnesses)} on "
            f"{self.base} in {self.seconds:.0f} s ({elsewhere} more need a process of their own, "
            f"{not_here} cannot be planted here)"
        )


@dataclass
class Gate:
    """One good plugin, and what is known of it.

    Attributes:
        plugin: The good one.
    """

    plugin: PluginUnderTest
    _known: dict[tuple[str, str], CaseEnd] = field(default_factory=dict)

    @cached_property
    def checks(self) -> dict[str, Check]:
        """All."""
        return all_checks()

    @cached_property
    def subject(self) -> LocalSubject:
        """The good plugin."""
        return local_subject(self.plugin)

    def good(self, case: Case, mode: str = "eager") -> CaseEnd:
        """How a case ends on the good plugin, running in this mode already; asked for once."""
        key = (mode, case.id)
        if key not in self._known:
            self._known[key] = run_case(self.subject, case)
        return self._known[key]

    def judge_mutant(self, mutant: Mutant) -> MutantEnd:
        """One mutant against its named killer."""
        start = time.perf_counter()

        def end(verdict: str, reason: str, *ends: CaseEnd) -> MutantEnd:
            seconds = time.perf_counter() - start
            return MutantEnd(mutant.id, mutant.killer, verdict, reason, ends, seconds)

        if is_by_name(mutant):
            return end("elsewhere", "it has to be found by name, or ends its process")
        if (check := self.checks.get(mutant.killer)) is None:
            return end("unfit", f"there is no check {mutant.killer}")
        with running_in(self.plugin, mutant.mode):
            # Asked first: what a mutant plants in torch itself may stay a while.
            self.good(next(cases_of(check, self._dtypes(mutant))), mutant.mode)
            try:
                changed = mutant.apply(self.plugin)
            except NotOnThisBase as exc:
                return end("not here", str(exc))
            return self._judge(mutant, check, local_subject(changed), end)

    def _judge(
        self, mutant: Mutant, check: Check, subject: LocalSubject, end: Callable[..., MutantEnd]
    ) -> MutantEnd:
        ends: list[CaseEnd] = []
        for case in cases_of(check, self._dtypes(mutant)):
            ends.append(run_case(subject, case))
            last = ends[-1]
            if last.outcome not in mutant.ends:
                continue
            if _PLANTED_WRONGLY.search(last.reason):
                return end("broken", f"{last.id}: {last.reason}", *ends)
            is_new = case.dtype not in ("", *self.subject.facts.dtypes)
            if is_new or (good := self.good(case, mutant.mode)).outcome in (
                Outcome.PASS,
                Outcome.NOT_CLAIMED,
            ):
                proof = self._proof(subject, check)
                if proof is None:
                    return end("broken", "it passes no other check", *ends)
                return end("killed", f"{last.id}: {last.reason}", *ends, proof)
            return end("unfit", f"the good plugin ends {case.id} as {good.outcome}: {good.reason}")
        if ends and all(one.outcome is Outcome.NOT_RUN for one in ends):
            return end("elsewhere", ends[0].reason, *ends)
        return end("alive", "; ".join(f"{one.id} {one.outcome}" for one in ends), *ends)

    def _dtypes(self, mutant: Mutant) -> tuple[str, ...]:
        return (mutant.dtype,) if mutant.dtype else self.subject.facts.dtypes

    def _proof(self, subject: LocalSubject, killer: Check) -> CaseEnd | None:
        """A check that the mutant passes."""
        profile = killer.profile
        for id in sorted(_PROOFS, key=lambda id: not id.startswith(profile)):
            if id == killer.id or id not in self.checks:
                continue
            case = next(cases_of(self.checks[id], self.subject.facts.dtypes))
            found = run_case(subject, case)
            if found.outcome is Outcome.PASS:
                return found
        return None

    def judge_witness(self, witness: Mutant, *, is_thorough: bool = False) -> WitnessEnd:
        """One legal variant against all checks that see its difference.

        Args:
            witness: The variant.
            is_thorough: In every dtype, though one is enough to see it.
        """
        start = time.perf_counter()
        subject = local_subject(witness.apply(self.plugin), has_fresh=False)
        dtypes = subject.facts.dtypes
        if witness.dtype in dtypes and not is_thorough:
            dtypes = (witness.dtype,)
        ends = []
        for check in self.checks.values():
            if not check.id.startswith(witness.profiles):
                continue
            for case in cases_of(check, dtypes):
                found = run_case(subject, case)
                if found.outcome in BAD and self.good(case).outcome in BAD:
                    continue  # the good plugin's own fault
                ends.append(found)
        is_accepted = bool(ends) and not any(end.outcome in BAD for end in ends)
        return WitnessEnd(witness.id, is_accepted, tuple(ends), time.perf_counter() - start)


def run_fast_gate(
    base: str = "",
    *,
    ids: Sequence[str] = (),
    is_thorough: bool = False,
    say: Say = lambda line: None,
) -> GateReport:
    """All mutants against their named killers, all witnesses against the checks of their profiles.

    Args:
        base: Name of the good plugin; empty: the first of `BASES` that is here.
        ids: Beginnings of ids, where not all are wanted.
        is_thorough: Witnesses in every dtype.
        say: Told one line per mutant and witness.

    Raises:
        PluginError: The base is broken or not here.
    """
    start = time.perf_counter()
    gate = Gate(load_plugin(base or first_base()))
    with lenient(gate.plugin):
        mutants, witnesses = _run(gate, ids, say, is_thorough)
    report = GateReport(gate.plugin.name, mutants, witnesses, time.perf_counter() - start)
    say(report.summary())
    return report


def _run(
    gate: Gate, ids: Sequence[str], say: Say, is_thorough: bool
) -> tuple[tuple[MutantEnd, ...], tuple[WitnessEnd, ...]]:
    mutants: list[MutantEnd] = []
    host = Gate(load_plugin(BASES[-1])) if gate.plugin.name != BASES[-1] else gate
    for mutant in _chosen(all_mutants().values(), ids):
        # Ranks are threads here, which the host serves; devices want processes.
        is_for_ranks = mutant.killer.startswith("communicator.")
        mutants.append((host if is_for_ranks else gate).judge_mutant(mutant))
        revive(gate.plugin)
        last = mutants[-1]
        took = f"{1e3 * last.seconds:.0f} ms"
        say(f"{last.verdict:9} {last.id} {last.killer} {took} {last.reason[:160]}")
    witnesses: list[WitnessEnd] = []
    for witness in _chosen(all_witnesses().values(), ids):
        witnesses.append(gate.judge_witness(witness, is_thorough=is_thorough))
        end = witnesses[-1]
        why = "; ".join(f"{one.id}: {one.reason}" for one in end.rejected_by)
        verdict = "accepted" if end.is_accepted else "rejected"
        say(f"{verdict:9} {end.id} {len(end.ends)} cases {1e3 * end.seconds:.0f} ms {why[:400]}")
    return tuple(mutants), tuple(witnesses)


def first_base() -> str:
    """The first of `BASES` that is here."""
    from dougong.contracts import ConfigError, PluginError

    for name in BASES[:-1]:
        try:
            load_plugin(name)
        except (ConfigError, PluginError):
            continue
        return name
    return BASES[-1]


def local_subject(plugin: PluginUnderTest, *, has_fresh: bool = True) -> LocalSubject:
    """A plugin in this process, its other processes and ranks in this process too.

    Args:
        plugin: Any.
        has_fresh: Without, checks that want a process of their own are not run: a device that does
            not survive them would fail all that follow.
    """
    from dougong_conformance.runner.thread_ranks import ThreadRanks

    def make_ranks(size: int, can_be_killed: bool) -> Any:
        return ThreadRanks(plugin, size, LocalSubject(Session(plugin)).facts.num_devices)

    return LocalSubject(
        Session(plugin),
        make_fresh=(lambda environment: LocalSubject(Session(plugin))) if has_fresh else None,
        make_ranks=make_ranks,
    )


def run_case(subject: Any, case: Case) -> CaseEnd:
    """One case in this process, ended in one of the ten ways."""
    judge, start = Judge(), time.perf_counter()
    outcome, reason = Outcome.PASS, ""
    try:
        case.check.run(subject, judge, *((case.dtype,) if case.dtype else ()))
    except CheckEnded as exc:
        outcome, reason = exc.outcome, exc.reason
    except SubjectLost as exc:
        outcome, reason = exc.outcome, exc.reason
    except SubjectRaised as exc:
        outcome, reason = Outcome.FAIL, f"raised {exc.raised.kind}: {exc.raised.message}"
    except Exception as exc:  # noqa: BLE001 - a check's own mistake, shown as such
        outcome, reason = Outcome.ERROR, f"{type(exc).__name__}: {exc}"
    return CaseEnd(case.id, outcome, reason, judge.metrics, time.perf_counter() - start)


@contextmanager
def running_in(plugin: PluginUnderTest, mode: str) -> Iterator[None]:
    """The simulated device in a mode, where the plugin is the one that runs on it."""
    if plugin.name != "sim" or mode == "eager":
        yield
        return
    control = importlib.import_module("dougong_sim.device.control")
    control.set_mode(mode)
    try:
        yield
    finally:
        control.set_mode("eager")


@contextmanager
def lenient(plugin: PluginUnderTest) -> Iterator[None]:
    """Mutants are written in more of torch than the simulated device says it has."""
    if plugin.name != "sim":
        yield
        return
    importlib.import_module("dougong_sim.device").load()
    control = importlib.import_module("dougong_sim.device.control")
    was_strict = control.set_strict(False)
    try:
        yield
    finally:
        control.set_strict(was_strict)


def revive(plugin: PluginUnderTest) -> None:
    """Reset a simulated device that the last plugin left with an error."""
    if plugin.name != "sim":
        return
    control = importlib.import_module("dougong_sim.device.control")
    for index in range(LocalSubject(Session(plugin)).facts.num_devices):
        if not control.has_context(index):
            continue
        try:
            torch.zeros(1, device=f"sim:{index}").cpu()
        except RuntimeError:
            control.reset(index)


def _chosen(all: Iterable[Mutant], ids: Sequence[str]) -> list[Mutant]:
    return [one for one in all if not ids or one.id.startswith(tuple(ids))]

"""One op of the plugin: who may compute it, run and held against the oracle."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NoReturn

import torch

from dougong_conformance.judging import Judge
from dougong_conformance.kit.generate import Draw
from dougong_conformance.kit.metric import Expected
from dougong_conformance.kit.place import outside, part_of
from dougong_conformance.subject import Subject, SubjectRaised
from dougong_conformance.suite.op_kinds import KINDS, Answer, OpKind, Sizes

NATIVE = "native"
FLUSHES = "subnormals.flush"
"""Feature of a device that flushes subnormals to zero; with ``.<dtype>``: those of one dtype."""
BATCH_INVARIANT = "batch_invariant"
"""Feature: a row's bits do not depend on its batch; with ``.<dtype>``: in one dtype."""
UNUSED = frozenset({"moe_route", "moe_experts", "quantize", "dequantize"})
"""Ops of the catalogue that no model of this version calls: a device may lack what they need."""
OF_ENCODERS = frozenset({"layer_norm", "encoder_attention"})
"""Ops that encoders alone call: a device that lacks what they need serves no encoders."""
TF32 = "float32.tf32"
"""Feature of a device that multiplies float32 with 10-bit mantissas."""


@dataclass(frozen=True, slots=True)
class Way:
    """One implementation of an op, or the mix of them that a plan would bind.

    Attributes:
        name: Of the implementation; empty: as planned.
        least: Fewest tokens it is meant for.
        most: Most tokens; ``None``: no bound.
    """

    name: str
    least: int = 0
    most: int | None = None

    def takes(self, num_tokens: int) -> bool:
        """Whether it is meant for so many tokens."""
        return self.least <= num_tokens and (self.most is None or num_tokens <= self.most)

    def __str__(self) -> str:
        return self.name or "the planned implementations"


class OpUnderTest:
    """One op in one configuration.

    Args:
        subject: The plugin.
        judge: Of the case.
        key: The op.
        dtype: Compute dtype by name.
        id: Of the check, for the inputs.
        index: Of the input.
        sizes: What differs from the op's usual sizes.
    """

    def __init__(
        self,
        subject: Subject,
        judge: Judge,
        key: str,
        dtype: str,
        *,
        id: str = "",
        index: int = 0,
        **sizes: Any,
    ) -> None:
        self.subject, self.judge, self.dtype = subject, judge, dtype
        self.kind: OpKind = KINDS[key]
        self.sizes: Sizes = {**self.kind.sizes, **sizes}
        self.draw = Draw(id or f"ops.{key}", index, getattr(torch, dtype))
        self.config = self.kind.config(self.sizes, dtype)
        self.weights = self.kind.weights(self.sizes, self.draw)

    def ways(self) -> tuple[Way, ...]:
        """Every implementation whose conditions this op meets, the planned mix, plain torch."""
        answer = self.ask("ops.choices", key=self.kind.key, config=self.config, dtype=self.dtype)
        held = [Way(name, *bounds) for name, bounds in answer["holding"].items()]
        planned = [name for name, _ in answer["pieces"]]
        if len(planned) == 1:  # the plan is one of them; it also gets steps without tokens
            held = [Way(one.name, 0, one.most) if one.name in planned else one for one in held]
            return (*held, Way(NATIVE))
        return (*held, Way(""), Way(NATIVE))

    def running_ways(self) -> tuple[Way, ...]:
        """`ways`, without plain torch where that cannot run and no decoder needs it.

        Raises:
            NotClaimed: Nothing is left.
        """
        ways = self.ways()
        if self.kind.key not in UNUSED | OF_ENCODERS:
            return ways
        lacks = self._native_lacks()
        if not lacks:
            return ways
        own = tuple(way for way in ways if way.name not in ("", NATIVE))
        if not own:
            callers = "encoders alone call" if self.kind.key in OF_ENCODERS else "no model calls"
            self.judge.not_claimed(
                f"nobody computes {self.kind.key} here, which {callers}: {lacks}"
            )
        return own

    def _native_lacks(self) -> str:
        """What torch says where the device has no kernel for the plain form; empty: it runs."""
        try:
            self.ask(
                "ops.run",
                key=self.kind.key,
                config=self.config,
                weights=self.weights,
                calls=[self.arguments(2)],
                dtype=self.dtype,
                implementation=NATIVE,
            )
        except SubjectRaised as exc:
            if exc.raised.kind == "NotImplementedError":
                return exc.raised.message.partition("\n")[0]
        return ""

    def arguments(self, num_tokens: int) -> list[Any]:
        """Of one call; others at each asking."""
        return self.kind.arguments(self.sizes, self.draw, num_tokens)

    def expected(self, arguments: list[Any]) -> list[Answer]:
        """What a call must give."""
        return self.kind.expected(self.sizes, self.weights, arguments)

    def check(self, tokens: Iterable[int], *, bias: bool = False) -> None:
        """Every way, at the numbers of tokens it is meant for."""
        self.check_calls([self.arguments(count) for count in tokens], bias=bias)

    def check_calls(self, calls: list[list[Any]], *, bias: bool = False) -> None:
        """Every way, with those of the calls it is meant for; none: with calls of its own."""
        answers = [self.expected(arguments) for arguments in calls]
        rows = [num_rows(arguments) for arguments in calls]
        for way in self.running_ways():
            taken = [index for index, count in enumerate(rows) if way.takes(count)]
            own = [calls[index] for index in taken]
            right = [answers[index] for index in taken]
            if not taken:
                own = [self.arguments(count) for count in (way.least, way.least + 1)]
                own = [one for one in own if way.takes(num_rows(one))]
                right = [self.expected(arguments) for arguments in own]
            for arguments, call, answer in zip(own, self.run(way, own), right, strict=True):
                self.compare(way, arguments, call, answer, bias=bias)

    def run(self, way: Way, calls: list[list[Any]]) -> list[dict[str, Any]]:
        """What calls gave; a way that raises fails the case."""
        try:
            answer = self.ask(
                "ops.run",
                key=self.kind.key,
                config=self.config,
                weights=self.weights,
                calls=calls,
                dtype=self.dtype,
                implementation=way.name,
            )
        except SubjectRaised as exc:
            self.raised(way, exc)
        self._check_inputs(way, answer["names"], calls, answer["calls"])
        done: list[dict[str, Any]] = answer["calls"]
        return done

    def compare(
        self,
        way: Way,
        arguments: list[Any],
        call: Mapping[str, Any],
        answers: list[Answer],
        *,
        bias: bool = False,
    ) -> None:
        """Results of one call against the oracle's, with the device they are on."""
        outputs = call["outputs"]
        at = f"{self.kind.key} by {way} of {num_rows(arguments)} rows"
        self.judge.require(
            len(outputs) == len(answers), f"{at} gave {len(outputs)} results, not {len(answers)}"
        )
        wanted = self.subject.facts.device_type
        for index, (actual, answer) in enumerate(zip(outputs, answers, strict=True)):
            what = at if len(answers) == 1 else f"{at}, result {index}"
            found = call["devices"][index]
            self.judge.require(
                isinstance(actual, torch.Tensor), f"{what} is a {type(actual).__name__}, no tensor"
            )
            self.judge.require(found == wanted, f"{what} is on {found}, not on {wanted}")
            self._compare_one(what, actual, answer, bias=bias)

    def ask(self, procedure: str, **arguments: Any) -> Any:
        """A procedure's answer."""
        return self.subject.call(procedure, **arguments)

    def raised(self, way: Way, exc: SubjectRaised) -> NoReturn:
        """A way that raised fails the case; the loss of the device is another matter."""
        if "DeviceLost" in exc.raised.kinds:
            raise exc
        self.judge.fail(
            f"{self.kind.key} by {way} in {self.dtype} with {_told(self.sizes)} raised "
            f"{exc.raised.kind}: {exc.raised.message}"
        )

    def _compare_one(self, what: str, actual: torch.Tensor, answer: Answer, *, bias: bool) -> None:
        if isinstance(answer, torch.Tensor):
            self.judge.exact(actual, answer, what)
            return
        expected = for_device(answer, self.subject)
        try:
            self.judge.close(actual, expected, name=self.kind.key, bias=bias)
        except Exception as exc:
            exc.add_note(what)
            if hasattr(exc, "reason"):
                exc.reason = f"{what} in {self.dtype} ({_told(self.sizes)}): {exc.reason}"
            raise

    def _check_inputs(
        self,
        way: Way,
        names: list[str],
        calls: list[list[Any]],
        done: list[dict[str, Any]],
    ) -> None:
        for arguments, call in zip(calls, done, strict=True):
            for name, given, after in _tensors(names, arguments, call["inputs"]):
                what = f"{self.kind.key} by {way}: argument {name}"
                before, now = given, after
                if isinstance(given, dict):
                    self.judge.exact(
                        outside(given, after),
                        outside(given, given["base"]),
                        f"memory around {what}",
                    )
                    before, now = part_of(given), part_of({**given, "base": after})
                if name not in call["mutates"]:
                    self.judge.exact(now, before, f"{what}, which it may not overwrite,")


def for_device(expected: Expected, subject: Subject) -> Expected:
    """What a device says of its arithmetic, taken into account."""
    if flushes(subject, str(expected.dtype).removeprefix("torch.")):
        expected = expected.flushing()
    if TF32 in subject.facts.features and expected.dtype is torch.float32:
        expected = expected.with_tf32()
    return expected


def flushes(subject: Subject, dtype: str) -> bool:
    """Whether the device says that it flushes subnormals of a dtype."""
    return not {FLUSHES, f"{FLUSHES}.{dtype}"}.isdisjoint(subject.facts.features)


def _tensors(
    names: list[str], arguments: list[Any], inputs: list[Any]
) -> Iterator[tuple[str, Any, torch.Tensor]]:
    for name, given, after in zip(names, arguments, inputs, strict=False):
        if after is not None:
            yield name, given, after


def num_rows(arguments: list[Any]) -> int:
    """Rows of a call's first argument."""
    first = arguments[0]
    return int(first["shape"][0] if isinstance(first, dict) else first.shape[0])


def _told(sizes: Sizes) -> str:
    return ", ".join(
        f"{name}={value}" for name, value in sizes.items() if not isinstance(value, torch.Tensor)
    )

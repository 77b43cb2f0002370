"""What a check says of what it saw: measured, required, claimed, or not to be had here."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NoReturn

from dougong_conformance.outcomes import CheckFailed, NotClaimed, NotRun

if TYPE_CHECKING:
    import torch

    from dougong_conformance.kit.metric import Expected


@dataclass(frozen=True, slots=True)
class Metric:
    """One number that was measured, with the limit it is held against.

    Attributes:
        name: ``"linear bias-free: max error"``.
        value: What was measured; ``inf`` where it is not comparable.
        limit: The largest value allowed; ``None``: for information.
    """

    name: str
    value: float
    limit: float | None = None


class Judge:
    """Records what one case measures and decides; raises to end the case.

    Attributes:
        metrics: Largest value per name.
        warnings: What the vendor should know, though nothing failed.
    """

    def __init__(self) -> None:
        self._metrics: dict[str, Metric] = {}
        self.warnings: list[str] = []

    @property
    def metrics(self) -> tuple[Metric, ...]:
        """In order of the first measurement; of one name the largest value."""
        return tuple(self._metrics.values())

    def metric(self, name: str, value: float, limit: float | None = None) -> None:
        """Record a number; decides nothing."""
        kept = self._metrics.get(name)
        if kept is None or not value <= kept.value:
            self._metrics[name] = Metric(name, value, limit)

    def at_most(self, name: str, value: float, limit: float) -> None:
        """Record a number and require that it is no larger than ``limit``.

        Raises:
            CheckFailed: It is larger, or not a number.
        """
        self.metric(name, value, limit)
        if not value <= limit:
            self.fail(f"{name} is {value:.4g}; at most {limit:.4g} is allowed")

    def require(self, is_met: bool, message: str) -> None:
        """Require something; ``message`` says what was seen and what was expected.

        Raises:
            CheckFailed: It is not met.
        """
        if not is_met:
            self.fail(message)

    def close(
        self, actual: torch.Tensor, expected: Expected, *, name: str = "", bias: bool = False
    ) -> None:
        """Require that a result lies within the one error law of the suite (kit.metric).

        Args:
            actual: As the device gave it, on the CPU.
            expected: The oracle's answer with its error terms and dtype.
            name: Of the metric, where a check measures several things.
            bias: Also hold the mean signed error against its limit (random mantissas only).

        Raises:
            CheckFailed: Shape, dtype, pattern of non-finite values or the error differ.
        """
        from dougong_conformance.kit.metric import compare

        compare(self, actual, expected, name=name, bias=bias)

    def exact(self, actual: torch.Tensor, expected: torch.Tensor, what: str) -> None:
        """Require equal shape, dtype and bits (NaN equals NaN of any payload).

        Raises:
            CheckFailed: They differ; says where first.
        """
        from dougong_conformance.kit.metric import compare_exact

        compare_exact(self, actual, expected, what)

    def warn(self, message: str) -> None:
        """Tell the vendor something that fails nothing."""
        if message not in self.warnings:
            self.warnings.append(message)

    def fail(self, message: str) -> NoReturn:
        """End the case as failed."""
        raise CheckFailed(message)

    def not_claimed(self, reason: str) -> NoReturn:
        """End the case: the capability is not claimed, and asking for it is refused properly."""
        raise NotClaimed(reason)

    def not_run(self, reason: str) -> NoReturn:
        """End the case: this machine lacks something it needs."""
        raise NotRun(reason)

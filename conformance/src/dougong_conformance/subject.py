"""The plugin under test as a check sees it: procedures that are run where the plugin is loaded.

A check runs in the judge's process, where no plugin is. It makes its inputs there, calls procedures
by name, and judges the tensors that come back. What crosses is plain: None, bool, int, float, str,
bytes, lists, dicts with string keys, and CPU tensors of any dtype and stride.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol


@dataclass(frozen=True, slots=True)
class Raised:
    """An exception that a procedure raised, as data.

    Attributes:
        kind: Name of its class.
        kinds: Names of all classes it is an instance of, its own first.
        message: Its text.
        traceback: For the log.
        attributes: Public plain attributes (``device_index``, ``rank``, ``step``).
    """

    kind: str
    kinds: tuple[str, ...]
    message: str
    traceback: str = ""
    attributes: Mapping[str, Any] = field(default_factory=dict)


class SubjectRaised(Exception):
    """A procedure raised; a check that expects it catches this and looks at `raised`."""

    def __init__(self, raised: Raised) -> None:
        super().__init__(f"{raised.kind}: {raised.message}")
        self.raised = raised


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """What the plugin says of itself, read once.

    Attributes:
        platform: Name of the platform.
        distribution: Name and version of the wheel.
        device_type: torch's.
        num_devices: That this process may use.
        dtypes: Compute dtypes, preferred first.
        claims: Fields of ``Claims``, as plain data (sets as sorted lists).
        devices: Fields of each ``DeviceInfo``.
        attention: Backend → fields of its ``AttentionLimits`` (``None``: states none), and
            ``"graph"`` → its level.
        implementations: Of ops: ``{"key", "name", "kind", "when", "tokens"}``.
        has_graph_runner: The platform names one and claims capture.
        has_lora: The platform names a LoRA wrapper.
        takes_grammar_masks: Its worker obeys the masks of grammars.
        makes_vectors: Its worker makes vectors of texts.
    """

    platform: str
    distribution: str
    device_type: str
    num_devices: int
    dtypes: tuple[str, ...]
    claims: Mapping[str, Any]
    devices: Sequence[Mapping[str, Any]] = ()
    attention: Mapping[str, Mapping[str, Any] | None] = field(default_factory=dict)
    implementations: Sequence[Mapping[str, Any]] = ()
    has_graph_runner: bool = False
    has_lora: bool = False
    takes_grammar_masks: bool = False
    makes_vectors: bool = False

    @property
    def shares_host_memory(self) -> bool:
        """The memory of the device under test, which is the first one, is the host's."""
        return bool(self.devices) and bool(self.devices[0]["is_integrated"])

    @property
    def features(self) -> frozenset[str]:
        """Namespaced features that are claimed."""
        return frozenset(self.claims.get("features", ()))


class Ranks(Protocol):
    """Some processes (or threads) with the plugin, one per rank, for collectives."""

    @property
    def size(self) -> int:
        """How many."""
        ...

    def call_all(
        self, procedure: str, arguments: Sequence[Mapping[str, Any]], *, timeout_s: float = 25.0
    ) -> list[Any]:
        """Run a procedure on every rank at once; waits for all of them.

        Returns:
            Per rank: what it returned, or `Raised`, or `SubjectLost` as an object where the rank
            ended or never answered. Nothing is raised here: the check finds the root cause.
        """
        ...

    def kill(self, rank: int) -> None:
        """End one rank's process at once (SIGKILL)."""
        ...


class Subject(Protocol):
    """The plugin under test."""

    @property
    def facts(self) -> Facts:
        """As the plugin described itself at the beginning."""
        ...

    def call(self, procedure: str, /, **arguments: Any) -> Any:
        """Run a procedure of ``drivers`` where the plugin is.

        Raises:
            SubjectRaised: It raised.
            SubjectLost: Its process is gone.
        """
        ...

    def fresh(self, environment: Mapping[str, str] | None = None) -> Subject:
        """The same plugin in a new process, with a changed environment; it ends with the check.

        For masks, dead runtimes and what else needs a process of its own.
        """
        ...

    def ranks(self, size: int, *, can_be_killed: bool = False) -> Ranks:
        """So many ranks; shared by checks until one is lost.

        Raises:
            NotRun: The machine has too few devices.
        """
        ...

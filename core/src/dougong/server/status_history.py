"""The last minutes of a server, one sample a second: bounded, numbered, told in columns."""

from __future__ import annotations

from collections import deque
from dataclasses import asdict, dataclass
from itertools import islice

KEPT_SAMPLES = 900  # fifteen minutes
_DIGITS = 4

Column = list[float | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """A server at one second. ``None``: there was nothing to measure.

    Attributes:
        time: Seconds since 1970.
        running: Sequences that hold KV blocks.
        waiting: Sequences that wait for them.
        kv_held: Share of the KV blocks that sequences hold, 0 to 1.
        kv_cached: Share that is free and has KV which can be reused.
        tokens_per_s: Generated since the sample before.
        first_token_p50: Seconds from a request's arrival to its first token: the median of late.
        first_token_p95: 19 of 20 took no longer.
        between_tokens_p50: Seconds between two tokens of a sequence.
        between_tokens_p95: As above.
        finished: Requests that were answered since the sample before.
        refused: Those that were wrong or found no room.
        aborted: Those whose client left.
        failed: Those that the server could not answer.
        silence_s: How long ago the engine had last answered.
    """

    time: float
    running: int | None = None
    waiting: int | None = None
    kv_held: float | None = None
    kv_cached: float | None = None
    tokens_per_s: float = 0.0
    first_token_p50: float | None = None
    first_token_p95: float | None = None
    between_tokens_p50: float | None = None
    between_tokens_p95: float | None = None
    finished: int = 0
    refused: int = 0
    aborted: int = 0
    failed: int = 0
    silence_s: float = 0.0


class StatusHistory:
    """Samples in the order they came; the oldest make room.

    Args:
        num_kept: How many stay.

    Attributes:
        last: Number of the newest one; the first has 1, and 0 says that there is none.
    """

    def __init__(self, num_kept: int = KEPT_SAMPLES) -> None:
        self._rows: deque[dict[str, float | None]] = deque(maxlen=num_kept)
        self.last = 0

    def __len__(self) -> int:
        """How many there are."""
        return len(self._rows)

    def add(self, sample: Sample) -> None:
        """The newest one."""
        self._rows.append({name: _rounded(name, value) for name, value in asdict(sample).items()})
        self.last += 1

    def columns(self, after: int = 0) -> dict[str, Column]:
        """Samples with greater numbers, by field, the oldest first.

        Args:
            after: Number of a sample; one that never was gives them all.
        """
        num_known = after - (self.last - len(self._rows))
        skipped = num_known if 0 < num_known <= len(self._rows) else 0
        rows = list(islice(self._rows, skipped, None))
        return {name: [row[name] for row in rows] for name in Sample.__dataclass_fields__}


def _rounded(name: str, value: float | None) -> float | None:
    """Few digits, since hundreds of these are sent at a time."""
    if value is None or isinstance(value, int):
        return value
    return round(value, 2) if name == "time" else float(f"{value:.{_DIGITS}g}")

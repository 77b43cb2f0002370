"""The points of the comparison, how one is named, and what is reported for it."""

from __future__ import annotations

from benchmarks.peers.protocol import Measurement, Point

STANDARD = ("1x128+128", "8x128+128", "32x128+128", "1x1024+1")


def parse_point(text: str) -> Point:
    """Read ``REQUESTSxPROMPT+OUTPUT``, as in ``8x128+128``.

    Raises:
        ValueError: The text has another form, or a number is below 1.
    """
    requests, _, rest = text.partition("x")
    prompt, _, output = rest.partition("+")
    try:
        point = Point(int(requests), int(prompt), int(output))
    except ValueError:
        point = Point(0, 0, 0)
    if min(point.num_requests, point.prompt_len, point.output_len) < 1:
        raise ValueError(f"{text!r} is no point; write REQUESTSxPROMPT+OUTPUT, as in 8x128+128.")
    return point


def name_of(point: Point) -> str:
    """The form `parse_point` reads."""
    return f"{point.num_requests}x{point.prompt_len}+{point.output_len}"


def unit_of(point: Point) -> str:
    """What `rate` counts."""
    return "prompt tokens/s" if point.output_len == 1 else "output tokens/s"


def rate(point: Point, measurement: Measurement) -> float:
    """Tokens per second; more is better. Prompt tokens where the point is a prefill alone."""
    if point.output_len == 1:
        return point.num_requests * point.prompt_len / measurement.seconds
    return measurement.output_tokens / measurement.seconds

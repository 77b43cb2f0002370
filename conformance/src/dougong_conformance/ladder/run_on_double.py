"""A run of the suite on a double: ``python -m dougong_conformance.ladder.run_on_double``.

It writes what ``dougong-conform run`` writes, about a wheel that is installed for this run only.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from dougong_conformance.ladder.installed_double import write_wheel
from dougong_conformance.ladder.platform_double import Double
from dougong_conformance.report.write import write_all
from dougong_conformance.results import RunRecord, Selection, write_record
from dougong_conformance.runner.run import RunRequest, requirements_of, run
from dougong_conformance.runner.wheels import installed_plugins


def run_on(
    double: Double,
    folder: Path,
    *,
    profiles: Sequence[str] = (),
    expression: str = "",
) -> RunRecord:
    """Run the suite on a double, in executors, and write record and report.

    Args:
        double: Of an installed plugin.
        folder: For everything that is written.
        profiles: Only these; empty: all.
        expression: Only cases whose id fits, as after ``-k``.
    """
    with tempfile.TemporaryDirectory(prefix="dougong-double-") as place:
        name = write_wheel(double, Path(place))
        plugin = next(one for one in installed_plugins(place) if one.name == name)
        request = RunRequest(
            plugin=plugin,
            mode="run",
            folder=folder,
            selection=Selection(profiles=tuple(profiles), expression=expression),
            import_path=place,
        )
        record = run(request)
        write_record(record, folder)
        write_all(record, folder, requirements_of(request.extension))
        return record


def main(arguments: Sequence[str] | None = None) -> int:
    """The command; ends with the run's own exit code."""
    parser = argparse.ArgumentParser(prog="run_on_double", description=__doc__)
    parser.add_argument("--plugin", required=True, help="name of the vendor's plugin")
    parser.add_argument("--arch", required=True, help="chip family that the double is said to be")
    parser.add_argument("--device", default="sim", help="platform below; empty: the vendor's own")
    parser.add_argument("--references", default="", help="module:function that registers them")
    parser.add_argument("--path", default="", help="folder in which the references are found")
    parser.add_argument("--memory-bytes", type=int, default=0)
    parser.add_argument("--profile", action="append", default=[])
    parser.add_argument("-k", dest="expression", default="")
    parser.add_argument("--out", type=Path, default=Path("out"))
    given = parser.parse_args(arguments)
    double = Double(
        plugin=given.plugin,
        arch=given.arch,
        device=given.device,
        references=given.references,
        import_path=str(Path(given.path).resolve()) if given.path else "",
        memory_bytes=given.memory_bytes,
    )
    record = run_on(double, given.out, profiles=given.profile, expression=given.expression)
    reason = record.footer.exit_reason or "every selected case passed"
    sys.stdout.write(f"{reason}; report: {given.out / 'report.md'}\n")
    return record.footer.exit_code


if __name__ == "__main__":
    sys.exit(main())

"""``dougong-conform report``: every written form of a run again, from its ``report.json``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from dougong_conformance.cli.usage import usage_error
from dougong_conformance.report.document import REPORT_FILE, read_document
from dougong_conformance.report.model import make_report
from dougong_conformance.report.write import FORMATS, write_forms
from dougong_conformance.results import RECORD_FILE, read_record


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("report", epilog="Exit codes: 0 written; 2 DIR holds no report.")(report)


def report(
    folder: Annotated[
        Path, typer.Argument(metavar="DIR", help=f"Folder of a run, with its {REPORT_FILE}.")
    ],
    formats: Annotated[
        str, typer.Option("--format", help=f"Between commas: {', '.join(FORMATS)}.")
    ] = ",".join(FORMATS),
) -> None:
    """Write reports of a run again, with the evidence files that lie beside them now."""
    wanted = [name.strip() for name in formats.split(",") if name.strip()]
    if unknown := sorted(set(wanted) - set(FORMATS)):
        raise usage_error(
            f"--format {','.join(unknown)} is unknown. Known ones: {', '.join(FORMATS)}."
        )
    try:
        if (folder / REPORT_FILE).exists():
            kept = read_document(folder)
            made = make_report(kept.record, folder, kept.by_id)
        elif (folder / RECORD_FILE).exists():
            made = make_report(read_record(folder), folder)
        else:
            raise usage_error(f"{folder} holds neither {REPORT_FILE} nor {RECORD_FILE}.")
        written = write_forms(made, folder, wanted)
    except (ValueError, OSError) as error:
        raise usage_error(str(error)) from error
    print(made.short)
    for path in written:
        print(path)

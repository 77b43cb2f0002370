"""``dougong-conform verify``: does a certificate hold, today and for this wheel?"""

from __future__ import annotations

import importlib.metadata as metadata
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

import typer

from dougong_conformance import SPEC_VERSION
from dougong_conformance.cli.usage import ended, usage_error
from dougong_conformance.report.certificate import problems, read_certificate
from dougong_conformance.report.wheel_record import of_installed, of_wheel
from dougong_conformance.runner.wheels import GROUP, changed_files

_DOES_NOT_HOLD = 1


class EditedError(Exception):
    """Files of the installed wheel are not those that its RECORD names."""


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command(
        "verify",
        epilog="Exit codes: 0 it holds; 1 it does not; 2 the file is no certificate.",
    )(verify)


def verify(
    file: Annotated[Path, typer.Argument(metavar="CERTIFICATE", help="The JSON file.")],
    wheel: Annotated[
        Path | None, typer.Option(help="A wheel file that it must be for.", metavar="WHEEL")
    ] = None,
    plugin: Annotated[
        str | None, typer.Option(help="An installed platform plugin that it must be for.")
    ] = None,
) -> None:
    """Hold a certificate against its own digest, today's date, and a wheel."""
    if wheel is not None and plugin is not None:
        raise usage_error("--wheel and --plugin name two things. Give one of them.")
    try:
        content = read_certificate(file)
        sha256 = of_wheel(wheel) if wheel else _of_plugin(plugin, content) if plugin else ""
        today = datetime.now(UTC).date()
        found = list(problems(content, today=today, spec=SPEC_VERSION, record_sha256=sha256))
    except EditedError as error:
        raise ended(_DOES_NOT_HOLD, str(error)) from error
    except (OSError, KeyError, TypeError) as error:
        raise usage_error(f"{file} is no certificate: {error}") from error
    except ValueError as error:
        raise usage_error(str(error)) from error
    print(sentence(content))
    if found:
        raise ended(_DOES_NOT_HOLD, "; ".join(found))
    against = wheel.name if wheel else f"the installed plugin {plugin}" if plugin else ""
    print(f"holds for {against}" if against else "holds; no wheel was named to hold it against")


def sentence(content: dict[str, Any]) -> str:
    """What a certificate says, on one line."""
    core, more = content["core"], content["extended"]
    double = ", on a device double" if content["is_double"] else ""
    return (
        f"{content['distribution']} {content['version']} (platform {content['platform']}): Core "
        f"{content['spec']} {core['passed']}/{core['required']}, Ext {more['passed']}/"
        f"{more['offered']}, {core['waived'] + more['waived']} waived; ladder {content['rung']}"
        f"{double}; on {', '.join(content['architectures'])}; {content['issued']} to "
        f"{content['expires']}; suite {content['suite']['version']}"
    )


def _of_plugin(name: str, content: dict[str, Any]) -> str:
    """Digest of the installed wheel of a platform plugin.

    Raises:
        ValueError: It is not installed, is another wheel, or has no RECORD.
        EditedError: Its files are not those of its RECORD.
    """
    points = [one for one in metadata.entry_points(group=GROUP) if one.name == name]
    if not points or points[0].dist is None:
        raise ValueError(f"no installed distribution brings a platform plugin {name!r}")
    installed = points[0].dist
    told = (content["platform"], content["distribution"], content["version"])
    if told != (name, installed.name, installed.version):
        raise ValueError(
            f"it is for {told[1]} {told[2]} (platform {told[0]}), and platform {name} is of "
            f"{installed.name} {installed.version}"
        )
    if edited := list(changed_files(installed)):
        raise EditedError(f"the installed wheel was edited: {edited[0]}{_more(edited)}")
    if not (sha256 := of_installed(installed.name)):
        raise ValueError(f"{installed.name} {installed.version} has no RECORD to hold it against")
    return sha256


def _more(names: list[str]) -> str:
    return f" and {len(names) - 1} more" if len(names) > 1 else ""

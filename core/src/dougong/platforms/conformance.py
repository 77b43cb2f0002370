"""Is there a certificate for the platform that was chosen, and does it hold here and today?"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime
from pathlib import Path
from typing import get_args

from packaging.utils import canonicalize_name

from dougong import envs
from dougong.config.args import ConformanceLevel
from dougong.errors import ConfigError
from dougong.platforms.certificate import (
    ACCEPTED_SPECS,
    Certificate,
    CertificateError,
    read_certificate,
)
from dougong.platforms.loading import LoadedPlatform
from dougong.platforms.table import PluginRow
from dougong.platforms.wheel_record import (
    CERTIFICATE_NAME,
    WheelRecord,
    changed_files,
    installed_record,
    is_editable,
)

NO_CERTIFICATE = "no certificate"
_MOST_NAMES = 3
_VERDICTS = frozenset({"conformant", "conformant_with_waivers"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Conformance:
    """What is known of a plugin's conformance.

    Attributes:
        plugin: ``"sim 0.1.0"``: platform and version of its wheel.
        certificate: That holds; ``None``: there is none.
        reason: Why there is none.
        looked_in: Where one was looked for.
    """

    plugin: str
    certificate: Certificate | None = None
    reason: str = NO_CERTIFICATE
    looked_in: tuple[str, ...] = ()

    @property
    def sentence(self) -> str:
        """``sim 0.1.0: conformance Core 1.0 (certificate 2026-11-30)``, or that there is none."""
        if self.certificate is None:
            return f"{self.plugin}: {self.reason}"
        return f"{self.plugin}: conformance {self.certificate.label}"

    @property
    def details(self) -> str:
        """For who asks: all that the certificate says, or where none was found."""
        if self.certificate is None:
            return f"looked in {'; '.join(self.looked_in)}"
        return self.certificate.details


def conformance_of(loaded: LoadedPlatform) -> Conformance:
    """Of the platform and the devices that were chosen, today."""
    selection = loaded.selection
    architectures = {device.arch for device in selection.devices}
    return find_conformance(selection.row, architectures, today=datetime.now(UTC).date())


def find_conformance(row: PluginRow, architectures: Collection[str], *, today: date) -> Conformance:
    """Look for a certificate in the plugin's wheel, then in ``DOUGONG_CERTIFICATES``.

    Reads files of the installed wheel only where a certificate names it; loads nothing of it.

    Args:
        row: Of the platform.
        architectures: Of the devices that will be used.
        today: In UTC.
    """
    plugin = f"{row.name} {row.version}"
    record = installed_record(row.path) or WheelRecord({})
    looked_in = (f"{CERTIFICATE_NAME} in the wheel {row.wheel}", _folder_text())
    reasons: list[str] = []
    unreadable: list[str] = []
    for file in _candidates(row, record):
        try:
            certificate = read_certificate(file)
        except CertificateError as error:
            unreadable.append(str(error))
            continue
        if (certificate.platform, canonicalize_name(certificate.distribution)) != (
            *(row.name, canonicalize_name(row.distribution)),
        ):
            continue
        problem = next(_problems(certificate, row, record, today), "")
        problem = problem or _untested(certificate, architectures)
        if not problem:
            return Conformance(plugin=plugin, certificate=certificate, looked_in=looked_in)
        reasons.append(problem)
    why = next(iter((*reasons, *unreadable)), "")
    reason = f"{NO_CERTIFICATE} that holds: {why}" if why else NO_CERTIFICATE
    return Conformance(plugin=plugin, reason=reason, looked_in=looked_in)


def check_conformance(found: Conformance, level: ConformanceLevel | None) -> None:
    """Refuse a platform without the conformance that ``--require-conformance`` asks for.

    Raises:
        ConfigError: What was looked for, why nothing serves, and how to get one.
    """
    if level is None:
        return
    if level not in get_args(ConformanceLevel):
        known = " or ".join(get_args(ConformanceLevel))
        raise ConfigError(f"--require-conformance {level} is unknown. Write {known}.")
    if found.certificate is None:
        why = f"{found.sentence}. Looked for: {'; '.join(found.looked_in)}."
    elif short := found.certificate.shortfall(level):
        why = f"{found.sentence}, and {short} ({found.certificate.path})."
    else:
        return
    name = found.plugin.partition(" ")[0]
    raise ConfigError(
        f"--require-conformance {level} refuses platform {name}: {why} "
        f"To get one, run `dougong-conform certify --plugin {name} --out out` (pip install "
        f"dougong-conformance) where the device is, put out/{CERTIFICATE_NAME} into a folder and "
        "name that in DOUGONG_CERTIFICATES; or install a wheel that carries its certificate; or "
        "start without the option."
    )


def _candidates(row: PluginRow, record: WheelRecord) -> Iterator[Path]:
    root = Path(row.path).parent
    yield from (root / path for path in record.certificates)
    folder = envs.certificates()
    if folder is not None:
        yield from sorted(folder.glob("*.json"))


def _folder_text() -> str:
    folder = envs.certificates()
    return f"*.json in DOUGONG_CERTIFICATES{'=' + str(folder) if folder else ', which is not set'}"


def _untested(certificate: Certificate, architectures: Collection[str]) -> str:
    others = sorted(set(architectures) - set(certificate.architectures))
    if not others:
        return ""
    return f"it is for {', '.join(certificate.architectures)}, and this is {', '.join(others)}"


def _problems(
    certificate: Certificate, row: PluginRow, record: WheelRecord, today: date
) -> Iterator[str]:
    """Why a certificate of this plugin does not hold; the cheapest to find first."""
    if certificate.version != row.version:
        yield f"it is for version {certificate.version}"
    if certificate.spec not in ACCEPTED_SPECS:
        yield f"it is for specification {certificate.spec}; this core trusts {ACCEPTED_SPECS[0]}"
    if certificate.verdict not in _VERDICTS:
        yield f"its verdict is {certificate.verdict}"
    if today >= certificate.expires:
        yield f"it expired on {certificate.expires}"
    if today < certificate.issued:
        yield f"it was issued on {certificate.issued}, and today is {today}"
    if is_editable(row.path):
        yield "the wheel is installed editable, so nothing pins what was tested"
    if not record.sha256:
        yield "the wheel has no RECORD, so nothing pins what was tested"
    if certificate.record_sha256 != record.sha256:
        yield "it is for another build of the wheel"
    if changed := list(changed_files(record, row.path)):
        more = f" and {len(changed) - _MOST_NAMES} more" if len(changed) > _MOST_NAMES else ""
        yield f"the installed wheel was edited: {', '.join(changed[:_MOST_NAMES])}{more}"

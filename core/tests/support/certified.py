"""A stub wheel as an installer leaves it, with a RECORD and a certificate of conformance."""

from __future__ import annotations

import base64
import hashlib
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

from dougong.platforms.certificate import FORMAT, canonical_sha256
from dougong.platforms.table import PluginRow
from dougong.platforms.wheel_record import CERTIFICATE_NAME, installed_record
from tests.support.stub_plugins import Stub
from tests.unit.platforms.rows import row


class CertifiedWheel:
    """Installed in ``folder``; `certify` writes its certificate where it is told."""

    def __init__(self, folder: Path) -> None:
        self.info = Stub().write_installed(folder)
        self.package = folder / "fakeplat"
        self.write_record()

    def write_record(self) -> None:
        """RECORD of the files as they are now, bytecode and the certificate included."""
        root = self.info.parent
        lines = [f"{self.info.name}/RECORD,,"]
        for file in sorted(path for path in root.rglob("*") if path.is_file()):
            if file.name != "RECORD":
                digest = base64.urlsafe_b64encode(hashlib.sha256(file.read_bytes()).digest())
                text = digest.rstrip(b"=").decode()
                lines.append(f"{file.relative_to(root).as_posix()},sha256={text},1")
        (self.info / "RECORD").write_text("\n".join(lines) + "\n")

    @property
    def row(self) -> PluginRow:
        """As discovery lists it."""
        found = row("fake")
        return replace(found, version="0.1", path=str(self.info))

    def content(self, **changes: Any) -> dict[str, Any]:
        """Of a certificate that holds, with some fields changed and a digest that fits."""
        record = installed_record(str(self.info))
        content: dict[str, Any] = {
            "format": FORMAT,
            "platform": "fake",
            "distribution": "fakeplat",
            "version": "0.1",
            "record_sha256": record.sha256 if record else "",
            "architectures": ["fake1"],
            "spec": "1.0",
            "issued": "2026-11-30",
            "expires": "2027-11-30",
            "verdict": "conformant",
            "core": {"passed": 88, "required": 88, "waived": 0},
            "extended": {"passed": 7, "claimed": 7, "offered": 9, "waived": 0},
            "rung": "L6",
            "waivers": [],
            **changes,
        }
        return {**content, "sha256": canonical_sha256(content)}

    def certify(self, folder: Path | None = None, **changes: Any) -> Path:
        """Write the certificate into a folder, else into the wheel, whose RECORD then lists it."""
        file = (folder or self.package) / CERTIFICATE_NAME
        file.write_text(json.dumps(self.content(**changes)))
        if folder is None:
            self.write_record()
        return file

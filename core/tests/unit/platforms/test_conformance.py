from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import Any

import pytest

from dougong.errors import ConfigError
from dougong.platforms.conformance import Conformance, check_conformance, find_conformance
from tests.support.certified import CertifiedWheel

TODAY = date(2026, 12, 24)


@pytest.fixture
def wheel(tmp_path: Path) -> CertifiedWheel:
    return CertifiedWheel(tmp_path / "site")


def found(wheel: CertifiedWheel, today: date = TODAY) -> Conformance:
    return find_conformance(wheel.row, ["fake1"], today=today)


def test_a_wheel_may_carry_its_certificate(wheel: CertifiedWheel) -> None:
    assert found(wheel).sentence == "fake 0.1: no certificate"
    wheel.certify()
    told = found(wheel)
    assert told.sentence == "fake 0.1: conformance Core 1.0 (certificate 2026-11-30)"
    assert "Ext 7/9" in told.details
    check_conformance(told, "extended")


def test_a_folder_may_hold_certificates_of_many_wheels(
    wheel: CertifiedWheel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "certificates"
    folder.mkdir()
    wheel.certify(folder, platform="another").rename(folder / "1.json")
    wheel.certify(folder, version="0.0.9").rename(folder / "2.json")
    (folder / "0.json").write_text("{}")
    monkeypatch.setenv("DOUGONG_CERTIFICATES", str(folder))
    assert found(wheel).reason == "no certificate that holds: it is for version 0.0.9"
    (folder / "2.json").unlink()
    assert "0.json has no format 'conformance-certificate/1'" in found(wheel).reason
    wheel.certify(folder).rename(folder / "4.json")
    certificate = found(wheel).certificate
    assert certificate is not None
    assert certificate.path == str(folder / "4.json")


def test_spelling_of_a_distribution_does_not_matter(wheel: CertifiedWheel) -> None:
    wheel.certify(distribution="FakePlat")
    assert found(wheel).certificate is not None


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"version": "0.2"}, "it is for version 0.2"),
        ({"spec": "2.3"}, "specification 2.3; this core trusts 1.0"),
        ({"verdict": "not_conformant"}, "its verdict is not_conformant"),
        ({"expires": "2026-12-24"}, "it expired on 2026-12-24"),
        ({"issued": "2026-12-25"}, "it was issued on 2026-12-25, and today is 2026-12-24"),
        ({"architectures": ["fake2"]}, "it is for fake2, and this is fake1"),
        ({"record_sha256": "0" * 64}, "it is for another build of the wheel"),
    ],
)
def test_a_certificate_for_something_else_does_not_hold(
    wheel: CertifiedWheel, changes: dict[str, Any], reason: str
) -> None:
    wheel.certify(**changes)
    told = found(wheel)
    assert told.certificate is None
    assert told.sentence == f"fake 0.1: no certificate that holds: {told.reason[27:]}"
    assert told.reason.endswith(reason)


def _edit(wheel: CertifiedWheel) -> None:
    (wheel.package / "platform.py").write_text("# mended in place\n")


def _add_code(wheel: CertifiedWheel) -> None:
    (wheel.package / "faster.py").write_text("")


def _remove(wheel: CertifiedWheel) -> None:
    (wheel.package / "platform.py").unlink()


@pytest.mark.parametrize("change", [_edit, _add_code, _remove])
def test_an_edited_wheel_loses_its_certificate(
    wheel: CertifiedWheel, change: Callable[[CertifiedWheel], None]
) -> None:
    wheel.certify()
    change(wheel)
    assert "the installed wheel was edited: fakeplat/" in found(wheel).reason


def test_an_edit_that_is_written_into_the_record_makes_another_build(
    wheel: CertifiedWheel,
) -> None:
    wheel.certify()
    _edit(wheel)
    wheel.write_record()
    assert "another build" in found(wheel).reason


def test_no_certificate_holds_for_an_editable_install(wheel: CertifiedWheel) -> None:
    wheel.certify()
    (wheel.info / "direct_url.json").write_text(json.dumps({"dir_info": {"editable": True}}))
    assert "editable" in found(wheel).reason


def test_a_plugin_without_a_record_has_no_certificate(wheel: CertifiedWheel) -> None:
    shutil.rmtree(wheel.info)
    assert found(wheel).sentence == "fake 0.1: no certificate"


def test_no_certificate_of_a_folder_holds_for_a_plugin_without_a_record(
    wheel: CertifiedWheel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (wheel.info / "RECORD").unlink()
    wheel.certify(tmp_path)
    monkeypatch.setenv("DOUGONG_CERTIFICATES", str(tmp_path))
    assert "has no RECORD" in found(wheel).reason


@pytest.mark.parametrize("level", ["core", "extended"])
def test_a_refusal_says_what_was_looked_for_and_how_to_get_one(
    wheel: CertifiedWheel, level: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(ConfigError) as caught:
        check_conformance(found(wheel), level)
    text = str(caught.value)
    assert f"--require-conformance {level} refuses platform fake: fake 0.1: no certificate." in text
    assert "Looked for: conformance-certificate.json in the wheel fakeplat 0.1; " in text
    assert "DOUGONG_CERTIFICATES, which is not set" in text
    assert "dougong-conform certify --plugin fake" in text
    check_conformance(found(wheel), None)


def test_a_certificate_with_waived_core_checks_is_not_enough(wheel: CertifiedWheel) -> None:
    waived = {"passed": 87, "required": 88, "waived": 1}
    wheel.certify(core=waived, verdict="conformant_with_waivers")
    assert found(wheel).sentence.endswith("Core 1.0 with 1 waived (certificate 2026-11-30)")
    with pytest.raises(ConfigError, match=r"of 88 Core checks 87 passed unwaived \(.*json\)"):
        check_conformance(found(wheel), "core")


def test_levels_are_a_closed_list(wheel: CertifiedWheel) -> None:
    unknown: Any = "gold"
    with pytest.raises(ConfigError, match=r"gold is unknown\. Write core or extended"):
        check_conformance(found(wheel), unknown)


def test_a_folder_that_is_not_there_is_an_error(
    wheel: CertifiedWheel, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DOUGONG_CERTIFICATES", "/nowhere/at/all")
    with pytest.raises(ConfigError, match="DOUGONG_CERTIFICATES='/nowhere/at/all' is no folder"):
        found(wheel)


def test_the_platform_that_ships_with_the_core_is_treated_like_any_other(
    wheel: CertifiedWheel,
) -> None:
    cpu = replace(wheel.row, name="cpu", distribution="dougong")
    assert find_conformance(cpu, ["x86_64"], today=TODAY).sentence == "cpu 0.1: no certificate"
    wheel.certify(platform="cpu", distribution="dougong", architectures=["x86_64"])
    assert find_conformance(cpu, ["x86_64"], today=TODAY).certificate is not None

from __future__ import annotations

import zipfile
from pathlib import Path

import pytest

from dougong_conformance.ladder.wheel_contents import main, strangers

GOOD = (
    "dougong_acme/__init__.py",
    "dougong_acme/claims.toml",
    "dougong_acme/chips/a9.json",
    "dougong_acme/testimony.py",
    "dougong_acme-1.0.dist-info/RECORD",
)


def wheel(folder: Path, *names: str) -> Path:
    path = folder / "dougong_acme-1.0-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as content:
        for name in (*GOOD, *names):
            content.writestr(name, "")
    return path


def test_a_wheel_with_its_package_alone_is_clean(tmp_path: Path) -> None:
    assert strangers(wheel(tmp_path)) == ()
    assert main([str(wheel(tmp_path))]) == 0


@pytest.mark.parametrize(
    "name",
    [
        "tests/__init__.py",
        "tools/dump.py",
        "dougong_acme/tests/test_a.py",
        "dougong_acme/golden/acme.json",
        "dougong_acme/acme-8.1.schemas.json",
        "dougong_acme/double.py",
        "dougong_acme/libacme_stub.so",
        "dougong_acme/references/rms_norm.py",
        "other_package/__init__.py",
    ],
)
def test_what_is_for_tests_or_of_another_package_is_named(
    tmp_path: Path, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert strangers(wheel(tmp_path, name)) == (name,)
    assert main([str(wheel(tmp_path, name))]) == 1
    assert capsys.readouterr().out == f"dougong_acme-1.0-py3-none-any.whl holds {name}\n"

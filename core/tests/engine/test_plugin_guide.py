"""The code of ``docs/plugin_guide.md`` is the project's own, or fits the contract and is typed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from dougong.cli import plugin
from tests.support.guide import blocks

GUIDE = blocks("plugin_guide.md")
EXCERPTS = [block for block in GUIDE if "title" in block.marks]
REPOSITORY = Path(__file__).parents[3]
# What the core would hold against the contract when it is given the classes of the guide.
CHECK = """
import json
import guide
from dougong import contracts as c
from dougong.contracts.registration import Registration, marked_objects
from dougong.ops.registry import OpRegistry
from dougong.platforms.contract_check import problems_of

parts = c.AttentionBackend, c.AttentionImpl, c.AttentionMetadataBuilder
problems = {
    name: problems_of(cls, contract)
    for name, cls in vars(guide).items()
    for contract in (c.Platform, c.Communicator, c.Worker, c.LoRAWrapper, *parts)
    if isinstance(cls, type) and cls.__module__ == "guide" and issubclass(cls, contract)
}
registry = OpRegistry.from_registrations(
    Registration(mark=mark, target=target, plugin="acme", distribution="dougong-acme 0.1.0")
    for target, mark in marked_objects([vars(guide)])
)
bare = c.BindRequest(
    dtype="float32", loaded=frozenset(), missing={"acme-kernels": "not installed"}
)
sizes = {"head_dim": 16, "is_neox": True}
reasons = {one.name: one.when.check(bare, sizes).reason for one in registry.candidates()}
print(json.dumps([problems, reasons, [*registry.keys]]))
"""
# Before the code of the guide, whose text names where its words come from.
GUIDE_IMPORTS = """
# mypy: disable-error-code="no-any-return"
# A vendor's library is not here, so nothing is known of what it returns.
from __future__ import annotations

import importlib
from collections.abc import Mapping, Sequence
from typing import Any

import torch

from dougong.contracts import *
from dougong.ops import *
from dougong.reference import ReferenceWorker, TorchCommunicator
from dougong_acme.platform import AcmePlatform

"""


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The project as it is written, with the rest of the guide's code beside it."""
    written = plugin.write_project("acme", tmp_path_factory.mktemp("guide"))
    (written / "src" / "guide.py").write_text(guide_module())
    return written


def guide_module() -> str:
    """All further code of the guide as one module, its methods in one class."""
    code = [block for block in GUIDE if block.language == "python" and "title" not in block.marks]
    pieces = [block.text for block in code if not block.marks]
    methods = [block.text for block in code if block.marks.get("add") == "AcmePlatform"]
    assert len(pieces) + len(methods) == len(code)
    body = textwrap.indent("\n".join(methods), "    ")
    return GUIDE_IMPORTS + "\n\n".join([*pieces, f"class GuidedPlatform(AcmePlatform):\n{body}"])


def run(folder: Path, *arguments: str, **environment: str) -> str:
    done = subprocess.run(
        [sys.executable, *arguments],
        cwd=folder,
        env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1", **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_there_is_code_of_every_kind() -> None:
    kinds = {(block.language, *sorted(block.marks)) for block in GUIDE}
    marked = {("python", "add"), ("python", "title"), ("toml", "title"), ("text", "reason")}
    assert kinds == {("console",), ("python",), *marked}


@pytest.mark.parametrize("index", range(len(EXCERPTS)))
def test_an_excerpt_stands_in_the_project(index: int) -> None:
    excerpt = EXCERPTS[index]
    assert excerpt.text in plugin.render("acme")[excerpt.marks["title"]]


def test_further_code_fits_the_contract_and_its_conditions_read_as_shown(project: Path) -> None:
    problems, reasons, keys = json.loads(run(project, "-c", CHECK, PYTHONPATH="src"))
    assert len(problems) == 7
    assert not any(problems.values()), problems
    assert set(reasons) == {"acme/wide_rotary", "acme/packed_linear"}
    assert "acme/soft_cap" in keys
    (shown,) = (block for block in GUIDE if "reason" in block.marks)
    assert " ".join(shown.text.split()) == reasons[shown.marks["reason"]]


def test_the_project_and_further_code_are_typed(project: Path) -> None:
    """By the repository's own settings, so that the types session has filled the cache already."""
    settings = ("--config-file", "core/pyproject.toml")
    folders = [str(project / name) for name in ("src", "tests")]
    run(REPOSITORY, "-m", "mypy", *settings, *folders, MYPYPATH=folders[0])

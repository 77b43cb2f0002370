"""The core and the extension cannot be used together, and both pip and the plugin say so."""

from __future__ import annotations

import re
import subprocess
import sys
from importlib.metadata import version

import pytest
from dougong_conformance.ladder.golden import Golden, compare

from dougong_xpu import providers
from tests.rungs.published import EXTENSION, extension_calls, problems_with_extension
from tests.shown import shows
from tools.ipex_signatures import NAMESPACES, signatures

pytestmark = pytest.mark.lane


def test_the_signatures_are_those_of_the_golden_file() -> None:
    what = f"{len(extension_calls())} calls bind to the signatures of Intel's extension 2.8.0"
    with shows("L0", what, "ipex") as said:
        said.details["golden"] = EXTENSION.digest
        assert version("intel-extension-for-pytorch") == "2.8.0"
        assert compare(EXTENSION, signatures()) == ()
        assert problems_with_extension() == ()


def test_drift_is_found() -> None:
    changed = {op: text.replace("float eps", "float epsilon") for op, text in signatures().items()}
    assert {op.partition("::")[0] for op in changed} == set(NAMESPACES)
    assert len(compare(Golden(EXTENSION.schemas, ""), changed)) == 2


def test_core_and_extension_are_refused_by_version() -> None:
    what = "the engine was not run: the core with Intel's extension is refused by version"
    with shows("beside", what, "ipex") as said:
        problem, refusal = providers.torch_problem(), providers.extension_refusal()
        said.details.update(torch=problem, extension=refusal)
        assert problem.startswith(
            "torch 2.8.0 is installed, beside intel-extension-for-pytorch 2.8.0"
        )
        assert "the core needs torch 2.10 or later" in problem
        assert refusal.startswith(
            "2.8.0 is installed, which needs torch 2.8, and the core needs torch"
        )


def test_pip_says_the_same() -> None:
    command = [sys.executable, "-m", "pip", "check"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode
    assert re.search(
        r"dougong \S+ has requirement torch.*>=2\.10.*but you have torch 2\.8\.0", done.stdout
    )

"""What the real libraries register is what the golden file says."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from dougong_conformance.ladder.golden import compare, read_golden, registered

from tests.rungs.published import GOLDEN_FOLDER, KERNELS, kernel_calls, problems_with_kernels
from tests.shown import shows

pytestmark = pytest.mark.lane


def test_the_schemas_are_those_of_the_golden_file(kernels: Path) -> None:
    with shows(
        "L0", "the plugin's calls bind to the schemas of vllm-xpu-kernels 0.1.16.2", "xpu"
    ) as said:
        calls = kernel_calls()
        said.what = (
            f"{len(calls)} calls of {len({call.op for call in calls})} ops bind to the schemas of "
            f"vllm-xpu-kernels 0.1.16.2; the wheel registers the same {len(KERNELS.schemas)}"
        )
        said.details["golden"] = KERNELS.digest
        assert compare(KERNELS, registered(KERNELS.namespaces)) == ()
        assert problems_with_kernels() == ()


def test_drift_is_found(kernels: Path, tmp_path: Path) -> None:
    content = json.loads((GOLDEN_FOLDER / KERNELS.name).read_text("utf-8"))
    changed = content["_C::rms_norm"]["schema"].replace("float epsilon", "float eps")
    content["_C::rms_norm"]["schema"] = changed
    content["_C::was_there"] = "_C::was_there(Tensor x) -> Tensor"
    del content["_C::silu_and_mul"]
    planted = tmp_path / KERNELS.name
    planted.write_text(json.dumps(content), "utf-8")
    found = compare(read_golden(planted), registered(KERNELS.namespaces))
    assert [sentence.split()[0] for sentence in found] == [
        "_C::was_there",
        "_C::rms_norm",
        "_C::silu_and_mul",
    ]

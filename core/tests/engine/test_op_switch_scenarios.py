"""A wheel of ops with counters: overrides run where the plan says, and switches do what they say.

Scenarios A05 (with one worker) and A06.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

import pytest

from dougong import LLM, SamplingParams
from dougong.errors import ConfigError
from dougong.ops import OPS
from tests.support.installed_stubs import Installed
from tests.support.stub_plugins import count_calls, op_wheel
from tests.support.tiny_models import write_tiny_checkpoint

NORM, ROTARY = "fused_add_rms_norm", "rotary_embedding"
OVERRIDE, KERNEL = "stubops/StubAddRMSNorm", "stubops/rotary"
RAN = {OVERRIDE: f"oot {NORM}", KERNEL: f"kernel {ROTARY}"}
# Switches → what runs for the two ops that the wheel brings.
TABLES: Mapping[str | None, tuple[str, str]] = {
    None: (OVERRIDE, KERNEL),
    "all": (OVERRIDE, KERNEL),
    "none": ("native", "native"),
    f"none,+{NORM}": (OVERRIDE, "native"),
    f"all,-{NORM}": ("native", KERNEL),
    f"+{NORM}": (OVERRIDE, KERNEL),
    f"-{ROTARY}": (OVERRIDE, "native"),
}
REFUSED = {
    "all,none": "both all and none",
    f"+{NORM},-{NORM}": NORM,
    "+rms_norn": "rms_norm",
    "-rms_norn": "rms_norm",
}


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_checkpoint(tmp_path_factory.mktemp("model") / "tiny")


@pytest.fixture
def counter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The wheel is installed, and this file counts its calls and those it replaces."""
    for key in (NORM, ROTARY):  # the wheel wraps these, to count them too; undone afterwards
        monkeypatch.setattr(OPS[key], "forward_native", OPS[key].forward_native)
    Installed(tmp_path / "stubs", monkeypatch).add(op_wheel())
    file = tmp_path / "counter"
    monkeypatch.setenv("STUB_COUNTER", str(file))
    return file


def generate(llm: LLM) -> tuple[int, ...]:
    params = SamplingParams(temperature=0.0, max_tokens=4)
    return tuple(llm.generate(["the"], params)[0].outputs[0].token_ids)


@pytest.mark.parametrize("in_own_process", [False, True], ids=["here", "own process"])
def test_a05_the_override_runs_in_the_worker_and_the_status_names_its_wheel(
    counter: Path, tiny: Path, in_own_process: bool
) -> None:
    with LLM(str(tiny), in_own_process=in_own_process) as llm:
        generate(llm)
        report = llm.report
    calls = count_calls(counter)
    (worker,) = calls[RAN[OVERRIDE]]
    assert (worker == os.getpid()) is not in_own_process
    assert not [what for what in calls if what.startswith("native")]
    assert report.implementations[NORM] == {OVERRIDE: 5}
    assert report.plan.origins[OVERRIDE] == "stubops 0.1"


@pytest.mark.parametrize("switches", TABLES)
def test_a06_an_op_follows_its_own_sign_and_what_is_counted_agrees(
    counter: Path, tiny: Path, switches: str | None
) -> None:
    with LLM(str(tiny), custom_ops=switches) as llm:
        generate(llm)
        table = llm.report.implementations
    for key, name in zip((NORM, ROTARY), TABLES[switches], strict=True):
        assert list(table[key]) == [name]
    calls = set(count_calls(counter))
    expected = zip((NORM, ROTARY), TABLES[switches], strict=True)
    assert {what for what in calls if what.startswith(("oot", "kernel", "native"))} == {
        RAN.get(name, f"native {key}") for key, name in expected
    }


@pytest.mark.parametrize("switches", REFUSED)
def test_a06_what_contradicts_itself_or_is_unknown_is_refused(
    counter: Path, tiny: Path, switches: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        LLM(str(tiny), custom_ops=switches)
    assert REFUSED[switches] in str(caught.value)
    assert not [what for what in count_calls(counter) if what.startswith(("oot", "kernel"))]


def test_an_override_that_no_op_of_the_model_could_use_is_told(counter: Path, tiny: Path) -> None:
    with LLM(str(tiny)) as llm:
        unmatched = {one.name: one.reason for one in llm.report.plan.unmatched}
    assert "rms_norm" in unmatched["stubops/StubRMSNorm"]

"""The core spells no vendor and asks no device for its type."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.architecture.vendor_words import find, words_of

SOURCE = Path(__file__).parents[2] / "src" / "dougong"

# file and word: why it may stand there
ALLOWED = {
    ("contracts/capabilities.py", "triton"): (
        "the named fact whether a platform compiles such kernels: a word users know, not a module"
    ),
}

PLANTED = {
    "a device string": 'device = torch.device("cuda")',
    "a device string with an index": 'x = x.to("npu:0")',
    "an attribute": "torch.xpu.synchronize()",
    "an attribute after a call": "x.cuda()",
    "a question about the vendor": "if platform.is_rocm(): pass",
    "a vendor's class": "class HipGraphRunner: pass",
    "an import": "import torch_npu",
    "a lazy import": "def f():\n    from aiter import ops",
    "a module of torch": "from torch.cuda import Stream",
    "a bare triton": "import triton.language as tl",
    "an alias": "import something as triton",
    "a keyword": "build(nccl=True)",
    "a parameter": "def f(use_hccl): pass",
    "part of an f-string": 'name = f"ascend{index}"',
    "bytes": 'key = b"NVIDIA"',
    "torch's accelerator": "torch.accelerator.current_device_index()",
    "torch's accelerator, imported": "from torch import accelerator",
    "torch's accelerator, by name": 'getattr(torch, "accelerator")',
    "a comparison of the type": 'fast = device.type == "whatever"',
    "a comparison behind an attribute": "ok = self._device.type in KNOWN",
    "a comparison from the right": 'ok = "whatever" != x.device.type',
    "a match on the type": 'match device.type:\n    case "whatever": pass',
    "an environment variable": 'name = "ASCEND_VISIBLE_DEVICES"',
    "camel case": "CudaGraph = None",
}

HARMLESS = {
    "a longer word": 'order = "ascending"; relationship = whip = "chip ship hips"',
    "a docstring": '"""Unlike torch.cuda, this knows no device."""',
    "a docstring of a function": 'def f():\n    """Not for cuda."""',
    "the word accelerator in a message": 'raise E("two accelerator plugins are installed")',
    "the type of something else": 'ok = entry.type == "file"',
    "handing the type on": "dispatch(device.type)",
}


@pytest.mark.parametrize("name", PLANTED)
def test_a_planted_word_is_found(name: str) -> None:
    assert find(PLANTED[name])


@pytest.mark.parametrize("name", HARMLESS)
def test_a_harmless_line_is_left_alone(name: str) -> None:
    assert not find(HARMLESS[name])


def test_words_are_cut_at_case_digits_and_underscores() -> None:
    assert words_of("HIPGraphRunner_v2 toXPU") == {"hip", "graph", "runner", "v", "to", "xpu"}


def test_the_core_spells_no_vendor() -> None:
    findings = [
        f"{path.relative_to(SOURCE)}:{finding.line}: {finding.word} in {finding.text!r}"
        for path in sorted(SOURCE.rglob("*.py"))
        for finding in find(path.read_text())
        if (path.relative_to(SOURCE).as_posix(), finding.word) not in ALLOWED
    ]
    assert not findings, "\n".join(findings)


def test_every_allowance_is_still_needed() -> None:
    for file, word in ALLOWED:
        found = {finding.word for finding in find((SOURCE / file).read_text())}
        assert word in found, f"{file} no longer says {word}; take the allowance away"

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.support.checkpoints import byte_level_metadata, byte_level_tokenizer, random_rows
from tests.support.checkpoints import write_gguf as write

HEAVY = "('torch', 'numpy', 'gguf', 'huggingface_hub', 'safetensors', 'rich')"


def loaded_after(code: str) -> str:
    script = f"import sys; {code}; print([m for m in {HEAVY} if m in sys.modules])"
    result = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, check=True, text=True
    )
    return result.stdout.strip()


def test_importing_the_package_loads_no_heavy_library() -> None:
    assert loaded_after("import dougong.checkpoint") == "[]"


def test_a_config_is_read_without_torch(tmp_path: Path) -> None:
    from gguf import GGMLQuantizationType

    path = write(
        tmp_path / "tiny.gguf",
        {"token_embd.weight": (random_rows(8, 64), GGMLQuantizationType.F32)},
        metadata=byte_level_metadata(byte_level_tokenizer()),
    )
    code = f"import dougong.checkpoint as c; c.read_config(c.resolve_reference({str(path)!r}))"
    assert "torch" not in loaded_after(code)

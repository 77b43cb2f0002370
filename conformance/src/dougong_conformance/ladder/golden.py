"""Golden files: the schemas that a vendor's published wheel registers, kept as facts.

A file is one JSON object: name of an op (``"npu::npu_rms_norm"``, with ``.overload`` where it has
one) to its schema. The schema stands there as a string, or in an object as ``"schema"`` beside
``"meta"`` (the wheel has a kernel for the meta device) or ``"keys"`` (the dispatch keys served).
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_ANONYMOUS = re.compile(r"\(\$(\d+)(!?)(?:\s*->\s*[^)]*)?\)")


@dataclass(frozen=True, slots=True)
class Golden:
    """What one published wheel registers.

    Attributes:
        schemas: Op, with its overload where it has one → schema that torch can parse.
        digest: SHA-256 of the file.
        with_meta: Ops of which the file says that the wheel has a kernel for the meta device.
        name: Of the file.
    """

    schemas: Mapping[str, str]
    digest: str
    with_meta: frozenset[str] = frozenset()
    name: str = ""

    @property
    def namespaces(self) -> frozenset[str]:
        """Of its ops: ``"npu"``."""
        return frozenset(op.partition("::")[0] for op in self.schemas)

    def overloads(self, op: str) -> tuple[str, ...]:
        """Names of all overloads of ``"npu::npu_rms_norm"``, the op itself among them."""
        return tuple(one for one in self.schemas if one == op or one.startswith(f"{op}."))


def read_golden(path: Path | str) -> Golden:
    """Read a golden file.

    Raises:
        ValueError: An entry is of no known form, or an entry's schema is of another op.
    """
    content = Path(path).read_bytes()
    entries = json.loads(content)
    schemas: dict[str, str] = {}
    with_meta = set()
    for op, entry in entries.items():
        text = entry.get("schema") if isinstance(entry, dict) else entry
        if not isinstance(text, str):
            raise ValueError(f"{path}: {op} has no schema: {entry!r}")
        schemas[op] = readable(text)
        if schemas[op].partition("(")[0] != op:
            raise ValueError(f"{path}: under {op} stands a schema of {text.partition('(')[0]}")
        if isinstance(entry, dict) and entry.get("meta") is True:
            with_meta.add(op)
    return Golden(
        schemas, hashlib.sha256(content).hexdigest(), frozenset(with_meta), Path(path).name
    )


def readable(schema: str) -> str:
    """A schema as torch's parser takes it.

    Schemas that a compiler inferred come with aliases that have no name, ``Tensor($0! -> )``, which
    torch prints and does not read; they get one, ``Tensor(a0!)``.
    """
    return _ANONYMOUS.sub(lambda found: f"(a{found[1]}{found[2]})", schema)


def registered(namespaces: Iterable[str]) -> dict[str, str]:
    """What torch's dispatcher has now, in the form of `Golden.schemas`."""
    import torch

    wanted = frozenset(namespaces)
    schemas = (
        schema
        for schema in torch._C._jit_get_all_schemas()
        if schema.name.partition("::")[0] in wanted
    )
    return {_named(one): readable(str(one)) for one in schemas}


def dump(path: Path | str, namespaces: Iterable[str]) -> Golden:
    """Write a golden file of what torch's dispatcher has now, and read it again."""
    now = registered(namespaces)
    Path(path).write_text(json.dumps(dict(sorted(now.items())), indent=1) + "\n", "utf-8")
    return read_golden(path)


def compare(golden: Golden, now: Mapping[str, str]) -> tuple[str, ...]:
    """Drift between a golden file and what is registered now, a sentence for each op.

    Args:
        golden: As it is checked in.
        now: As `registered` gives it; ops of namespaces that the file does not have are left out.

    Returns:
        Ops that are gone, that are new, and that take or return something else. Names of aliases
        and spacing are no drift.
    """
    theirs = {op: text for op, text in now.items() if op.partition("::")[0] in golden.namespaces}
    gone = [f"{op} is gone" for op in golden.schemas if op not in theirs]
    new = [f"{op} is new: {text}" for op, text in theirs.items() if op not in golden.schemas]
    changed = [
        f"{op} was {text} and is {theirs[op]}"
        for op, text in golden.schemas.items()
        if op in theirs and _canonical(text) != _canonical(readable(theirs[op]))
    ]
    return (*gone, *changed, *new)


def _canonical(schema: str) -> str:
    import torch

    text = str(torch._C.parse_schema(schema))
    names: dict[str, str] = {}

    def renamed(found: re.Match[str]) -> str:
        return f"Tensor({names.setdefault(found[1], f'a{len(names)}')}{found[2]}"

    return re.sub(r"Tensor\((\w+)(!?)", renamed, text)


def _named(schema: Any) -> str:
    return f"{schema.name}.{schema.overload_name}" if schema.overload_name else str(schema.name)

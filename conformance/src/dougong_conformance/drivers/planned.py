"""Models of the zoo on disk, and a start prepared for one: the one place that reaches into it."""

from __future__ import annotations

import os
import shutil
import tempfile
import weakref
from pathlib import Path
from typing import Any

from dougong.config import EngineArgs
from dougong.engine.preparation import Preparation, prepare

from dougong_conformance.session import Session
from dougong_conformance.zoo.embedders import EMBEDDERS, write_embedder
from dougong_conformance.zoo.models import MODELS, write_model

_OPTIONS: dict[str, Any] = {
    "max_model_len": 128,
    "max_num_seqs": 8,
    "max_num_batched_tokens": 64,
    "num_kv_blocks": 64,
    "enable_prefix_caching": False,
    "seed": 0,
}


def model_folder(session: Session, name: str) -> str:
    """Where a model of the zoo lies, a generating one or an embedder; written once per session."""
    if "zoo" not in session.kept:
        root = Path(tempfile.mkdtemp(prefix="dougong-zoo-"))
        weakref.finalize(session, shutil.rmtree, root, ignore_errors=True)
        session.kept["zoo"] = root
    folder: Path = session.kept["zoo"] / name
    if not folder.exists():
        if name in MODELS:
            write_model(MODELS[name], folder)
        else:
            write_embedder(EMBEDDERS[name], folder)
    return str(folder)


def options_for(session: Session, dtype: str, **changes: Any) -> dict[str, Any]:
    """Options of an engine of the plugin under test, small ones where nothing else is said."""
    # Other wheels need not be tried in a child of their own at every start.
    os.environ["DOUGONG_PLUGINS"] = session.plugin.name
    chosen = {**_OPTIONS, "platform": session.plugin.name, "dtype": dtype, **changes}
    if session.device_index:
        chosen.setdefault("devices", str(session.device_index))
    return {name: value for name, value in chosen.items() if value is not None}


def prepared(session: Session, model: str, dtype: str, **changes: Any) -> Preparation:
    """All of a start that needs no device."""
    options = options_for(session, dtype, **changes)
    return prepare(EngineArgs.from_options({"model": model_folder(session, model), **options}))

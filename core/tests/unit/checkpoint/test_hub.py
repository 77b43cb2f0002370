from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import huggingface_hub.constants
import pytest
import torch
from huggingface_hub import HfApi

from dougong.checkpoint import check_complete, resolve_reference
from dougong.errors import CheckpointError
from tests.support.checkpoints import write_shards
from tests.support.hub_server import FakeHub, FakeRepo, hub_error, hub_server


def sharded_files(folder: Path) -> dict[str, bytes]:
    write_shards(folder, [{"a": torch.ones(2)}, {"b": torch.ones(3)}])
    (folder / "tokenizer.json").write_text("{}")
    (folder / "README.md").write_text("not needed")
    (folder / "pytorch_model.bin").write_bytes(b"not needed")
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeHub]:
    gguf_files = {f"m-{tag}.gguf": tag.encode() for tag in ("Q4_0", "Q4_K_M", "Q8_0")}
    repos = {
        "acme/tiny-llama": FakeRepo(sharded_files(tmp_path / "source"), revisions=("v2",)),
        "acme/tiny-GGUF": FakeRepo(gguf_files),
        "acme/secret": FakeRepo({"config.json": b"{}"}, is_gated=True),
        "acme/adapter": FakeRepo({"README.md": b""}),
    }
    with hub_server(repos) as running:
        monkeypatch.setenv("HF_ENDPOINT", running.url)
        monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path / "hf"))
        yield running


def test_only_what_is_needed_is_fetched_and_once(hub: FakeHub) -> None:
    files = resolve_reference("acme/tiny-llama")
    assert sorted(hub.downloads) == [
        "config.json",
        "model-00001-of-00002.safetensors",
        "model-00002-of-00002.safetensors",
        "model.safetensors.index.json",
        "tokenizer.json",
    ]
    assert files.revision == hub.repos["acme/tiny-llama"].commit
    assert files.companion("tokenizer.json") is not None
    check_complete(files)
    resolve_reference("acme/tiny-llama", revision="v2")
    assert len(hub.downloads) == 5


def test_a_gguf_is_chosen_by_tag_or_by_name(hub: FakeHub) -> None:
    by_tag = resolve_reference("acme/tiny-GGUF:q4_k_m")
    by_name = resolve_reference("acme/tiny-GGUF:m-Q8_0.gguf")
    assert [path.name for path in by_tag.weights] == ["m-Q4_K_M.gguf"]
    assert [path.name for path in by_name.weights] == ["m-Q8_0.gguf"]
    assert hub.downloads == ["m-Q4_K_M.gguf", "m-Q8_0.gguf"]


@pytest.mark.parametrize(
    ("reference", "message"),
    [
        ("acme/tiny-GGUF", "several GGUF models. Choose one, as in acme/tiny-GGUF:"),
        ("acme/tiny-GGUF:Q5_0", "no GGUF model matches 'Q5_0'"),
        ("acme/tiny-lama", "Did you mean 'acme/tiny-llama'"),
        ("demoo", "Did you mean 'demo'"),
        ("acme/secret", "accept its terms"),
        ("acme/adapter", "neither safetensors nor GGUF"),
    ],
)
def test_what_cannot_be_fetched_is_refused_with_a_way_out(
    hub: FakeHub, reference: str, message: str
) -> None:
    with pytest.raises(CheckpointError) as caught:
        resolve_reference(reference)
    assert message in str(caught.value)
    assert hub.downloads == []


def test_an_unknown_revision_is_named(hub: FakeHub) -> None:
    with pytest.raises(CheckpointError, match="no revision 'v3'"):
        resolve_reference("acme/tiny-llama", revision="v3")


def test_without_a_network_an_earlier_copy_is_used(
    hub: FakeHub, monkeypatch: pytest.MonkeyPatch
) -> None:
    fetched = resolve_reference("acme/tiny-llama")
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    assert resolve_reference("acme/tiny-llama").weights == fetched.weights
    with pytest.raises(CheckpointError, match="Without a network: fetch it elsewhere"):
        resolve_reference("acme/tiny-GGUF:Q8_0")


def test_a_fresh_process_asks_the_endpoint_of_its_environment(hub: FakeHub, tmp_path: Path) -> None:
    code = (
        "import json, dougong.checkpoint as c;"
        "f = c.resolve_reference('acme/tiny-llama');"
        "print(json.dumps([p.name for p in f.weights]))"
    )
    settings = {"HF_ENDPOINT": hub.url, "HF_HOME": str(tmp_path / "home")}
    result = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, **settings},
        capture_output=True,
        check=True,
        text=True,
    )
    assert json.loads(result.stdout) == [
        "model-00001-of-00002.safetensors",
        "model-00002-of-00002.safetensors",
    ]
    assert result.stderr == ""


@pytest.mark.parametrize(
    ("raised", "kind", "told"),
    [
        (TypeError("a fault of ours"), TypeError, "a fault of ours"),
        (OSError(28, "No space left on device"), CheckpointError, "could not be fetched.*No space"),
        (hub_error(403), CheckpointError, "could not be fetched.*status 403"),
    ],
    ids=repr,
)
def test_an_error_that_is_not_the_networks_never_falls_back_to_an_earlier_copy(
    hub: FakeHub,
    monkeypatch: pytest.MonkeyPatch,
    raised: Exception,
    kind: type[Exception],
    told: str,
) -> None:
    resolve_reference("acme/tiny-llama")

    def fail(*args: object, **options: object) -> None:
        raise raised

    monkeypatch.setattr(HfApi, "model_info", fail)
    with pytest.raises(kind, match=told):
        resolve_reference("acme/tiny-llama")


def test_a_hub_that_is_down_is_as_good_as_none(
    hub: FakeHub, monkeypatch: pytest.MonkeyPatch
) -> None:
    fetched = resolve_reference("acme/tiny-llama")

    def fail(*args: object, **options: object) -> None:
        raise hub_error(503)

    monkeypatch.setattr(HfApi, "model_info", fail)
    assert resolve_reference("acme/tiny-llama").weights == fetched.weights


@pytest.mark.parametrize("revision", [None, "v2", "commit"])
def test_a_revision_that_cannot_be_verified_is_said(
    hub: FakeHub,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    revision: str | None,
) -> None:
    commit = hub.repos["acme/tiny-llama"].commit
    asked = commit if revision == "commit" else revision
    resolve_reference("acme/tiny-llama", revision=asked)
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    resolve_reference("acme/tiny-llama", revision=asked)
    assert f"commit {commit}" in caplog.text
    said = f"that revision 'v2' still is commit {commit} could not be verified"
    assert (said in caplog.text) is (revision == "v2")


def test_without_need_of_weights_only_what_describes_them_is_fetched(hub: FakeHub) -> None:
    files = resolve_reference("acme/tiny-llama", needs_weights=False)
    fetched = ["config.json", "model.safetensors.index.json", "tokenizer.json"]
    assert sorted(hub.downloads) == fetched
    assert files.weights == ()
    with pytest.raises(CheckpointError, match="is missing; it holds"):
        check_complete(files)


def test_a_gguf_is_fetched_as_ever_since_its_config_is_inside(hub: FakeHub) -> None:
    files = resolve_reference("acme/tiny-GGUF:Q8_0", needs_weights=False)
    assert [path.name for path in files.weights] == ["m-Q8_0.gguf"]


def test_a_repository_that_could_not_be_served_is_refused_without_need_of_weights_too(
    hub: FakeHub,
) -> None:
    with pytest.raises(CheckpointError, match="neither safetensors nor GGUF"):
        resolve_reference("acme/adapter", needs_weights=False)


def test_a_config_fetched_earlier_is_used_offline_and_told_apart_from_weights(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    repo = FakeRepo({"config.json": b'{"model_type": "llama"}', "model.safetensors": b"weights"})
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path / "hf"))
    with hub_server({"acme/one": repo}) as running:
        monkeypatch.setenv("HF_ENDPOINT", running.url)
        described = resolve_reference("acme/one", needs_weights=False)
        assert running.downloads == ["config.json"]
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    assert resolve_reference("acme/one", needs_weights=False) == described
    with pytest.raises(CheckpointError, match="the configuration and no weights"):
        resolve_reference("acme/one")

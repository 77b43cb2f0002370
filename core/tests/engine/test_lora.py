"""Adapters of a whole engine say what the same weights say once they are merged."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers

from dougong import LLM, SamplingParams
from dougong.errors import CapacityError, ConfigError, RequestError
from dougong.kv_cache.prefix_index import BlockHasher
from dougong.lora import LoRAPlace, adapter_places
from dougong.lora.linear import LoRAPart
from dougong.messages import NewRequestData, RequestOutput
from dougong.worker import loading
from dougong.worker.input_batch import InputBatch
from tests.support.tiny_adapters import TARGETS, adapter_deltas, write_adapter
from tests.support.tiny_models import tiny_config, write_tiny_checkpoint

BASE: dict[str, Any] = {"platform": "cpu", "dtype": "float32", "block_size": 16}
CONFIG = tiny_config()
NUM_TOKENS = 24
TOLERANCE = 1e-4  # of log-probabilities, float32
ADAPTERS: dict[str, dict[str, Any]] = {
    "all": {"seed": 1},
    "queries": {"seed": 2, "targets": ("q_proj",), "rank": 2},
    "rooted": {"seed": 3, "targets": ("k_proj", "v_proj", "down_proj"), "use_rslora": True},
}
NAMES = (None, *ADAPTERS)


def prompt(num_tokens: int, start: int = 0) -> list[int]:
    return [(7 * position + 13 * start + 5) % 250 for position in range(num_tokens)]


PROMPTS = [prompt(7 + 12 * start, start) for start in range(4)]


def greedy() -> SamplingParams:
    return SamplingParams(max_tokens=NUM_TOKENS, temperature=0.0, ignore_eos=True, logprobs=0)


class Merged:
    """The checkpoint as `transformers` computes it, with an adapter in its weights."""

    def __init__(self, path: str) -> None:
        made = transformers.AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32)
        self._model = made.eval()
        self._base = {name: tensor.clone() for name, tensor in made.state_dict().items()}
        self._wishes: dict[str, Any] | None = None

    def with_adapter(self, wishes: dict[str, Any] | None) -> Merged:
        if wishes != self._wishes:
            added = {} if wishes is None else adapter_deltas(CONFIG, **wishes)
            self._model.load_state_dict(
                {name: base + added.get(name, 0) for name, base in self._base.items()}
            )
            self._wishes = wishes
        return self

    @torch.no_grad()
    def check(self, outputs: Sequence[RequestOutput]) -> None:
        """Every token is the likeliest after those before it, as likely as was told."""
        for one in outputs:
            found = one.outputs[0]
            assert len(found.token_ids) == NUM_TOKENS
            ids = [*one.prompt_token_ids, *found.token_ids]
            logprobs = self._model(torch.tensor([ids])).logits[0].log_softmax(-1)
            best = logprobs[len(one.prompt_token_ids) - 1 : -1].max(-1)
            assert found.token_ids == best.indices.tolist()
            assert found.logprobs is not None
            told = [entry.logprob for entry in found.logprobs]
            assert told == pytest.approx(best.values.tolist(), abs=TOLERANCE)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("lora")


@pytest.fixture(scope="module")
def model(folder: Path) -> str:
    return str(write_tiny_checkpoint(folder / "base", CONFIG))


@pytest.fixture(scope="module")
def paths(folder: Path) -> dict[str, str]:
    return {
        name: str(write_adapter(folder / f"adapter-{name}", CONFIG, **wishes))
        for name, wishes in ADAPTERS.items()
    }


@pytest.fixture(scope="module")
def oracle(model: str) -> Merged:
    return Merged(model)


def check_each(oracle: Merged, outputs: Sequence[RequestOutput], name: str | None) -> None:
    """Against the weights with one of `ADAPTERS`, or with none."""
    oracle.with_adapter(None if name is None else ADAPTERS[name]).check(outputs)


def named(paths: dict[str, str]) -> list[str]:
    return [f"{name}={path}" for name, path in paths.items()]


@pytest.fixture(scope="module")
def llm(model: str, paths: dict[str, str]) -> Iterator[LLM]:
    with LLM(model, num_kv_blocks=200, lora=named(paths), **BASE) as made:
        yield made


@pytest.mark.parametrize("name", NAMES)
def test_an_adapter_alone_equals_merged_weights(llm: LLM, oracle: Merged, name: str | None) -> None:
    assert llm.loras() == tuple(ADAPTERS)
    check_each(oracle, llm.generate(PROMPTS, greedy(), lora=name), name)


def check_mixed(llm: LLM, oracle: Merged) -> None:
    """Every prompt with every adapter and none in one batch."""
    order = [(name, one) for one in PROMPTS for name in NAMES]
    outputs = llm.generate([one for _, one in order], greedy(), lora=[name for name, _ in order])
    for index, name in enumerate(NAMES):
        check_each(oracle, outputs[index :: len(NAMES)], name)


def test_several_adapters_and_none_share_a_batch_and_a_prefix_cache(
    llm: LLM, oracle: Merged
) -> None:
    check_mixed(llm, oracle)
    check_mixed(llm, oracle)  # every prefix is known now, each adapter's its own
    assert llm.stats().scheduler.kv_cache.num_hit_tokens > 0


def test_chunks_and_preemption_change_nothing(
    model: str, paths: dict[str, str], oracle: Merged
) -> None:
    options = BASE | {"max_num_batched_tokens": 16, "max_num_seqs": 8, "num_kv_blocks": 9}
    with LLM(model, lora=named(paths), **options) as llm:
        check_mixed(llm, oracle)
        assert llm.stats().scheduler.num_preemptions > 0


@pytest.mark.parametrize("target", TARGETS)
def test_every_projection_takes_an_adapter(
    folder: Path, llm: LLM, oracle: Merged, target: str
) -> None:
    wishes: dict[str, Any] = {"seed": 10 + TARGETS.index(target), "targets": (target,), "rank": 3}
    llm.load_lora(target, str(write_adapter(folder / f"one-{target}", CONFIG, **wishes)))
    outputs = llm.generate(PROMPTS, greedy(), lora=target)
    llm.unload_lora(target)
    oracle.with_adapter(wishes).check(outputs)
    with pytest.raises(AssertionError):
        oracle.with_adapter(None).check(outputs)


def wrong_slot(plant: pytest.MonkeyPatch) -> None:
    honest = InputBatch._add

    def add(self: InputBatch, new: NewRequestData) -> None:
        honest(self, replace(new, lora_slot=max(-1, new.lora_slot - 1)))

    plant.setattr(InputBatch, "_add", add)


def no_owner_of_blocks(plant: pytest.MonkeyPatch) -> None:
    honest = BlockHasher.extend

    def extend(
        self: BlockHasher, hashes: list[bytes], ids: Sequence[int], number: int, salt: bytes = b""
    ) -> None:
        honest(self, hashes, ids, number)

    plant.setattr(BlockHasher, "extend", extend)


def plant_fill(change: Callable[[LoRAPart], None]) -> Callable[[pytest.MonkeyPatch], None]:
    def plant_it(plant: pytest.MonkeyPatch) -> None:
        honest = LoRAPart.fill

        def fill(self: LoRAPart, slot: int, pair: Any) -> None:
            honest(self, slot, pair)
            change(self)

        plant.setattr(LoRAPart, "fill", fill)

    return plant_it


def scale_twice(part: LoRAPart) -> None:
    part.b.mul_(1.5)


def keys_and_values_swapped(plant: pytest.MonkeyPatch) -> None:
    honest = adapter_places

    def places(model: Any, targets: Any) -> tuple[LoRAPlace, ...]:
        found = honest(model, targets)
        rows = {one.name: one.rows for one in found}
        other = {"k_proj": "v_proj", "v_proj": "k_proj"}
        return tuple(
            replace(one, rows=rows[f"{head}.{other[tail]}"]) if tail in other else one
            for one in found
            for head, _, tail in [one.name.rpartition(".")]
        )

    plant.setattr(loading, "adapter_places", places)


@pytest.mark.parametrize(
    "plant_mistake",
    [wrong_slot, no_owner_of_blocks, plant_fill(scale_twice), keys_and_values_swapped],
    ids=["wrong slot", "blocks without an owner", "scale twice", "keys and values swapped"],
)
def test_a_planted_mistake_is_caught(
    model: str,
    paths: dict[str, str],
    oracle: Merged,
    monkeypatch: pytest.MonkeyPatch,
    plant_mistake: Callable[[pytest.MonkeyPatch], None],
) -> None:
    plant_mistake(monkeypatch)
    with LLM(model, num_kv_blocks=200, lora=named(paths), **BASE) as llm:
        if plant_mistake is no_owner_of_blocks:
            llm.generate(PROMPTS, greedy(), lora="all")  # what it leaves is found by others
        with pytest.raises(AssertionError):
            check_mixed(llm, oracle)


def test_slots_are_freed_and_none_of_their_past_is_found(
    model: str, paths: dict[str, str], oracle: Merged
) -> None:
    with LLM(model, num_kv_blocks=200, enable_lora=True, max_loras=1, **BASE) as llm:
        llm.load_lora("mine", paths["all"])
        with pytest.raises(CapacityError, match="--max-loras 2"):
            llm.load_lora("other", paths["queries"])
        check_each(oracle, llm.generate(PROMPTS, greedy(), lora="mine"), "all")
        llm.unload_lora("mine")
        assert llm.loras() == ()
        with pytest.raises(RequestError, match="no adapter 'mine'; loaded: none") as caught:
            llm.generate(PROMPTS, greedy(), lora="mine")
        assert caught.value.field == "lora"
        llm.load_lora("mine", paths["queries"])  # the old name, in the old slot, and new blocks
        check_each(oracle, llm.generate(PROMPTS, greedy(), lora="mine"), "queries")
        check_each(oracle, llm.generate(PROMPTS, greedy()), None)
        stream = llm.stream(PROMPTS[0], greedy(), lora="mine")
        next(stream)
        llm.unload_lora("mine")
        with pytest.raises(CapacityError, match="until their last request ends"):
            llm.load_lora("other", paths["all"])
        check_each(oracle, list(stream)[-1:], "queries")
        llm.load_lora("other", paths["all"])


def test_nothing_is_half_loaded(
    folder: Path, llm: LLM, paths: dict[str, str], oracle: Merged
) -> None:
    wide = tiny_config(hidden_size=128)
    misfit = str(write_adapter(folder / "misfit", wide))
    large = str(write_adapter(folder / "large", CONFIG, rank=17))
    for path, why in ((misfit, "does not fit this model"), (large, "--max-lora-rank 17")):
        with pytest.raises(RequestError, match=why):
            llm.load_lora("other", path)
    with pytest.raises(RequestError, match="loaded already"):
        llm.load_lora("all", paths["queries"])
    assert llm.loras() == tuple(ADAPTERS)
    check_mixed(llm, oracle)


def test_an_engine_without_adapters_says_how_to_get_them(model: str, paths: dict[str, str]) -> None:
    with LLM(model, num_kv_blocks=50, **BASE) as llm:
        assert "--enable-lora" in llm.plan.lora.reason
        with pytest.raises(RequestError, match="--enable-lora"):
            llm.load_lora("all", paths["all"])
        with pytest.raises(RequestError, match="--enable-lora"):
            llm.generate(PROMPTS, greedy(), lora="all")


def test_a_bad_adapter_stops_the_start_before_the_model_is_loaded(model: str, folder: Path) -> None:
    with pytest.raises(ConfigError, match=r"--lora mine=.*adapter_config.json cannot be read"):
        LLM(model, lora=[f"mine={folder / 'nowhere'}"], **BASE)

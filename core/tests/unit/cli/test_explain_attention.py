from __future__ import annotations

from dataclasses import replace
from io import StringIO

from rich.console import Console
from rich.tree import Tree

from dougong.cli.explain_attention import attention_tree, kv_cache_tree
from dougong.config.decision import USER
from dougong.contracts import AttentionPhase
from dougong.planner import AttentionPlan
from tests.support.made_up_plans import attention_plan, chip_plan, plain_plan


def _lines(tree: Tree) -> list[str]:
    console = Console(file=StringIO(), width=300, highlight=False)
    console.print(tree)
    assert isinstance(console.file, StringIO)
    return console.file.getvalue().splitlines()


def _attention(*kinds: AttentionPlan) -> str:
    return "\n".join(_lines(attention_tree(replace(plain_plan(), attention=kinds))))


def test_each_kind_of_layer_has_its_backend_and_what_it_needs() -> None:
    text = _attention(attention_plan("a/x", (0, 1, 2)), attention_plan("a/y", (3,)))
    assert "attention: 4 layers of 2 kinds" in text
    assert "layers 0-2: a/x, chosen by the core" in text
    assert "layer 3: a/y, chosen by the core" in text
    assert "8 query heads, 2 KV heads of 64 elements, float32, KV cache in float32\n" in text


def test_two_backends_of_one_layer_are_told_by_what_they_serve() -> None:
    text = _attention(attention_plan("a/x", decode_backend="a/y", author=USER))
    assert "a/x for prefill, a/y for decode, as the user asked" in text


def test_a_platform_that_chose_is_named() -> None:
    assert "a/x, by platform acme" in _attention(attention_plan("a/x", author="platform acme"))


def test_everything_special_about_a_layer_is_among_its_needs() -> None:
    kind = attention_plan("a/x", sliding_window=4096)
    request = replace(
        kind.assignment.request,
        soft_cap=30.0,
        has_sinks=True,
        is_mla=True,
        kv_lora_rank=512,
        rope_head_dim=64,
        needs_graph=True,
        phase=AttentionPhase.DECODE,
    )
    text = _attention(replace(kind, assignment=replace(kind.assignment, request=request)))
    assert "a window of 4,096 tokens, scores capped at 30, sinks" in text
    assert "latent rows of 512, 64 rotated, decode steps, capture in a graph" in text


def test_the_layout_says_what_a_block_is_and_what_else_it_takes() -> None:
    text = _attention(attention_plan("a/x", alignment_bytes=512, workspace_bytes=2**20))
    assert (
        "heads-tokens-dim, in a block k and v [2, 16, 64] float32; takes blocks of 32 too; "
        "blocks aligned to 512 B; slots in int64"
    ) in text
    assert "workspace: 1 MiB beside the cache" in text


def test_the_cache_says_what_it_uses_and_what_alignment_wastes() -> None:
    assert [line.lstrip("├└─ ") for line in _lines(kv_cache_tree(chip_plan()))] == [
        "KV cache: 20,000 blocks, 320,000 tokens, 645 MiB (at most; the start measures what "
        "memory leaves)",
        "one block: 16 tokens of all layers in bfloat16: 33 KiB, 2.1 KiB per token",
        "lost to alignment: 1 KiB of each block (3.0%), 19.5 MiB in all",
        "reserved: 1 block, which a backend keeps for itself",
    ]


def test_a_number_of_blocks_that_was_asked_for_is_no_bound() -> None:
    asked = replace(chip_plan(), choices={"num_kv_blocks": 20_000})
    assert _lines(kv_cache_tree(asked))[0].endswith("645 MiB (as asked)")


def test_an_unknown_number_of_blocks_is_said() -> None:
    first, *rest = _lines(kv_cache_tree(plain_plan()))
    assert first == "KV cache: as many blocks as memory leaves, measured at the start"
    assert rest[-1].endswith("lost to alignment: nothing")
    cache = replace(chip_plan().kv_cache, num_blocks=None)
    unknown = "\n".join(_lines(kv_cache_tree(replace(chip_plan(), kv_cache=cache))))
    assert "1 KiB of each block (3.0%)\n" in unknown


def test_a_model_that_keeps_no_keys_and_values_has_no_cache() -> None:
    said = _lines(kv_cache_tree(replace(plain_plan(), attention=())))
    assert said == ["KV cache: none: the model keeps no keys and values"]

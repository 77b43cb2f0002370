"""Capability files that somebody wrote by hand, and got wrong."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dougong.contracts import AttentionRequest, KVCacheSpec
from dougong.describe import CapabilityFile, capability_json, parse_capabilities
from dougong.errors import ConfigError
from tests.unit.describe.test_capability_file import FULL, SMALLEST, parse

PROPERTIES = {"rms_norm": ("hidden_size",), "linear": ("in_features", "out_features")}
SPEC = KVCacheSpec(num_kv_heads=2, head_dim=64, dtype="bfloat16", block_size=16)
REQUEST = AttentionRequest(
    num_heads=8, num_kv_heads=2, head_dim=64, dtype="bfloat16", kv_dtype="bfloat16"
)


def op(**changes: Any) -> list[dict[str, Any]]:
    return [{"key": "rms_norm", "name": "acme/norm", **changes}]


def attention(**limits: Any) -> dict[str, Any]:
    return {"acme/flash": {"limits": {"dtypes": ["bfloat16"], **limits}}}


def layout(**changes: Any) -> dict[str, Any]:
    buffer = {"name": "k", "block_shape": ["tokens", "heads", "dim"]}
    stated: dict[str, Any] = {"name": "acme/blocked", "buffers": [buffer]}
    for name, value in changes.items():
        (stated if name in ("alignment_bytes", "slot_dtype", "buffers") else buffer)[name] = value
    return {"acme/flash": {"layouts": [stated]}}


@pytest.mark.parametrize(
    ("path", "value", "told"),
    [
        (("claims", "dtypes"), ["bfloat"], r"claims\.dtypes\[0\]: unknown dtype 'bfloat'; known"),
        (("claims", "kv_dtypes"), ["float32", "x"], r"claims\.kv_dtypes\[1\]: unknown dtype 'x'"),
        (("claims", "memory_bandwidth"), -1, r"claims\.memory_bandwidth is -1"),
        (("claims", "compute_rate"), {"bfloat16": 0}, r"claims\.compute_rate\.bfloat16 is 0"),
        (("claims", "max_head_size"), 0, r"claims\.max_head_size is 0"),
        (("facts", "memory_bandwidth"), 0.0, r"facts\.memory_bandwidth is 0"),
        (("facts", "memory_total_bytes"), -5, r"facts\.memory_total_bytes is -5"),
        (("facts", "memory_quota_bytes"), 0, r"facts\.memory_quota_bytes is 0"),
        (("facts", "name"), " ", r"facts\.name is empty"),
        (("platform",), "", r"platform is empty"),
        (("contract",), "7.0", r"contract is '7\.0', and this dougong has contract 1\.0"),
        (("contract",), "xx", r"contract is 'xx'; write a version"),
        (("kernels",), {"loaded": ["a 1", ""]}, r"kernels\.loaded\[1\] is empty"),
        (("kernels",), {"missing": {"a": ""}}, r"kernels\.missing\.a is empty"),
        (("kernels",), {"missing": {"": "why"}}, r"kernels\.missing has an empty name"),
        (("environment",), {"": "1"}, r"environment has an empty name"),
        (("attention",), attention(block_sizes=[16, 0]), r"limits\.block_sizes\[1\] is 0"),
        (("attention",), attention(block_sizes=[-16]), r"limits\.block_sizes\[0\] is -16"),
        (("attention",), attention(head_sizes=[0]), r"limits\.head_sizes is 0"),
        (("attention",), attention(kv_dtypes=["fp8"]), r"limits\.kv_dtypes: unknown dtype 'fp8'"),
        (("attention",), attention(phases=[]), r"limits\.phases is empty"),
        (("attention",), layout(alignment_bytes=0), r"layouts\[0\]\.alignment_bytes is 0"),
        (("attention",), layout(slot_dtype="int8"), r"layouts\[0\]\.slot_dtype is 'int8'"),
        (("attention",), layout(buffers=[]), r"layouts\[0\]\.buffers is empty"),
        (("attention",), layout(block_shape=["token"]), r"'token' is unknown: did you mean 'tok"),
        (("attention",), layout(block_shape=["dim/0"]), r"it can be divided by a number only"),
        (("attention",), layout(block_shape=[0]), r"block_shape\[0\] is 0"),
        (("attention",), layout(block_axis=4), r"buffers\[0\]\.block_axis is 4; there are 4 axes"),
        (("attention",), layout(stride_order=[0, 0]), r"buffers\[0\]\.stride_order is \[0, 0\]"),
        (("ops",), op(when={"self": 1}), r"ops\[0\]\.when\.'self' cannot be the name"),
        (("ops",), op(when={"dtyp": ["x"]}), r"ops\[0\]\.when\.dtyp is unknown: did you mean 'dty"),
        (("ops",), op(when={"envs": {}}), r"ops\[0\]\.when\.envs is unknown: did you mean 'env'"),
        (("ops",), op(when={"driver": "new"}), r"ops\[0\]\.when\.driver: 'new' is no bound"),
        (("ops",), op(tokens={"at_most": 0}), r"ops\[0\]\.tokens is .* at least 1 token"),
        (("ops",), op(name="native"), r"ops\[0\]\.name is 'native', which every op has"),
        (("ops",), op(name=""), r"ops\[0\]\.name is empty"),
        (("ops",), op(key=""), r"ops\[0\]\.key is empty"),
        (("ops",), op() + op(priority=2), r"ops\[1\] is 'acme/norm' of 'rms_norm', as ops\[0\]"),
    ],
)
def test_what_cannot_be_is_refused_with_its_place(
    path: tuple[str, ...], value: Any, told: str
) -> None:
    with pytest.raises(ConfigError, match=told):
        parse(*path, value=value)


@pytest.mark.parametrize(
    ("ops", "told"),
    [
        (op(when={"hiden_size": 64}), r"hiden_size is no property of this op: did you mean 'hidd"),
        (op(when={"dtipe": "x"}), r"dtipe is no property of this op: did you mean 'dtype'"),
        (op(key="rms_nrom"), r"key is 'rms_nrom', and there is no such op: did you mean 'rms_norm"),
    ],
)
def test_whoever_knows_the_ops_has_their_names_checked(
    ops: list[dict[str, Any]], told: str
) -> None:
    text = json.dumps(SMALLEST | {"ops": ops})
    with pytest.raises(ConfigError, match=told):
        parse_capabilities(text, op_properties=PROPERTIES)


def test_properties_of_a_plugins_own_op_are_its_own_affair() -> None:
    ops = op(key="acme/swirl", when={"in_features": 4, "curl": "left"})
    text = json.dumps(SMALLEST | {"ops": ops})
    assert len(parse_capabilities(text, op_properties=PROPERTIES).ops) == 1


def test_several_mistakes_are_told_together() -> None:
    plain = copy.deepcopy(SMALLEST)
    plain["claims"]["dtypes"] = ["bfloat"]
    plain["claims"]["dtyps"] = []
    plain["kernels"] = {"loaded": [""]}
    plain["ops"] = op(when={"driver": "new", "envs": 1}, tokens={"most": 1})
    with pytest.raises(ConfigError) as caught:
        parse_capabilities(json.dumps(plain))
    told = [one.split(" ")[0].rstrip(":") for one in caught.value.problems]
    assert told == [
        "claims.dtyps",
        "kernels.loaded[0]",
        "claims.dtypes[0]",
        "ops[0].when.driver",
        "ops[0].when.envs",
        "ops[0].tokens",
    ]


@pytest.mark.parametrize("depth", [40, 100_000])
def test_endless_nesting_is_no_capability_file(depth: int) -> None:
    text = json.dumps(SMALLEST)[:-1] + ', "kernels": ' + "[" * depth + "]" * depth + "}"
    with pytest.raises(ConfigError, match="nests more than 32 levels"):
        parse_capabilities(text)


def test_text_that_cannot_be_encoded_is_not_json() -> None:
    with pytest.raises(ConfigError, match="is not JSON"):
        parse_capabilities('{"format": "\ud800"}')


def places(plain: Any) -> list[tuple[Any, Any]]:
    """Every container with each of its keys."""
    pairs = plain.items() if isinstance(plain, dict) else enumerate(plain)
    found = []
    for key, value in list(pairs):
        found.append((plain, key))
        if isinstance(value, dict | list):
            found.extend(places(value))
    return found


ODD: tuple[Any, ...] = (
    None,
    True,
    0,
    -1,
    2**70,
    1.5,
    "",
    "self",
    "native",
    [],
    {},
    [""],
    [0],
    {"x": 1},
    [[1]],
)


@settings(max_examples=150, deadline=None, derandomize=True, database=None)
@given(st.data())
def test_a_damaged_file_is_read_or_refused_and_nothing_else(data: st.DataObject) -> None:
    plain = json.loads(capability_json(FULL))
    for _ in range(data.draw(st.integers(1, 3))):
        holder, key = data.draw(st.sampled_from(places(plain)))
        match data.draw(st.sampled_from(("drop", "retype", "rename", "nest"))):
            case "drop":
                del holder[key]
            case "retype":
                holder[key] = copy.deepcopy(data.draw(st.sampled_from(ODD)))
            case "nest":
                holder[key] = {"inner": holder[key]} if data.draw(st.booleans()) else [holder[key]]
            case "rename" if isinstance(holder, dict):
                holder[data.draw(st.sampled_from((f"{key}s", "", "self", "x")))] = holder.pop(key)
    try:
        found = parse_capabilities(json.dumps(plain), op_properties=PROPERTIES)
    except ConfigError:
        return
    assert isinstance(found, CapabilityFile)
    assert parse_capabilities(capability_json(found)) == found
    for backend in found.attention_backends().values():
        backend.supports(REQUEST)
        assert backend.kv_layout(SPEC).block_bytes > 0

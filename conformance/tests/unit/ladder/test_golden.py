from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from dougong_conformance.ladder import golden
from tests.unit.ladder import acme


@pytest.fixture
def known(tmp_path: Path) -> golden.Golden:
    return golden.read_golden(acme.write_golden(tmp_path))


def test_every_form_of_an_entry_is_read_and_parsed_by_torch(known: golden.Golden) -> None:
    assert known.schemas["acme::write"] == (
        "acme::write(Tensor key, Tensor(a0!) cache, *, str mode='NZ') -> ()"
    )
    for text in known.schemas.values():
        assert torch._C.parse_schema(text)
    assert known.with_meta == {"acme::cast"}
    assert known.namespaces == {"acme"}
    assert known.overloads("acme::cast") == ("acme::cast", "acme::cast.like")
    assert len(known.digest) == 64


@pytest.mark.parametrize(
    "schema",
    [
        "x::f(Tensor($0! -> ) a, Tensor b) -> Tensor($0! -> )",
        "x::f(Tensor($12 -> *) a, Tensor($3!) b) -> ()",
    ],
)
def test_aliases_without_a_name_get_one(schema: str) -> None:
    assert "$" not in golden.readable(schema)
    assert torch._C.parse_schema(golden.readable(schema))


@pytest.mark.parametrize("entry", [{"keys": ["X"]}, 7, {"schema": None}])
def test_an_entry_without_a_schema_is_refused(tmp_path: Path, entry: object) -> None:
    path = tmp_path / "a.json"
    path.write_text(json.dumps({"x::f": entry}))
    with pytest.raises(ValueError, match="x::f has no schema"):
        golden.read_golden(path)


def test_a_schema_under_the_name_of_another_op_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    path.write_text(json.dumps({"x::f": "x::g(Tensor a) -> Tensor"}))
    with pytest.raises(ValueError, match="under x::f stands a schema of x::g"):
        golden.read_golden(path)


def test_no_drift_where_only_names_of_aliases_differ(known: golden.Golden) -> None:
    now = dict(known.schemas)
    now["acme::write"] = "acme::write(Tensor key, Tensor(b!) cache, *, str mode='NZ') -> ()"
    assert golden.compare(known, now) == ()


@pytest.mark.parametrize(
    ("op", "schema", "said"),
    [
        ("acme::cast", "", "acme::cast is gone"),
        ("acme::new", "acme::new(Tensor x) -> Tensor", "acme::new is new"),
        ("acme::cast", "acme::cast(Tensor x, float kind) -> Tensor", "acme::cast was"),
        ("acme::write", "acme::write(Tensor key, Tensor(a!) cache, *, str mode='ND') -> ()", "was"),
        ("acme::write", "acme::write(Tensor key, Tensor cache, *, str mode='NZ') -> ()", "was"),
    ],
)
def test_every_kind_of_drift_is_found(
    known: golden.Golden, op: str, schema: str, said: str
) -> None:
    now = {**known.schemas, op: schema}
    if not schema:
        del now[op]
    (drift,) = golden.compare(known, now)
    assert said in drift


def test_ops_of_other_namespaces_are_no_drift(known: golden.Golden) -> None:
    assert golden.compare(known, {**known.schemas, "b::f": "b::f(Tensor x) -> Tensor"}) == ()


def test_what_the_dispatcher_has_is_dumped_and_read_again(tmp_path: Path) -> None:
    make_library: Any = torch.library.Library
    library = make_library("acme_dump", "DEF")
    library.define("f(Tensor(a!) x, *, int n=3) -> ()")
    library.define("f.more(Tensor x) -> Tensor")
    dumped = golden.dump(tmp_path / "now.json", {"acme_dump"})
    assert set(dumped.schemas) == {"acme_dump::f", "acme_dump::f.more"}
    assert golden.compare(dumped, golden.registered({"acme_dump"})) == ()

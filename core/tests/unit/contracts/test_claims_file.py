"""Claims in a data file of a wheel: what it may say, and what is said where it cannot be used."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from dougong.contracts import Claims, ConfigError, QuantizationSupport, read_claims, read_families

GOOD = """
[generic]
dtypes = ["float32"]
features = ["acme.all"]
limits = {"acme.rows" = 4}

[family.one]
dtypes = ["bfloat16", "float32"]
features = ["acme.one", "acme.all"]
max_head_size = 256
memory_bandwidth = 1_600_000_000_000
pin_memory = true

[family.one.limits]
"shared_memory_bytes" = 65536

[family.one.compute_rate]
bfloat16 = 3.5e14

[[family.one.quantization]]
format = "fp8"
storage = "float8_e4m3fn"
activation_dtypes = ["bfloat16"]
is_native = true
kernel = "acme/mm_fp8"

[family.two]
"""

Package = Callable[[str], str]


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Package:
    """A package that holds a file with the given text; its import name."""

    def make(text: str) -> str:
        name = f"acme_{tmp_path.name}"
        folder = tmp_path / name
        folder.mkdir()
        (folder / "__init__.py").touch()
        (folder / "claims.toml").write_text(text, "utf-8")
        monkeypatch.syspath_prepend(str(tmp_path))
        return name

    return make


def test_a_family_has_what_it_states_and_else_what_is_generic(package: Package) -> None:
    name = package(GOOD)
    fp8 = QuantizationSupport(
        format="fp8",
        storage="float8_e4m3fn",
        activation_dtypes=("bfloat16",),
        is_native=True,
        kernel="acme/mm_fp8",
    )
    assert read_claims(name, "one") == Claims(
        arch="one",
        dtypes=("bfloat16", "float32"),
        features=frozenset({"acme.one", "acme.all"}),
        max_head_size=256,
        memory_bandwidth=1.6e12,
        pin_memory=True,
        limits={"shared_memory_bytes": 65536},
        compute_rate={"bfloat16": 3.5e14},
        quantization=(fp8,),
    )
    assert read_claims(name, "two").features == {"acme.all"}
    assert read_families(name) == ("one", "two")


def test_an_unknown_family_gets_what_is_generic_and_is_told_so(package: Package) -> None:
    claims = read_claims(package(GOOD), "three")
    assert claims == Claims(
        arch="three",
        is_generic=True,
        dtypes=("float32",),
        features=frozenset({"acme.all"}),
        limits={"acme.rows": 4},
    )


def test_no_reader_can_change_what_the_next_one_gets(package: Package) -> None:
    name = package(GOOD)
    first = read_claims(name, "one")
    assert isinstance(first.limits, dict)
    first.limits["shared_memory_bytes"] = 1
    assert read_claims(name, "one").limits == {"shared_memory_bytes": 65536}


WRONG: Mapping[str, tuple[str, ...]] = {
    "dtypes = 3": ("there is no [generic]", "[dtypes] is no table of this file"),
    '[generic]\nfeatures = ["a"]': ("generic.dtypes is missing",),
    "[generic]\ndtypes = []": ("generic.dtypes is empty",),
    '[generic]\ndtypes = ["a"]\ndtypess = 1': ("generic.dtypess is no field", "mean 'dtypes'"),
    '[generic]\ndtypes = ["a"]\narch = "x"': ("generic.arch is no field",),
    '[generic]\ndtypes = "a"': ("generic.dtypes: Expected `array`, got `str`",),
    '[generic]\ndtypes = ["a"]\nslot_dtype = "int8"': ("generic.slot_dtype is 'int8'",),
    '[generic]\ndtypes = ["a"]\n[family]\none = 2': ("family.one is no table",),
    '[generic]\ndtypes = ["a"]\n[family.one]\npin_memory = "yes"': ("family.one.pin_memory: ",),
    '[generic]\ndtypes = ["a"]\n[[family.one.quantization]]\nformat = "x"': (
        "family.one.quantization: Object missing required field",
    ),
    "[generic": ("is not TOML",),
}


@pytest.mark.parametrize("text", WRONG)
def test_what_is_wrong_is_told_with_its_place(package: Package, text: str) -> None:
    name = package(text)
    with pytest.raises(ConfigError) as raised:
        read_claims(name, "one")
    for part in (f"claims.toml of {name}", *WRONG[text]):
        assert part in str(raised.value)


def test_an_unknown_key_of_a_format_is_told(package: Package) -> None:
    text = GOOD.replace("is_native = true", "is_native = true\nscales = 1")
    with pytest.raises(ConfigError, match=r"family\.one\.quantization\[0\]\.scales is no field"):
        read_claims(package(text), "one")


def test_a_file_that_the_wheel_left_out_is_told() -> None:
    with pytest.raises(ConfigError, match=r"claims\.toml of dougong\.contracts cannot be read"):
        read_claims("dougong.contracts", "one")
    with pytest.raises(ConfigError, match="cannot be read: No module named 'no_such_wheel'"):
        read_families("no_such_wheel")

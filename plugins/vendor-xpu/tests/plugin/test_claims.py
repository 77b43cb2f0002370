"""Claims are of every family that devices are told to be, and no more than what is certain."""

from __future__ import annotations

from dougong_xpu import families
from dougong_xpu.compiled import BLOCK_SIZES
from dougong_xpu.ipex_attention import IpexPagedBackend
from dougong_xpu.platform import XpuPlatform

PLATFORM = XpuPlatform()


def test_every_family_of_the_table_has_claims_and_no_other() -> None:
    assert set(PLATFORM.families()) == set(families._NAMES) == set(families._DEVICE_IDS)
    assert not any(PLATFORM.claims(one).is_generic for one in PLATFORM.families())


def test_no_device_is_of_two_families() -> None:
    ids = [one for text in families._DEVICE_IDS.values() for one in text.split()]
    assert len(ids) == len(set(ids))


def test_an_unknown_family_gets_what_holds_everywhere() -> None:
    claims = PLATFORM.claims("pci-4680")
    assert claims.is_generic
    assert claims.arch == "pci-4680"
    assert claims.dtypes == ("float32",)
    assert not claims.features


def test_bfloat16_is_not_claimed_for_the_a_series() -> None:
    claims = PLATFORM.claims("dg2")
    assert "bfloat16" not in (*claims.dtypes, *claims.kv_dtypes, *claims.collective_dtypes)
    assert not claims.features, "attention and grouped products refuse this family"


def test_no_family_claims_graphs_or_a_double() -> None:
    for family in PLATFORM.families():
        claims = PLATFORM.claims(family)
        assert not claims.graph_capture
        assert "device.double" not in claims.features


def test_the_older_library_is_planned_for_no_family() -> None:
    for family in (*PLATFORM.families(), "unknown"):
        assert not IpexPagedBackend.features <= PLATFORM.claims(family).features


def test_blocks_are_offered_as_attention_takes_them() -> None:
    for family in (*PLATFORM.families(), "unknown"):
        assert PLATFORM.claims(family).kv_block_sizes == BLOCK_SIZES
        assert PLATFORM.claims(family).slot_dtype == "int64"

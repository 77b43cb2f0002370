from __future__ import annotations

from dougong.kv_cache import BlockHasher, BlockTable, PrefixIndex


def hashes_of(hasher: BlockHasher, tokens: list[int], num_blocks: int) -> list[bytes]:
    hashes: list[bytes] = []
    hasher.extend(hashes, tokens, num_blocks)
    return hashes


def test_equal_prefixes_have_equal_hashes_and_others_do_not() -> None:
    hasher = BlockHasher(2)
    base = hashes_of(hasher, [1, 2, 3, 4], 2)
    assert hashes_of(hasher, [1, 2, 3, 5], 2)[0] == base[0]
    assert hashes_of(hasher, [1, 2, 3, 5], 2)[1] != base[1]


def test_a_block_is_known_with_all_that_stands_before_it() -> None:
    hasher = BlockHasher(2)
    assert hashes_of(hasher, [1, 2, 3, 4], 2)[1] != hashes_of(hasher, [9, 9, 3, 4], 2)[1]
    assert hashes_of(hasher, [3, 4, 3, 4], 2)[0] != hashes_of(hasher, [3, 4, 3, 4], 2)[1]


def test_token_ids_do_not_run_into_one_another() -> None:
    hasher = BlockHasher(2)
    assert hashes_of(hasher, [1, 23], 1) != hashes_of(hasher, [12, 3], 1)
    assert hashes_of(hasher, [256, 0], 1) != hashes_of(hasher, [0, 256], 1)


def test_hashing_goes_on_where_it_stopped() -> None:
    hasher = BlockHasher(4)
    tokens = list(range(40))
    hashes: list[bytes] = []
    for num_blocks in (1, 1, 4, 10):
        hasher.extend(hashes, tokens, num_blocks)
        assert len(hashes) == num_blocks
    assert hashes == hashes_of(hasher, tokens, 10)


def test_hashes_of_two_engines_have_nothing_in_common() -> None:
    assert hashes_of(BlockHasher(1), [1], 1) != hashes_of(BlockHasher(1), [1], 1)


def test_equal_tokens_of_different_owners_have_nothing_in_common() -> None:
    hasher, tokens = BlockHasher(2), [1, 2, 3, 4]
    salts = [BlockTable(1, owner).salt for owner in ("", "lora 1 a", "lora 2 a", "lora 1 b")]
    found: set[bytes] = set()
    for salt in salts:
        hashes: list[bytes] = []
        hasher.extend(hashes, tokens, 1, salt)
        hasher.extend(hashes, tokens, 2, salt)
        again: list[bytes] = []
        hasher.extend(again, tokens, 2, salt)
        assert hashes == again
        found.update(hashes)
    assert len(found) == 2 * len(salts)


def test_the_first_block_with_a_content_stays_the_known_one() -> None:
    index = PrefixIndex()
    assert index.try_add(b"x", 3)
    assert not index.try_add(b"x", 4)
    assert index.try_add(b"x", 3)
    assert index.find(b"x") == 3
    assert not index.forget(4)
    assert index.find(b"x") == 3


def test_a_forgotten_block_is_found_no_more() -> None:
    index = PrefixIndex()
    index.try_add(b"x", 3)
    assert index.forget(3)
    assert index.find(b"x") is None
    assert len(index) == 0

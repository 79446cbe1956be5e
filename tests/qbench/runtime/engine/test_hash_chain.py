"""Digests: equal where prefix and version are equal, and nowhere else."""

import pytest

from qbench.runtime.engine.hash_chain import HashChain

TOKENS = list(range(40))


def digests(tokens: list[int], version: str | None = None, page_size: int = 16) -> list[bytes]:
    return HashChain(page_size, version).digests(tokens)


@pytest.mark.parametrize("num_tokens, num_pages", [(0, 0), (15, 0), (16, 1), (31, 1), (32, 2), (40, 2)])
def test_one_for_each_full_page(num_tokens, num_pages):
    assert digests(TOKENS[:num_tokens]) == digests(TOKENS)[:num_pages]


def test_grows_with_the_text():
    chain = HashChain(16, None)
    for seq_len in range(41):
        assert chain.digests(TOKENS[:seq_len]) == digests(TOKENS[:seq_len])


@pytest.mark.parametrize("changed", range(40))
def test_a_changed_token_changes_its_page_and_all_after(changed):
    other = list(TOKENS)
    other[changed] += 1000
    same = [one == two for one, two in zip(digests(TOKENS), digests(other), strict=True)]
    assert same == [page < changed // 16 for page in range(2)]


def test_versions_share_nothing():
    chains = [digests(TOKENS, version) for version in (None, "", "1", "2", "version 1")]
    assert len({digest for chain in chains for digest in chain}) == 2 * len(chains)


def test_tokens_with_the_same_digits_are_distinguished():
    assert digests([1, 11], page_size=2) != digests([11, 1], page_size=2)


@pytest.mark.parametrize("seq_len", [1, 15, 16, 17, 32, 40])
def test_the_digest_of_all_tokens_matches_the_page_that_they_fill(seq_len):
    chain = HashChain(16, "v")
    last = chain.last(TOKENS[:seq_len])
    assert (last in chain.digests(TOKENS)) == (seq_len % 16 == 0)
    assert last == HashChain(16, "v").last(TOKENS[:seq_len]) != HashChain(16, "w").last(TOKENS[:seq_len])

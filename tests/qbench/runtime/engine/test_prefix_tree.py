"""PrefixTree against a dictionary of all prefixes ever stored, and the pages that it keeps when memory ends."""

import random

import pytest
from support.pages import small_pool

from qbench.runtime.engine.hash_chain import HashChain
from qbench.runtime.engine.prefix_tree import PrefixTree

SIZE = 16
TEXT = list(range(2 * SIZE))  # two pages


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def make(num_pages: int = 64, **options) -> PrefixTree:
    return PrefixTree(small_pool(num_pages, SIZE), **options)


def store(tree: PrefixTree, tokens: list[int], version: str | None = None) -> list[int]:
    """Pages of a request that computed all of `tokens` and ended. returns them"""
    pages = [tree.pool.allocate() for _ in range(-(-len(tokens) // SIZE))]
    tree.insert(tokens, HashChain(SIZE, version), pages)
    for page in pages:
        tree.pool.release(page)
    return pages


def look_up(tree: PrefixTree, tokens: list[int], version: str | None = None, partial: bool = True):
    """The result of `match`, released at once."""
    found = tree.match(tokens, HashChain(SIZE, version), partial)
    for page in found.pages:
        tree.pool.release(page)
    return found.pages, found.num_tokens


@pytest.mark.parametrize("asked, found", [(3, 2), (16, 15), (17, 16), (32, 31), (33, 32), (34, 32), (48, 32)])
def test_the_longest_prefix_leaves_out_the_last_token(asked, found):
    tree = make()
    pages = store(tree, TEXT)
    assert look_up(tree, list(range(asked))) == (pages[: -(-found // SIZE)], found)


def test_a_page_that_is_begun_is_shared_up_to_where_texts_part():
    tree, left, right = make(), [7] * SIZE, [9] * SIZE
    first, _ = store(tree, [*left, *left])
    _, second = store(tree, [*left, *right])
    assert look_up(tree, [*left, *right[:5], 1, 1]) == ([first, second], SIZE + 5)
    assert look_up(tree, [7, 7, 5, 5, 5]) == ([first], 2)
    assert look_up(tree, [*left, *right[:5], 1, 1], partial=False) == ([first], SIZE)


def test_a_last_page_is_kept_once_even_if_nearly_empty():
    tree = make(8)
    pages = store(tree, TEXT[: SIZE + 5])
    assert look_up(tree, TEXT) == (pages, SIZE + 5)
    store(tree, TEXT[: SIZE + 3])
    store(tree, TEXT[: SIZE + 5])
    assert (len(tree), tree.pool.num_free) == (2, 6), "what others begin with needs no page of its own"
    longer = store(tree, TEXT[: SIZE + 9])
    assert look_up(tree, TEXT) == ([pages[0], longer[1]], SIZE + 9)


def test_matches_cover_all_texts_ever_stored():
    draw = random.Random(3)
    tree, stored = make(4000), []
    for _ in range(150):
        text = [draw.choice((0, 0, 0, 1)) for _ in range(draw.randint(1, 6 * SIZE))]
        _, seq_len = look_up(tree, text)
        common = [shared(text[:-1], other) for other in stored]
        assert seq_len == max(common, default=0)
        store(tree, text)
        stored.append(text)


def shared(left: list[int], right: list[int]) -> int:
    count = 0
    while count < min(len(left), len(right)) and left[count] == right[count]:
        count += 1
    return count


def test_versions_never_meet():
    tree = make()
    store(tree, TEXT, version="monday")
    assert look_up(tree, TEXT, version="tuesday") == ([], 0)
    assert look_up(tree, TEXT) == ([], 0)
    assert look_up(tree, TEXT, version="monday")[1] == 31


def test_a_version_is_forgotten_and_its_pages_are_free():
    tree = make(8)
    store(tree, TEXT, version="old")
    store(tree, TEXT, version="new")
    tree.forget("old")
    tree.forget("never seen")
    assert look_up(tree, TEXT, version="old") == ([], 0)
    assert look_up(tree, TEXT, version="new")[1] == 31
    assert tree.pool.num_free == 6


def test_unused_versions_leave_nothing_behind():
    tree = make(4)
    for version in range(100):
        store(tree, TEXT, version=str(version))
        while len(tree) > 2:
            tree.evict()
    assert (len(tree._roots), tree.pool.num_free) == (1, 2)


def test_an_entry_is_served_until_it_is_too_old_then_replaced():
    clock = Clock()
    tree = make(8, max_age_s=10, clock=clock)
    before = store(tree, TEXT)
    clock.now = 10
    assert look_up(tree, TEXT)[1] == 31
    clock.now = 11
    assert look_up(tree, TEXT) == ([], 0)
    after = store(tree, TEXT)
    assert not set(before) & set(after)
    assert look_up(tree, [*TEXT, 8]) == (after, 32)
    assert (len(tree), tree.pool.num_free) == (2, 6)
    store(tree, [1, 2])
    clock.now = 22
    store(tree, [1, 2])
    assert look_up(tree, [1, 2, 3])[1] == 2


def test_a_page_is_as_old_as_the_oldest_that_it_follows():
    """Also if it was filled later, and if a user of the older ones stores all of them again."""
    clock = Clock()
    tree = make(8, max_age_s=10, clock=clock)
    store(tree, TEXT)
    clock.now = 9
    found = tree.match([*TEXT, 0], HashChain(SIZE, None))
    assert (found.num_tokens, found.stored_at) == (2 * SIZE, 0)
    longer, chain = [*TEXT, *TEXT], HashChain(SIZE, None)
    pages = [*found.pages, tree.pool.allocate(), tree.pool.allocate()]
    assert tree.insert(longer[: 3 * SIZE], chain, pages, found.stored_at, start=2) == 0
    assert tree.num_matched([*longer, 0], chain) == 3
    clock.now = 11
    tree.insert(longer, chain, pages, found.stored_at)
    assert tree.num_matched([*longer, 0], chain) == 0
    for page in pages:
        tree.pool.release(page)
    fresh = store(tree, longer)
    assert look_up(tree, [*longer, 0]) == (fresh, 4 * SIZE)


def test_a_younger_page_below_an_older_one_ends_with_it():
    clock = Clock()
    tree = make(8, max_age_s=10, clock=clock)
    store(tree, TEXT[:SIZE])
    clock.now = 8
    store(tree, TEXT)  # by one who computed both pages
    assert look_up(tree, [*TEXT, 0])[1] == 2 * SIZE
    clock.now = 11
    assert look_up(tree, [*TEXT, 0]) == ([], 0)


def test_pages_are_found_without_walking_all_before():
    tree, text = make(1000), list(range(500 * SIZE))
    store(tree, text)

    class Counting(type(tree._entries)):
        num_asked = 0

        def get(self, digest):
            self.num_asked += 1
            return super().get(digest)

    tree._entries = Counting(tree._entries)
    numbers = [0, 1, 7, 499, 500]
    assert [tree.num_matched([*text[: n * SIZE], -1], HashChain(SIZE, None)) for n in numbers] == numbers
    assert tree._entries.num_asked <= 5 * 9, "2**9 is more than 500"


def test_a_page_computed_twice_is_held_once():
    tree = make(8)
    store(tree, TEXT)
    pages = [tree.pool.allocate() for _ in range(2)]
    tree.insert(TEXT, HashChain(SIZE, None), pages)
    assert tree.pool.num_free == 6, "the second copies are given back"
    assert [tree.pool.references(page) for page in pages] == [2, 2], "held by the tree and by who brought copies"


def test_the_least_recently_used_goes_first_from_its_end():
    tree = make(8)
    old, new = TEXT, [token + 1000 for token in TEXT]
    store(tree, old)
    store(tree, new)
    look_up(tree, [*old, 0])  # used again
    left = []
    while tree.evict():
        left.append([tree.num_matched([*text, 0], HashChain(SIZE, None)) for text in (new, old)])
    assert left == [[1, 2], [0, 2], [0, 1], [0, 0]]
    assert tree.pool.num_free == 8


def test_pages_in_use_stay():
    tree = make()
    store(tree, TEXT)
    pages = tree.match(list(range(SIZE + 2)), HashChain(SIZE, None)).pages  # the second in part
    assert tree.num_evictable() == 0 and not tree.evict()
    tree.pool.release(pages[1])
    assert tree.num_evictable() == 1 and tree.evict() and not tree.evict()


def test_an_empty_tree_gives_all_pages_back():
    tree = make(8)
    store(tree, TEXT)
    store(tree, [*TEXT, *TEXT], version="a")
    tree.clear()
    assert (len(tree), tree.pool.num_free, tree.num_evictable()) == (0, 8, 0)

"""PrefixTree: pages of keys and values that were computed, found by the tokens that they hold and all before."""

import math
import time
from bisect import bisect_left
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from qbench.runtime.caches.places.pages import PagePool
from qbench.runtime.engine.hash_chain import HashChain
from quant.present import present


@dataclass(slots=True, eq=False)
class Entry:
    """A page, and the tokens in it: they follow those of its parent. If it is full, its children follow it.

    parent     of a first page the root of its chain, which has no page and is held as long as it has children
    stored_at  when it was computed, or when its source was, if that is older: never after its parent
    """

    digest: bytes
    page: int
    tokens: tuple[int, ...]
    parent: "Entry | None"
    stored_at: float
    children: dict[bytes, "Entry"] = field(default_factory=dict, init=False)


NO_PAGE = -1


@dataclass(frozen=True, slots=True)
class Prefix:
    """The held prefix of some tokens: its pages, number of tokens, and the time when the oldest page was computed."""

    pages: list[int]
    num_tokens: int
    stored_at: float


class PrefixTree:
    """A radix tree of pages, indexed by the digests of their chains. It holds one reference to each page.

    Whoever matches a page holds one to each page above it, too, so no page below a page that only the tree holds is
    held by anyone else: all such pages can be evicted, leaves first. A page that is held and not too old has such pages
    above it alone, so how many of a text's pages are is found by bisection.

    max_age_s  older entries are not used; None: all are
    """

    def __init__(
        self,
        pool: PagePool,
        *,
        max_age_s: float | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.pool = pool
        self.max_age_s = max_age_s
        self.clock = clock
        self._entries: OrderedDict[bytes, Entry] = OrderedDict()  # least recently used first, children before parents
        self._roots: dict[bytes, Entry] = {}  # of chains

    def __len__(self) -> int:
        return len(self._entries)

    def num_matched(self, tokens: Sequence[int], chain: HashChain) -> int:
        """Full pages that `match` would find."""
        num_full = (len(tokens) - 1) // self.pool.page_size
        return bisect_left(chain.digests(tokens), True, hi=num_full, key=lambda digest: not self._is_held(digest))

    def match(self, tokens: Sequence[int], chain: HashChain, partial: bool = True) -> Prefix:
        """The longest prefix that is held, with a reference to each of its pages for the caller.

        At least one of `tokens` is left out: logits after them are known only by computing the last one. The last page
        may hold more tokens than are counted, unless `partial` is False: whoever writes to it copies it first.
        """
        path = self._path(tokens, chain)
        num_tokens = len(path) * self.pool.page_size
        parent = path[-1] if path else self._roots.get(chain.root)
        rest = tokens[num_tokens : len(tokens) - 1]
        best, common = self._nearest(parent, rest) if partial and parent is not None else (None, 0)
        if best is not None:
            path.append(best)
        self._touch(path)
        for entry in path:
            self.pool.retain(entry.page)
        stored_at = path[-1].stored_at if path else self.clock()
        return Prefix([entry.page for entry in path], num_tokens + common, stored_at)

    def insert(
        self,
        tokens: Sequence[int],
        chain: HashChain,
        pages: list[int],
        stored_at: float | None = None,
        start: int = 0,
    ) -> float:
        """Keep the pages of `tokens`. Where a full one is held already, `pages` gets that one instead of its own.

        tokens     a last page that they do not fill is kept, too: nobody may write to it without a copy any more
        stored_at  when the oldest of their sources was computed, None: now; too old a page is not kept
        start      pages before it are taken as held and used already, if they are still there
        returns    the age of the oldest of `pages`
        """
        stored_at = self.clock() if stored_at is None else stored_at
        if self._is_old(stored_at):
            return stored_at
        digests, size = chain.digests(tokens), self.pool.page_size
        start = start if start and self._is_held(digests[start - 1]) else 0
        root = self._roots.get(chain.root) or Entry(chain.root, NO_PAGE, (), None, math.inf)
        parent, path, num_full = self._entries[digests[start - 1]] if start else root, [], len(tokens) // size
        for index in range(start, num_full):
            entry = self._kept(digests[index])
            if entry is None:
                part = tokens[index * size : (index + 1) * size]
                entry = self._add(digests[index], pages[index], part, parent, stored_at)
            elif entry.page != pages[index]:
                self.pool.retain(entry.page)
                self.pool.release(pages[index])
                pages[index], stored_at = entry.page, min(stored_at, entry.stored_at)
            path.append(entry)
            parent = entry
        rest = tokens[num_full * size :]
        if rest and self._nearest(parent, rest)[1] < len(rest):
            digest = chain.last(tokens)
            self._kept(digest)  # only if it is too old
            path.append(self._add(digest, pages[num_full], rest, parent, stored_at))
        if root.children:
            self._roots[chain.root] = root
        self._touch(path)
        return stored_at

    def evict(self) -> bool:
        """Forget the page that was used longest ago and that nobody else holds. returns whether there was one"""
        for entry in self._entries.values():
            if not entry.children and self.pool.references(entry.page) == 1:
                self._remove(entry)
                return True
        return False

    def num_evictable(self) -> int:
        return sum(self.pool.references(entry.page) == 1 for entry in self._entries.values())

    def forget(self, version: str | None) -> None:
        """Drop all of a version; requests that hold its pages keep them."""
        root = self._roots.get(HashChain(self.pool.page_size, version).root)
        for entry in list(root.children.values()) if root is not None else ():
            self._drop(entry)

    def clear(self) -> None:
        for root in list(self._roots.values()):
            for entry in list(root.children.values()):
                self._drop(entry)

    def _kept(self, digest: bytes) -> Entry | None:
        """The entry; one that is too old makes room for another."""
        entry = self._entries.get(digest)
        if entry is not None and self._is_old(entry.stored_at):
            self._drop(entry)
            return None
        return entry

    def _add(self, digest: bytes, page: int, tokens: Sequence[int], parent: Entry, stored_at: float) -> Entry:
        entry = Entry(digest, page, tuple(tokens), parent, min(stored_at, parent.stored_at))
        parent.children[digest] = self._entries[digest] = entry
        self.pool.retain(page)
        return entry

    def _path(self, tokens: Sequence[int], chain: HashChain) -> list[Entry]:
        """Entries of the leading full pages of all `tokens` but the last."""
        path: list[Entry] = []
        num_matched = self.num_matched(tokens, chain)
        entry = self._entries[chain.digests(tokens)[num_matched - 1]] if num_matched else None
        while entry is not None and entry.page != NO_PAGE:
            path.append(entry)
            entry = entry.parent
        return path[::-1]

    def _nearest(self, parent: Entry, tokens: Sequence[int]) -> tuple[Entry | None, int]:
        """The child that begins with most of `tokens`, and with how many; None if no child begins with any."""
        best, most = None, 0
        for entry in parent.children.values():
            common = _num_common(entry.tokens, tokens)
            if common > most and not self._is_old(entry.stored_at):
                best, most = entry, common
        return best, most

    def _is_held(self, digest: bytes) -> bool:
        entry = self._entries.get(digest)
        return entry is not None and not self._is_old(entry.stored_at)

    def _is_old(self, stored_at: float) -> bool:
        return self.max_age_s is not None and self.clock() - stored_at > self.max_age_s

    def _touch(self, path: Sequence[Entry]) -> None:
        for entry in reversed(path):
            self._entries.move_to_end(entry.digest)

    def _drop(self, entry: Entry) -> None:
        """The entry and all below it."""
        dropped = [entry]
        for above in dropped:  # grows as it goes
            dropped += above.children.values()
        for each in reversed(dropped):
            self._remove(each)

    def _remove(self, entry: Entry) -> None:
        parent = present(entry.parent)  # a root, which has no parent, is not among the entries
        del parent.children[entry.digest], self._entries[entry.digest]
        if parent.page == NO_PAGE and not parent.children:
            self._roots.pop(parent.digest, None)
        self.pool.release(entry.page)


def _num_common(left: Sequence[int], right: Sequence[int]) -> int:
    count = 0
    for one, other in zip(left, right, strict=False):
        if one != other:
            break
        count += 1
    return count

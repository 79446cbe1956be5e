"""Pages: room for a few tokens each, in every layer, that any sequence may hold and several may share."""

from qbench.runtime.caches.kernel_cache import BLOCK_TOKENS, has_store
from qbench.runtime.caches.latent_choice import chosen_latents
from qbench.runtime.caches.page_memory import EVICTED, LatentPages, StorePages, TorchPages
from quant.errors import InputError
from quant.kv import KVScheme
from quant.models import ModelConfig


class OutOfPages(RuntimeError):
    """More pages were asked for than are free; nothing was taken."""


class PagePool:
    """Pages of `page_size` tokens, each free or held by one or more; any page serves any sequence.

    A page is written to only by its one holder: who shares it and wants to write copies it before.

    scheme   format of keys and values; None: float32
    impl     "auto": in cpu_kernels' stores where those hold the format; "reference": in torch
    mode     of latent attention, None: as `chosen_latents` has it
    memory   StorePages, TorchPages or LatentPages
    raises   InputError for impossible sizes, or a format that encodes several tokens together: a token would be read as
             it came until its group is full, so that results would tell where forward passes end
    source   Kwon et al. 2023, arXiv:2309.06180, section 4
    """

    def __init__(
        self,
        config: ModelConfig,
        scheme: KVScheme | None,
        num_pages: int,
        page_size: int = BLOCK_TOKENS,
        *,
        impl: str = "auto",
        mode: str | None = None,
    ) -> None:
        if num_pages < 1 or page_size < 1 or page_size % BLOCK_TOKENS:
            raise InputError(
                f"{num_pages} pages of {page_size} tokens, expected 1 or more, of a multiple of {BLOCK_TOKENS} tokens"
            )
        self.config = config
        self.num_pages = num_pages
        self.page_size = page_size
        self.impl = impl
        self.mode, rows = chosen_latents(config, scheme, mode, impl=impl)
        if rows is not None:
            self.memory = LatentPages(config, rows, num_pages, page_size)
        else:
            has_residual = scheme is not None and scheme.format.residual > 0  # refused by TorchPages
            in_stores = impl != "reference" and has_store(config, scheme) and not has_residual
            self.memory = (StorePages if in_stores else TorchPages)(config, scheme, num_pages, page_size)
        self._references = [0] * num_pages
        self._free = list(range(num_pages))[::-1]

    @property
    def num_free(self) -> int:
        return len(self._free)

    @property
    def page_bytes(self) -> int:
        """Bytes of a page, over all layers."""
        return self.memory.page_bytes

    def grow(self, num_pages: int) -> None:
        """So many pages from now on, those that there are among them."""
        if num_pages < self.num_pages:
            raise ValueError(f"grow to {num_pages} pages, expected {self.num_pages} or more")
        self.memory.add_pages(num_pages)
        self._free = [*range(num_pages - 1, self.num_pages - 1, -1), *self._free]
        self._references += [0] * (num_pages - self.num_pages)
        self.num_pages = num_pages

    def references(self, page: int) -> int:
        """How many hold the page; 0: it is free."""
        return self._references[page]

    def allocate(self) -> int:
        """A free page, held once; raises OutOfPages where there is none."""
        if not self._free:
            raise OutOfPages(f"all {self.num_pages} pages are held")
        page = self._free.pop()
        self._references[page] = 1
        return page

    def retain(self, page: int) -> None:
        """One more holds the page."""
        self._check_held(page)
        self._references[page] += 1

    def release(self, page: int) -> None:
        """One fewer holds the page; it is free where that was the last."""
        self._check_held(page)
        self._references[page] -= 1
        if not self._references[page]:
            self._free.append(page)

    def copy(self, page: int) -> int:
        """A new page, held once, with the tokens of another; raises OutOfPages."""
        self._check_held(page)
        new = self.allocate()
        self.memory.copy(page, new)
        return new

    def _check_held(self, page: int) -> None:
        if not 0 <= page < self.num_pages or not self._references[page]:
            raise ValueError(f"page {page} is held by nobody")


class PagedSequence:
    """The pages of one sequence, in order.

    pages   may be more than `seq_len` tokens need, and EVICTED where nobody sees what was there any more;
            those that are shared are copied before they are written to
    seq_len  tokens that are there
    """

    def __init__(self, pool: PagePool) -> None:
        self.pool = pool
        self.pages: list[int] = []
        self.seq_len = 0

    def reserve(self, num_tokens: int) -> None:
        """Pages of its own for so many tokens more; raises OutOfPages, and then nothing has changed."""
        pool, size = self.pool, self.pool.page_size
        first = self.seq_len // size  # the first page that is written to
        num_pages = -(-(self.seq_len + num_tokens) // size)
        shared = [i for i in range(first, min(num_pages, len(self.pages))) if pool.references(self.pages[i]) > 1]
        missing = num_pages - len(self.pages)
        if max(missing, 0) + len(shared) > pool.num_free:
            raise OutOfPages(f"{max(missing, 0) + len(shared)} pages are needed, {pool.num_free} are free")
        for i in shared:
            holds_tokens = i == first and self.seq_len % size
            own = pool.copy(self.pages[i]) if holds_tokens else pool.allocate()
            pool.release(self.pages[i])
            self.pages[i] = own
        self.pages += [pool.allocate() for _ in range(missing)]

    def fork(self) -> "PagedSequence":
        """Another sequence of the same tokens, in the same pages until one of the two writes."""
        child = PagedSequence(self.pool)
        child.seq_len = self.seq_len
        child.pages = self.pages[: self._pages_of(self.seq_len)]
        for page in child.pages:
            if page != EVICTED:
                self.pool.retain(page)
        return child

    def truncate(self, seq_len: int) -> None:
        """Forget the tokens from `seq_len` on, and free the pages that held nothing else."""
        self.check_truncate(seq_len)
        keep = self._pages_of(seq_len)
        for page in self.pages[keep:]:
            if page != EVICTED:
                self.pool.release(page)
        del self.pages[keep:]
        self.seq_len = seq_len

    def check_truncate(self, seq_len: int) -> None:
        """raises ValueError for a length that it cannot go back to"""
        if not 0 <= seq_len <= self.seq_len:
            raise ValueError(f"truncate to {seq_len}, expected 0 to {self.seq_len}")

    def release(self) -> None:
        """Give all pages back."""
        self.truncate(0)

    def _pages_of(self, seq_len: int) -> int:
        return -(-seq_len // self.pool.page_size)

"""`StarView`: lanes compute parts of a prompt's context apart; the query and later tokens attend to all of them."""

from collections.abc import Callable
from dataclasses import replace

from qbench.prefill.star import Star
from qbench.runtime.caches.context_part import ContextPart
from qbench.runtime.caches.kv_storage import KVStorage
from qbench.runtime.caches.sequences import CacheConfig
from qbench.runtime.caches.share import Share
from qbench.runtime.caches.share_view import Lanes, ShareView
from qbench.runtime.prefill_tally import PrefillTally


class StarView(ShareView):
    """The parts of a prompt go to the lanes in turn, and so do the tokens after it, in blocks of the same size.

    new_storage  as of `ContextPart`
    tally        counts computed blocks, as one rank would compute them
    """

    def __init__(
        self,
        config: CacheConfig,
        pattern: Star,
        share: Share,
        lanes: Lanes,
        tally: PrefillTally,
        new_storage: Callable[[int, int, int], KVStorage],
    ) -> None:
        super().__init__(share, lanes)
        self._config = config
        self.pattern, self._tally, self._new_storage = pattern, tally, new_storage

    def begin_apart(self, batch: int, num_tokens: int) -> ContextPart | None:
        self.share = replace(self.share, block=self.pattern.part_tokens(num_tokens))
        if num_tokens > 1:
            for _ in range(self._config.num_layers * batch):
                self._tally.add(self.pattern.lists_of(num_tokens).share)
        num_context = self.pattern.num_context(num_tokens)
        if not num_context:
            return None
        return ContextPart(self.share, batch, num_context, self._new_storage)

"""GlooLink: values travel through sockets."""

from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any

from torch import Tensor

from qbench.rank_layout import GLOO
from qbench.runtime.parallel.link import Link, LinkError


class GlooLink(Link):
    """Messages of torch.distributed over sockets; ranks may be on several hosts."""

    name = GLOO

    def __init__(self, store: Any, rank: int, num_ranks: int, timeout_s: float) -> None:
        import torch.distributed as dist  # slow, and of no use to one rank

        self._dist, self._timeout = dist, timedelta(seconds=timeout_s)
        # Gloo names an interface after the host's name, which need not be one that others reach.
        dist.init_process_group("gloo", store=store, rank=rank, world_size=num_ranks, timeout=self._timeout)

    def exchange(self, sent: Sequence[tuple[int, Tensor]], received: Sequence[tuple[int, Tensor]]) -> None:
        sends = [(rank, self._call(rank, self._dist.isend, x, rank)) for rank, x in sent]
        receipts = [(rank, self._call(rank, self._dist.irecv, x, rank)) for rank, x in received]
        for rank, work in (*receipts, *sends):
            self._call(rank, work.wait, self._timeout)

    def _call(self, rank: int, function: Callable[..., Any], *arguments: Any) -> Any:
        """function(*arguments), whose failure is that of the other rank"""
        try:
            return function(*arguments)
        except RuntimeError as error:
            said = str(error).lower()
            raise LinkError(rank, "timed out" in said or "timeout" in said) from error

    def close(self) -> None:
        self._dist.destroy_process_group()

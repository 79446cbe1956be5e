"""DeviceCache: keys and values in pages on a device, and the slot of each token of a forward pass."""

from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from gpu_kernels.decode.pages import Attend, Pages, Rotation, attend_to, zero_pages
from gpu_kernels.graphs import DecodeGraphs
from qbench.runtime.caches.sequences import Sequences, check_seq_len
from qbench.runtime.caches.step import Step
from qbench.runtime.device.kv import PAGE_SIZE, page_dtype, page_scales
from qbench.runtime.device.place import Place
from qbench.runtime.device.storage import page_slots
from quant.errors import InputError
from quant.kv import KVScheme
from quant.models import ModelConfig

FORWARD_TOKENS = 16384  # of all sequences at once: fills any GPU, with activations that are small next to the weights


class DeviceCache(Sequences):
    """Page p of sequence b is number p * B + b, so that all sequences grow by pages behind the last.

    in_graph  whether decode steps may run from a graph
    graph  of a decode step over these very pages; None: not captured
    steps  decode steps since they were made
    """

    in_graph = True

    def __init__(self, config: ModelConfig, place: Place, batch: int, capacity: int, scheme: KVScheme | None) -> None:
        if batch < 1 or capacity < 1:
            raise InputError(f"cache of batch {batch} and capacity {capacity}, expected at least 1 of each")
        super().__init__(config, batch)
        self.config, self.place = config, place
        self.dtype = page_dtype(scheme, place)
        self.max_chunk_tokens = max(1, FORWARD_TOKENS // batch)
        self.scheme = scheme
        self._make(-(-min(capacity, self.max_seq_len) // PAGE_SIZE))

    def _make(self, num_pages: int) -> None:
        """Pages for each sequence, in place of those that there are."""
        config = self.config
        sizes = (config.num_layers, num_pages * self.batch, PAGE_SIZE, config.num_kv_heads, config.head_dim)
        scales = page_scales(self.scheme, config, self.place, num_pages * self.batch)
        self.pages: Pages = replace(zero_pages(*sizes, self.dtype, self.place.torch_name), **scales)
        self.num_pages = num_pages
        table = torch.arange(num_pages * self.batch, dtype=torch.int32).reshape(num_pages, self.batch).T
        self.block_table = table.contiguous().to(self.place.torch_name)  # [B, P]
        self.graph: DecodeGraphs | None = None
        self.steps = 0

    def reserve(self, seq_len: int) -> None:
        """Room for sequences of this length. raises  InputError past the model's context"""
        needed = -(-seq_len // PAGE_SIZE)
        if needed <= self.num_pages:
            return
        check_seq_len(seq_len, self.max_seq_len)
        before = self.pages
        # doubling: each token is copied once on average
        self._make(min(max(needed, 2 * self.num_pages), -(-self.max_seq_len // PAGE_SIZE)))
        for olds, news in zip(before.in_pages, self.pages.in_pages, strict=True):
            for old, new in zip(olds, news, strict=True):
                new.view(torch.uint8)[: len(old)] = old.view(torch.uint8)

    def rows(self, step: Step) -> tuple[dict[str, Tensor], np.ndarray]:
        """(the step's tokens, positions and slots, as `step_inputs` names them; bounds [B + 1] of the sequences).

        token, position, slot [N] of all sequences, one sequence's after another's; length [B]
        """
        batch = self.batch
        counts = np.full(batch, step.tokens.shape[1]) if step.counts is None else step.counts
        cu_seqlens = np.concatenate(([0], np.cumsum(counts)))
        owner = np.repeat(np.arange(batch), counts)  # [N]
        position = np.arange(len(owner)) - cu_seqlens[owner] + self.seq_lens[owner]
        slot = page_slots(position, owner, batch)
        # In one copy: each costs the host more than the copying.
        sent = self.place.send(np.stack([step.tokens.reshape(-1).numpy(), position, slot]))
        seq_len = self.place.send((self.seq_lens + counts).astype(np.int32))
        named = dict(zip(("token", "position", "slot"), sent, strict=True))
        return named | {"block_table": self.block_table, "length": seq_len}, cu_seqlens

    def attend(self, rotation: Rotation, rows: dict[str, Tensor], cu_seqlens: np.ndarray) -> Attend:
        """Attention of gpu_kernels in a forward pass. rows and cu_seqlens as `rows` returns them"""
        bounds = self.place.send(cu_seqlens.astype(np.int32))
        return attend_to(self.pages, rotation, rows, bounds, int(np.diff(cu_seqlens).max()))

    @property
    def bytes_per_token(self) -> float:
        """Over all layers."""
        return sum(self.pages.bytes_per_token)

    @property
    def size_bytes(self) -> int:
        return self.pages.size_bytes

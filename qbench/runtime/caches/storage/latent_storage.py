"""`LatentStorage`: of each token of one layer one row that all heads share, in pages."""

import importlib
from collections.abc import Iterator

import numpy as np
import torch
from torch import Tensor

from qbench.policies import Observe
from qbench.runtime.attention.causal_attention import causal_attention
from qbench.runtime.attention.observed_weights import observed_weights
from qbench.runtime.caches.step import Past
from qbench.runtime.caches.storage.kv_storage import Far, KVStorage
from qbench.runtime.caches.storage.latent_format import LatentFormat, Latents, has_latent_kernels
from qbench.runtime.caches.storage.torch_storage import bytes_of
from quant.models import AttentionRule, MlaConfig


class LatentStorage(KVStorage):
    """A row is the latent of a token's keys and values, then its rotated key: one KV head, whose values are the first
    `rank` channels of its keys.

    The key is rotated by its place in the text, so that a row may move to any slot as it is.

    held        [pages, page_size, width] in the format
    in_kernels  whether cpu_kernels may attend, if they take rows of these sizes
    exact       whether they multiply rows without tiles, which round more
    """

    layout = "latent-rows-1"

    def __init__(
        self,
        fmt: LatentFormat,
        mla: MlaConfig,
        num_pages: int,
        page_size: int,
        *,
        in_kernels: bool = False,
        exact: bool = False,
    ) -> None:
        self.format, self.rank, self.num_pages = fmt, mla.kv_lora_rank, num_pages
        self.in_kernels = in_kernels and has_latent_kernels(mla)
        self.exact = exact
        self.latents = Latents(fmt, self.rank, self.in_kernels)
        self.bytes_per_token = fmt.row_bytes(mla)
        self.held = torch.empty(num_pages, page_size, fmt.width(mla), dtype=fmt.dtype)

    @property
    def page_size(self) -> int:
        return self.held.shape[1]

    def resize(self, page_size: int) -> None:
        common, before = min(page_size, self.page_size), self.held
        self.held = before.new_empty(self.num_pages, page_size, before.shape[2])
        self.held[:, :common] = before[:, :common]

    def add_pages(self, num_pages: int) -> None:
        before, self.num_pages = self.held, num_pages
        self.held = before.new_empty(num_pages, *before.shape[1:])
        self.held[: len(before)] = before

    @torch.inference_mode()  # the rows were made in a forward pass of a model
    def copy_page(self, source: int, target: int) -> None:
        self.held[target] = self.held[source]

    def move(self, device: torch.device) -> None:
        self.held = self.held.to(device)

    def save_page(self, page: int) -> Tensor:
        return self.held[page].clone()

    @torch.inference_mode()
    def load_page(self, page: int, saved: Tensor) -> None:
        self.held[page] = saved

    @property
    def page_bytes(self) -> int:
        return self.held[0].nbytes

    def dump_page(self, page: int, out: np.ndarray) -> None:
        out[:] = bytes_of(self.held[page])

    @torch.inference_mode()
    def fill_page(self, page: int, data: np.ndarray) -> None:
        bytes_of(self.held[page])[:] = data

    def append(self, k: Tensor, v: Tensor | None, past: Past, slots: Tensor | None = None) -> None:
        """As `KVStorage.append`.

        k   [B, 1, T, latent_size] float32: rows; v is not looked at
        """
        if past.cu_seqlens is not None:
            for one, columns in past.each():
                self.append(k[:, :, columns], None, one)
            return
        end, pages = past.num_slots, past.rows()
        new, encoded = slice(end - k.shape[2], end), self.format.encode(k[:, 0], self.rank)
        if slots is not None:
            self._put(past, slots, encoded)
        elif pages is not None:
            self.held[pages, new] = encoded
        else:
            self._put(past, torch.arange(new.start, end).expand(len(k), -1), encoded)

    def _put(self, past: Past, slots: Tensor, encoded: Tensor) -> None:
        """Store [B, n, width] in the slots [B, n]."""
        self.held[self._places(past, slots)] = encoded

    def _places(self, past: Past, slots: Tensor) -> tuple[Tensor, Tensor]:
        table = torch.from_numpy(past.block_table).long()
        return table.gather(1, slots // self.page_size), slots % self.page_size

    def attend(
        self, q: Tensor, past: Past, rule: AttentionRule, observe: Observe | None = None, far: Far | None = None
    ) -> tuple[Tensor, Tensor | Iterator[Tensor] | None]:
        """As `KVStorage.attend`, of queries [B, H, T, latent_size] with the up-projection of keys absorbed."""
        assert far is None, "rows hold keys that are rotated"
        if past.cu_seqlens is not None:
            assert observe is None
            return torch.cat([self.attend(q[:, :, columns], one, rule)[0] for one, columns in past.each()], dim=2), None
        if not self.in_kernels:
            keys, values = self.read(past)
            return causal_attention(q, keys, values, rule), observed_weights(q, keys, rule, observe)
        batch, num_heads, num_tokens, width = q.shape
        queries = q.transpose(1, 2).reshape(batch * num_tokens, num_heads, width).contiguous()
        out = torch.empty(batch * num_tokens, num_heads, self.rank)
        table = np.repeat(past.block_table, num_tokens, axis=0)
        ends = (past.ends[:, None] - np.arange(num_tokens)[::-1]).ravel()
        attend_latents = importlib.import_module("cpu_kernels").attend_latents
        rows = (self.format.name, self.rows_of_kernels())
        mass = None if observe is None or num_tokens > 1 else torch.empty(batch, past.num_slots)
        observed = {} if mass is None else {"mass": mass.numpy()}
        attend_latents(
            queries.numpy(), *rows, table, ends, out.numpy(), rule.scale, rule.window, exact=self.exact, **observed
        )
        attended = out.unflatten(0, (batch, num_tokens)).transpose(1, 2)  # [B, H, T, R]
        if observe is None:
            return attended, None
        if mass is None:
            return attended, observed_weights(q, self.read(past)[0], rule, observe)
        return attended, iter([mass[:, None, None] / num_heads]) if observe.each else mass[:, None]

    def compact(self, past: Past, keep: Tensor) -> None:
        moved = self.held[self._places(past, keep[:, 0])]
        self._put(past, torch.arange(keep.shape[2]).expand(len(keep), -1), moved)

    def read(self, past: Past) -> tuple[Tensor, Tensor]:
        """[B, 1, S, latent_size] and [B, 1, S, rank] float32: rows of the slots in `Past.slots_there`, their latents"""
        pages, end = past.rows(), past.num_slots
        if pages is not None:
            stored = self.held[pages, :end]
        else:
            used, num_slots = past.pages_read(self.page_size)
            stored = self.held[used].flatten(1, 2)[:, :num_slots]
        rows = self.format.decode(stored, self.rank)[:, None]
        return rows, rows[..., : self.rank]

    def rows_of_kernels(self) -> np.ndarray:
        """All pages as cpu_kernels take them."""
        return (self.held.view(torch.uint16) if self.held.dtype == torch.bfloat16 else self.held).numpy()

"""`LatentStorage`: of each token of one layer one row that all heads share, in pages."""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from qbench.runtime.caches.kv_storage import PageMemory
from qbench.runtime.caches.past import Past
from quant.kv import KVScheme
from quant.kv.latent_codes import LATENT_CODES, LatentCodes
from quant.models import MlaConfig, ModelConfig


@dataclass(frozen=True, slots=True)
class LatentFormat:
    """How rows are kept.

    name   cpu_kernels' word for it
    dtype  of what is stored
    codes  of rows of bytes
    """

    name: str
    dtype: torch.dtype
    codes: LatentCodes | None = None

    def holds(self, mla: MlaConfig) -> bool:
        return self.codes is None or mla.kv_lora_rank % self.codes.group == 0

    def width(self, mla: MlaConfig) -> int:
        """Elements of a stored row."""
        return mla.latent_size if self.codes is None else self.codes.row_bytes(mla.kv_lora_rank, mla.qk_rope_head_dim)

    def row_bytes(self, mla: MlaConfig) -> int:
        return self.width(mla) * self.dtype.itemsize

    def encode(self, rows: Tensor, rank: int) -> Tensor:
        """[..., latent_size] float32, of which `rank` are the latent -> [..., width]"""
        if self.codes is None:
            return rows.to(self.dtype)
        return self.codes.encode(*rows.tensor_split((rank,), -1))

    def decode(self, held: Tensor, rank: int) -> Tensor:
        """[..., width] -> [..., latent_size] float32"""
        return held.float() if self.codes is None else torch.cat(self.codes.decode(held, rank), -1)


# KV format -> rows; other formats are kept as every head's own keys and values. None: floats as they come
LATENT_FORMATS: dict[str | None, LatentFormat] = {
    None: LatentFormat("f32", torch.float32),
    "kv-f16": LatentFormat("f16", torch.float16),
    "kv-bf16": LatentFormat("bf16", torch.bfloat16),
    **{f"kv-{name}": LatentFormat(name, torch.uint8, codes) for name, codes in LATENT_CODES.items()},
}


def latent_format(config: ModelConfig, scheme: KVScheme | None) -> LatentFormat | None:
    """The format of this model's rows, or None if it keeps no rows or the format cannot hold their size."""
    fmt = LATENT_FORMATS.get(None if scheme is None else scheme.format.name)
    return fmt if config.mla is not None and fmt is not None and fmt.holds(config.mla) else None


class LatentStorage(PageMemory):
    """A row is the latent of a token's keys and values beside its rotated key.

    held   [pages, page_size, width] in the format
    """

    def __init__(self, fmt: LatentFormat, mla: MlaConfig, num_pages: int, page_size: int) -> None:
        self.format, self.rank, self.num_pages = fmt, mla.kv_lora_rank, num_pages
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

    def copy_page(self, source: int, target: int) -> None:
        self.held[target] = self.held[source]

    def move(self, device: torch.device) -> None:
        self.held = self.held.to(device)

    def save_page(self, page: int) -> Tensor:
        return self.held[page].clone()

    def load_page(self, page: int, saved: Tensor) -> None:
        self.held[page] = saved

    def append(self, rows: Tensor, past: Past) -> None:
        """Store the rows [B, T, latent_size] float32 of the new tokens in the last slots of their sequences."""
        end, pages = past.num_slots, past.rows()
        new, encoded = slice(end - rows.shape[1], end), self.format.encode(rows, self.rank)
        if pages is not None:
            self.held[pages, new] = encoded
            return
        slots = torch.arange(new.start, end)
        number, within = slots // self.page_size, slots % self.page_size
        self.held[torch.from_numpy(past.block_table).long()[:, number], within] = encoded

    def read(self, past: Past) -> Tensor:
        """Rows of the slots in `Past.slots_there` as they are stored: [B, S, width]"""
        pages, end = past.rows(), past.num_slots
        if pages is not None:
            return self.held[pages, :end]
        used, num_slots = past.pages_read(self.page_size)
        return self.held[used].flatten(1, 2)[:, :num_slots]

    def rows_of_kernels(self) -> np.ndarray:
        """All pages as cpu_kernels take them."""
        return (self.held.view(torch.uint16) if self.held.dtype == torch.bfloat16 else self.held).numpy()

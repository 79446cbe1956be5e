"""A small pool of real pages."""

from support.architectures import small_config

from qbench.runtime.caches.pages import PagePool
from quant.models import ModelConfig


def small_pool(num_pages: int, page_size: int = 16) -> PagePool:
    return PagePool(ModelConfig.from_hf(small_config()), None, num_pages, page_size)

"""Pages on a device with a scale per token: each scale stays with its token."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from gpu_kernels.decode.pages import zero_pages, zero_scales
from qbench.runtime.caches.step import Past
from qbench.runtime.device.place import Place
from qbench.runtime.device.storage import PAGE_SIZE, DeviceStorage

HERE = Place("interpreter", "cpu", torch.float16, None)
NUM_HEADS, BATCH = 2, 2


@pytest.fixture(params=[torch.float8_e4m3fn, torch.int8], ids=["fp8", "int8"])
def held(request) -> DeviceStorage:
    """Two pages of each of two sequences, full of random codes and scales."""
    sizes = (1, 2 * BATCH, PAGE_SIZE, NUM_HEADS)
    scales = {f"{side}_scale": zero_scales(*sizes, request.param, "cpu") for side in ("key", "value")}
    pages = replace(zero_pages(*sizes, 64, request.param, "cpu"), **scales)
    draw = torch.Generator().manual_seed(0)
    for side in (pages.keys[0], pages.values[0]):
        side.view(torch.uint8).random_(0, 0x7F, generator=draw)
    for scale in (scales["key_scale"][0], scales["value_scale"][0]):
        scale.uniform_(0.5, 1.5, generator=draw)
    return DeviceStorage(pages, 0, BATCH, HERE)


def past(b: int, count: int) -> Past:
    return Past(np.array([[b]], dtype=np.int32), np.array([count]))


def test_kept_tokens_keep_their_scales(held):
    keys, values = held.read(past(1, 100))
    keep = torch.arange(0, 100, 7)
    held.compact(past(1, 100), keep.expand(1, NUM_HEADS, -1))
    for got, before in zip(held.read(past(1, len(keep))), (keys, values), strict=True):
        assert torch.equal(got, before[:, :, keep])


def test_pages_that_grow_shrink_and_come_back_have_their_scales(held):
    keys, _ = held.read(past(1, 64))
    saved = held.save_page(1)
    held.resize(3 * PAGE_SIZE)
    assert torch.equal(held.read(past(1, 64))[0], keys)
    held.resize(PAGE_SIZE)
    assert torch.equal(held.read(past(1, 64))[0], keys)
    held.resize(2 * PAGE_SIZE)
    held.pages.key_scale[0].zero_()
    held.load_page(1, saved)
    assert torch.equal(held.read(past(1, 64))[0], keys)


def test_bytes_per_token_count_scales(held):
    """In int8 a scale and a minimum of 2 bytes each."""
    assert held.bytes_per_token == 2 * NUM_HEADS * (64 + 4)

"""Files that split the up-projection of latent attention, read as the one tensor that models have."""

import gguf
import numpy as np
import pytest
from gguf import GGMLQuantizationType
from support.architectures import random_weights, small_config
from support.llama_converter import convert

from quant.artifacts.gguf_reader import GGUFSource
from quant.errors import InputError
from quant.formats import dequantize

CONFIG = small_config("deepseek2", qk_nope_head_dim=32, v_head_dim=32)
NAME = "model.layers.1.self_attn.kv_b_proj.weight"


@pytest.fixture(scope="module")
def weights():
    return random_weights(CONFIG)


@pytest.mark.parametrize("kind", [GGMLQuantizationType.F32, GGMLQuantizationType.F16], ids=["f32", "f16"])
def test_floats_stay_in_their_format(tmp_path, weights, kind):
    source = GGUFSource(convert(CONFIG, weights, tmp_path / "x.gguf", kind))
    stored = source.read(NAME)
    assert (stored.format, stored.shape) == (kind.name.lower(), (4 * (32 + 32), 32))
    assert stored.size_bytes == source.tensors[NAME].size_bytes
    dtype = {"f32": np.float32, "f16": np.float16}[stored.format]
    assert np.array_equal(dequantize(stored), weights[NAME].astype(dtype))


def test_blocks_become_float32(tmp_path, weights):
    path = convert(CONFIG, weights, tmp_path / "x.gguf", GGMLQuantizationType.Q8_0)
    stored = GGUFSource(path).read(NAME)
    tensors = {tensor.name: tensor for tensor in gguf.GGUFReader(path).tensors}
    k_b, v_b = (
        gguf.quants.dequantize(tensors[name].data, GGMLQuantizationType.Q8_0)
        for name in ("blk.1.attn_k_b.weight", "blk.1.attn_v_b.weight")
    )
    assert stored.format == "f32"
    got = dequantize(stored).reshape(4, 32 + 32, 32)  # [H, N + V, R]
    for head in range(4):
        assert np.array_equal(got[head, :32], k_b[head].T)
        assert np.array_equal(got[head, 32:], v_b[head])


def test_one_part_without_the_other(tmp_path, weights):
    path = convert(CONFIG, weights, tmp_path / "x.gguf")
    data = path.read_bytes()
    assert data.count(b"blk.1.attn_v_b") == 1
    path.write_bytes(data.replace(b"blk.1.attn_v_b", b"blk.1.attn_w_b"))
    with pytest.raises(InputError, match=r"^.*x\.gguf: tensor 'blk\.1\.attn_v_b\.weight' is missing"):
        GGUFSource(path)


def test_parts_of_unlike_shapes(tmp_path, weights):
    """Whose rank, or number of heads, is not the same."""
    path = convert(CONFIG, weights, tmp_path / "x.gguf")
    data = path.read_bytes()
    entry = data.index(b"blk.1.attn_v_b.weight") + len(b"blk.1.attn_v_b.weight")
    rank = entry + 4  # after the number of dimensions; the fastest first: R, V, H
    assert data[rank] == 32
    path.write_bytes(data[:rank] + bytes([16]) + data[rank + 1 :])
    with pytest.raises(
        InputError, match=r"attn_k_b\.weight' of \(4, 32, 32\) and .*attn_v_b\.weight' of \(4, 32, 16\)"
    ):
        GGUFSource(path)

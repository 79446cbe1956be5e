"""The mixes against llama.cpp's own quantizer: the type of every tensor of small Llamas."""

from pathlib import Path

import gguf
import numpy as np
import pytest
from support.shape_source import LlamaShape, ShapeSource

from quant.formats import format_of_gguf_type
from quant.recipes import get_recipe
from quant.recipes.llama_mix import use_more_bits

FTYPES = {"q4_0": 2, "q8_0": 7, "q4_k_m": 15, "q5_k_m": 17, "q6_k": 18}

SHAPES = {
    "1 layer": LlamaShape(num_layers=1),
    "4 layers, tied": LlamaShape(num_layers=4, tied=True),
    "6 layers, MHA": LlamaShape(num_layers=6, kv_heads=4),
    "6 layers, MQA": LlamaShape(num_layers=6, kv_heads=1),
    "32 layers, rows of 32": LlamaShape(num_layers=32, hidden=32, ffn=256, heads=4, kv_heads=1, head_dim=8),
    "fallbacks to blocks of 32": LlamaShape(num_layers=9, hidden=96, ffn=160, heads=3, kv_heads=1, head_dim=32),
    "fallbacks, tied": LlamaShape(num_layers=2, hidden=96, ffn=512, heads=3, kv_heads=3, head_dim=32, tied=True),
    "80 layers, GQA (70B)": LlamaShape(num_layers=80, ffn=256, heads=8, kv_heads=1, head_dim=32),
    "80 layers, MHA (65B)": LlamaShape(num_layers=80, ffn=256, heads=2, kv_heads=2, head_dim=32),
}


def write_gguf(path: Path, source: ShapeSource) -> dict[str, str]:
    """A GGUF of zeros of this shape; returns GGUF name -> canonical name."""
    shape = source.shape
    names = gguf.get_tensor_name_map(gguf.MODEL_ARCH.LLAMA, shape.num_layers)
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_block_count(shape.num_layers)
    writer.add_context_length(128)
    writer.add_embedding_length(shape.hidden)
    writer.add_feed_forward_length(shape.ffn)
    writer.add_head_count(shape.heads)
    writer.add_head_count_kv(shape.kv_heads)
    writer.add_key_length(shape.head_dim)
    writer.add_value_length(shape.head_dim)
    writer.add_rope_dimension_count(shape.head_dim)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_vocab_size(shape.vocab)
    canonical = {}
    for name, info in source.tensors.items():
        gguf_name = names.get_name(name, try_suffixes=(".weight",))
        canonical[gguf_name] = name
        dtype = np.float32 if len(info.shape) == 1 else np.float16
        writer.add_tensor(gguf_name, np.zeros(info.shape, dtype=dtype))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return canonical


@pytest.fixture(scope="module")
def llama_cpp():
    library = pytest.importorskip("llama_cpp", reason="llama-cpp-python is not installed")
    library.llama_backend_init()
    return library


@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES.keys())
def test_types_are_those_of_llama_quantize(shape, llama_cpp, tmp_path):
    source = ShapeSource(shape)
    canonical = write_gguf(tmp_path / "in.gguf", source)
    for recipe, ftype in FTYPES.items():
        if shape.num_layers == 80 and recipe != "q4_k_m":
            continue  # the 70B rule lifts q4_k alone, and 80 layers take a while
        params = llama_cpp.llama_model_quantize_default_params()
        params.ftype, params.nthread = ftype, 1
        out = tmp_path / f"{recipe}.gguf"
        assert llama_cpp.llama_model_quantize(bytes(tmp_path / "in.gguf"), bytes(out), params) == 0
        theirs = {
            canonical[tensor.name]: format_of_gguf_type(tensor.tensor_type).name
            for tensor in gguf.GGUFReader(out).tensors
        }
        out.unlink()
        ours = {name: planned.format for name, planned in get_recipe(recipe).plan(source).items()}
        assert ours == theirs, recipe


def test_more_bits_by_hand():
    assert [layer for layer in range(16) if use_more_bits(layer, 16)] == [0, 1, 4, 7, 10, 13, 14, 15]


def test_rows_that_llama_cpp_refuses_become_f16():
    plan = get_recipe("q8_0").plan(ShapeSource(LlamaShape(hidden=64, ffn=172, head_dim=16)))
    down = plan["model.layers.0.mlp.down_proj.weight"]
    assert (down.format, down.reason) == ("f16", "fallback: row 172 is no multiple of 32 (q8_0)")
    assert plan["model.layers.0.mlp.up_proj.weight"].format == "q8_0"


def test_reasons():
    plan = get_recipe("q4_k_m").plan(ShapeSource(LlamaShape(tied=True, ffn=96)))
    reason = {name: planned.reason for name, planned in plan.items()}
    assert reason["model.embed_tokens.weight"] == "preset: Q4_K_M output (tied to the embedding)"
    assert reason["model.layers.2.self_attn.v_proj.weight"] == "preset: Q4_K_M attn_v of layer 2 (more bits)"
    assert reason["model.layers.0.self_attn.q_proj.weight"] == "preset: Q4_K_M default"
    assert reason["model.layers.2.mlp.down_proj.weight"] == "fallback: row 96 is no multiple of 256 (q6_k)"
    assert reason["model.norm.weight"] == "vector: f32 in gguf"

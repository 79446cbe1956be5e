"""The mixes against llama.cpp's own quantizer: the type of every tensor of models of many shapes."""

import ctypes
import re
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
from support.architectures import random_weights, small_config
from support.array_source import ArraySource
from support.shape_source import LlamaShape, ShapeSource

from quant.artifacts.gguf_config import metadata_from_config
from quant.artifacts.gguf_layout import layout
from quant.artifacts.gguf_writer import write_gguf, write_head
from quant.errors import InputError
from quant.formats import format_of_gguf_type, get_format
from quant.job import make_job
from quant.models import ModelConfig, expected_tensors
from quant.recipes.mixes import LABELS, mix
from quant.recipes.recipe import Recipe
from quant.source import TensorInfo

LINE = re.compile(r"\[ *\d+/ *\d+\] +(?P<name>\S+) +- \[.*?\], type = +(?P<type>\w+), size = .*?(?:\((?P<new>\w+)\))?")


class ConfigSource:
    """The tensors of a model of any config, f16 with vectors, routers and positions in f32, all unreadable."""

    tokenizer = None

    def __init__(self, config: dict[str, Any]) -> None:
        self.spec, self.config = "shapes", config
        self.model = ModelConfig.from_hf(config)
        self.tensors = {}
        for name, want in expected_tensors(self.model).items():
            plain = len(want.shape) == 1 or any(word in want.gguf_name for word in ("ffn_gate_inp", "position_embd"))
            fmt = get_format("f32" if plain else "f16")
            self.tensors[name] = TensorInfo(want.shape, fmt.name, fmt.size_bytes(want.shape))

    def read(self, name: str):
        raise AssertionError(f"a plan is made without reading weights, got read({name!r})")

    def fingerprint(self) -> str:
        return "0" * 64


def write_shapes(source: ConfigSource, path: Path) -> None:
    """A GGUF file of these tensors, all of them holes: no byte of a weight is written."""
    writer = gguf.GGUFWriter(path, source.model.architecture.gguf_arch)
    for key, value in metadata_from_config(source.model).items():
        add = {bool: writer.add_bool, int: writer.add_uint32, float: writer.add_float32, str: writer.add_string}
        add[type(value)](key, value)
    entries = layout(source, source.model)
    file = write_head(writer, entries)
    file.truncate(file.tell() + sum(entry.padded_bytes for entry in entries))
    writer.close()


def types_of_llama_quantize(path: Path, label: str, *, imatrix: bool = False) -> dict[str, str]:
    """GGUF name -> name of the type that llama-quantize gives it, by its dry run's own report."""
    import llama_cpp

    params = llama_cpp.llama_model_quantize_default_params()
    params.ftype, params.nthread, params.dry_run = int(gguf.LlamaFileType[f"MOSTLY_{label}"]), 1, True
    if imatrix:
        entry = llama_cpp.llama_model_imatrix_data(b"blk.0.attn_q.weight", (ctypes.c_float * 1)(1.0), 1)
        params.imatrix = (llama_cpp.llama_model_imatrix_data * 2)(entry, llama_cpp.llama_model_imatrix_data())
    said: list[str] = []
    listen = llama_cpp.llama_log_callback(lambda level, text, data: said.append(text.decode()))
    llama_cpp.llama_log_set(listen, ctypes.c_void_p(0))
    try:
        assert llama_cpp.llama_model_quantize(bytes(path), b"unused", params) == 0, "".join(said)
    finally:
        from llama_cpp._logger import llama_log_callback

        llama_cpp.llama_log_set(llama_log_callback, ctypes.c_void_p(0))
    found = [LINE.fullmatch(line.strip()) for line in "".join(said).splitlines() if line.startswith("[")]
    return {line["name"]: (line["new"] or line["type"]).lower() for line in found}


OF_MANY_LAYERS = ("Q2_K", "Q3_K_S", "Q4_K_M", "IQ4_XS")  # of models of 80 layers: one for each way to their values


def shape(layers: int, heads: tuple[int, int] = (4, 2), hidden: int = 256, ffn: int = 512, **changes) -> dict:
    return {
        "num_hidden_layers": layers,
        "num_attention_heads": heads[0],
        "num_key_value_heads": heads[1],
        "hidden_size": hidden,
        "intermediate_size": ffn,
        "head_dim": 64,
    } | changes


def moe(layers: int, experts: int, **changes) -> dict:
    """llama.cpp asks only whether there are 8 experts, so 3 replace 128."""
    return shape(layers, **{"num_experts": experts, "num_experts_per_tok": 2, "moe_intermediate_size": 256} | changes)


def mla(layers: int, **changes) -> dict:
    """Sizes of DeepSeek-V2-Lite with fewer experts, whose rows are no multiple of 256."""
    own = {
        "q_lora_rank": None,
        "kv_lora_rank": 512,
        "qk_nope_head_dim": 128,
        "qk_rope_head_dim": 64,
        "v_head_dim": 128,
        "n_routed_experts": 3,
        "num_experts_per_tok": 2,
        "n_shared_experts": 2,
        "moe_intermediate_size": 1408,
        "first_k_dense_replace": 1,
        "hidden_size": 2048,
        "intermediate_size": 10944,
        "num_attention_heads": 16,
        "num_key_value_heads": 16,
    }
    return {"num_hidden_layers": layers} | own | changes


SHAPES = {
    "llama, 1 layer": ("llama", shape(1)),
    "llama, 4 layers, tied": ("llama", shape(4, tie_word_embeddings=True)),
    "llama, 6 layers, MHA": ("llama", shape(6, (4, 4))),
    "llama, 8 layers, 4 queries a key": ("llama", shape(8, (4, 1))),
    "llama, 16 layers (1B)": ("llama", shape(16, (32, 8), 2048, 8192, vocab_size=128256, tie_word_embeddings=True)),
    "llama, 32 layers (8B)": ("llama", shape(32, (32, 8), 4096, 14336, head_dim=128, vocab_size=128256)),
    "llama, 32 layers, rows of 32": ("llama", shape(32, (4, 1), 32, 256, head_dim=8)),
    "llama, 9 layers, rows of 96 and 160": ("llama", shape(9, (3, 1), 96, 160, head_dim=32)),
    "llama, rows of 96, tied": ("llama", shape(2, (3, 3), 96, 512, head_dim=32, tie_word_embeddings=True)),
    "llama, rows of 172": ("llama", shape(5, (8, 4), 64, 172, head_dim=8)),
    "llama, rows of 40": ("llama", shape(3, (5, 5), 40, 256, head_dim=8)),
    "llama, biases": ("llama", shape(8, attention_bias=True, mlp_bias=True)),
    "llama, 80 layers, GQA (70B)": ("llama", shape(80, (8, 1))),
    "llama, 80 layers, MHA (65B)": ("llama", shape(80, (2, 2))),
    "qwen2, 24 layers (0.5B)": ("qwen2", shape(24, (14, 2), 896, 4864, tie_word_embeddings=True)),
    "qwen2, 28 layers (7B)": ("qwen2", shape(28, (28, 4), 3584, 18944, head_dim=128)),
    "qwen2, 80 layers (72B)": ("qwen2", shape(80, (8, 1))),
    "qwen2, 80 layers, MHA": ("qwen2", shape(80, (2, 2))),
    "qwen3, 28 layers (0.6B)": ("qwen3", shape(28, (16, 8), 1024, 3072, head_dim=128, tie_word_embeddings=True)),
    "qwen3, 80 layers": ("qwen3", shape(80, (8, 1))),
    "qwen3moe, 48 layers (30B-A3B)": (
        "qwen3moe",
        moe(48, 3, heads=(32, 4), hidden=2048, ffn=6144, moe_intermediate_size=768, head_dim=128),
    ),
    "qwen3moe, 8 experts": ("qwen3moe", moe(9, 8)),
    "qwen3moe, 8 experts, rows of 96": ("qwen3moe", moe(16, 8, moe_intermediate_size=96)),
    "qwen3moe, 80 layers of 8 experts": ("qwen3moe", moe(80, 8, heads=(8, 1), moe_intermediate_size=32)),
    "gpt2, 12 layers": ("gpt2", {"n_layer": 12, "n_embd": 768, "n_head": 12, "n_inner": 3072}),
    "gpt2, 5 layers of 96": ("gpt2", {"n_layer": 5, "n_embd": 96, "n_head": 6, "n_inner": 512}),
    "mixtral, 32 layers of 8 experts (8x7B)": (
        "mixtral",
        shape(32, (32, 8), 4096, 14336, head_dim=128, num_local_experts=8),
    ),
    "mixtral, 9 layers of 3 experts": ("mixtral", shape(9, num_local_experts=3)),
    "deepseek3, 9 layers": ("deepseek3", mla(9, n_shared_experts=1, n_routed_experts=4, n_group=1)),
    "deepseek2, 27 layers (V2-Lite)": ("deepseek2", mla(27)),
    "deepseek2, 60 layers (V2)": (
        "deepseek2",
        mla(60, q_lora_rank=1536, hidden_size=5120, intermediate_size=12288, moe_intermediate_size=1536),
    ),
    "deepseek2, 8 experts": ("deepseek2", mla(5, n_routed_experts=8)),
    "deepseek2, a latent of 96": ("deepseek2", mla(11, kv_lora_rank=96)),
}


@pytest.fixture(scope="module", autouse=True)
def backend():
    pytest.importorskip("llama_cpp", reason="llama-cpp-python is not installed").llama_backend_init()


def choice(label: str, source, *, calibrated: bool = False) -> dict[str, str]:
    """Canonical name -> format"""
    recipe = Recipe("x", "gguf", "rtn", mix(label, calibrated=calibrated))
    return {name: choices.format for name, choices in recipe.choose(source).items()}


# Each takes 0.5 to 2 seconds; smaller models of the same families are in every run.
LARGE = ("deepseek2, 60 layers (V2)", "qwen3moe, 48 layers (30B-A3B)", "mixtral, 32 layers of 8 experts (8x7B)")


@pytest.mark.parametrize(
    "kind, changes",
    [
        pytest.param(*shape, id=name, marks=pytest.mark.exhaustive("a large shape") if name in LARGE else ())
        for name, shape in SHAPES.items()
    ],
)
def test_types_match_llama_quantize(kind, changes, tmp_path):
    source = ConfigSource(small_config(kind, **changes))
    write_shapes(source, tmp_path / "in.gguf")
    gguf_names = {name: want.gguf_name for name, want in expected_tensors(source.model).items()}
    for label in OF_MANY_LAYERS if source.model.num_layers == 80 else LABELS:
        for calibrated in (False, True):
            if label == "Q2_K_S" and not calibrated:
                continue  # llama.cpp refuses it
            ours = choice(label, source, calibrated=calibrated)
            theirs = types_of_llama_quantize(tmp_path / "in.gguf", label, imatrix=calibrated)
            assert set(theirs) == set(gguf_names.values())
            assert ours == {name: theirs[gguf_name] for name, gguf_name in gguf_names.items()}, (label, calibrated)


def test_a_dry_run_reports_the_same_as_a_run(tmp_path):
    import llama_cpp

    config = small_config("qwen3moe", **moe(9, 8, moe_intermediate_size=96))
    weights = {name: np.zeros_like(weight) for name, weight in random_weights(config).items()}
    formats = {name: info.format for name, info in ConfigSource(config).tensors.items()}
    write_gguf(ArraySource(config, weights, formats), tmp_path / "in.gguf", name="x")
    params = llama_cpp.llama_model_quantize_default_params()
    params.ftype, params.nthread = int(gguf.LlamaFileType.MOSTLY_Q4_K_M), 1
    assert llama_cpp.llama_model_quantize(bytes(tmp_path / "in.gguf"), bytes(tmp_path / "out.gguf"), params) == 0
    tensors = gguf.GGUFReader(tmp_path / "out.gguf").tensors
    got = {tensor.name: format_of_gguf_type(tensor.tensor_type).name for tensor in tensors}
    assert got == types_of_llama_quantize(tmp_path / "in.gguf", "Q4_K_M") and len(set(got.values())) > 3


@pytest.mark.parametrize("label", LABELS)
def test_every_rule_decides_somewhere(label):
    """No row of the table is dead: each gives its format to some tensor of these shapes."""
    reasons = set()
    for name in ("llama, 16 layers (1B)", "llama, 9 layers, rows of 96 and 160", "qwen3moe, 8 experts, rows of 96"):
        source = ConfigSource(small_config(SHAPES[name][0], **SHAPES[name][1]))
        for calibrated in (False, True):
            recipe = Recipe("x", "gguf", "rtn", mix(label, calibrated=calibrated))
            policy, model = recipe.policy, source.model
            reasons |= {policy.choose(tensor, 256, model).reason for tensor in source.tensors}
    for rule in mix(label).raises:
        layer = r" of layer \d+ \(" + re.escape(rule.words) + r"\)" if rule.words else ""
        pattern = rf"preset: {label} {rule.role.value}{layer}"
        assert any(re.fullmatch(pattern, reason) for reason in reasons), rule


def test_labels_are_file_types_of_llama_cpp():
    assert all(f"MOSTLY_{label}" in gguf.LlamaFileType.__members__ for label in LABELS)


def test_reasons_name_the_rule_of_each_choice():
    recipe = Recipe("x", "gguf", "rtn", mix("Q4_K_M"))
    job = make_job(ShapeSource(LlamaShape(tied=True, ffn=96)), recipe)
    reason = {name: choice.reason for name, choice in job.choices.items()}
    assert reason["model.embed_tokens.weight"] == "preset: Q4_K_M output (tied to the embedding)"
    assert reason["model.layers.2.self_attn.v_proj.weight"] == "preset: Q4_K_M attn_v of layer 2 (more bits)"
    assert reason["model.layers.0.self_attn.q_proj.weight"] == "preset: Q4_K_M default"
    assert reason["model.layers.2.mlp.down_proj.weight"] == "fallback: row 96 is not a multiple of 256 (q6_k)"
    assert reason["model.norm.weight"] == "vector: f32 in gguf"
    assert job.fallbacks() == {("q6_k", "q8_0"): 2, ("q4_k", "q5_0"): 2}, "the down projections of four layers"


def test_rows_that_fit_no_block_are_refused():
    with pytest.raises(InputError, match="rows of shapes fit no block of it; all would stay in f16"):
        Recipe("x", "gguf", "rtn", mix("Q4_K_M")).choose(ShapeSource(LlamaShape(hidden=132, ffn=132, head_dim=34)))

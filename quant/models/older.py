"""GPT-2, OPT and BLOOM: LayerNorms, biases everywhere, a plain feed-forward net, and no rotation."""

from dataclasses import replace

from quant.models.architecture import EMBEDDING, EMBEDDING_NORM, FINAL_NORM, POSITIONS, Architecture, decoder
from quant.models.rows import LAYER, TensorRow, biased, stacked
from quant.models.stored import Stored


def _norm(name: str, gguf_name: str) -> tuple[TensorRow, TensorRow]:
    """Weight and bias of a LayerNorm anywhere; name: without ".weight" """

    def row(kind: str) -> TensorRow:
        return TensorRow(f"{name}.{kind}", f"{gguf_name}.{kind}", ("hidden_size",))

    return row("weight"), row("bias")


_ATTENTION = tuple(
    biased(f"self_attn.{name}", gguf_name, shape)
    for name, gguf_name, shape in (
        ("q_proj", "attn_q", ("q_size", "hidden_size")),
        ("k_proj", "attn_k", ("kv_size", "hidden_size")),
        ("v_proj", "attn_v", ("kv_size", "hidden_size")),
        ("o_proj", "attn_output", ("hidden_size", "q_size")),
    )
)
_INTO = biased("mlp.fc1", "ffn_up", ("ffn_size", "hidden_size"))
_OUT_OF = biased("mlp.fc2", "ffn_down", ("hidden_size", "ffn_size"))
_ATTENTION_NORM = _norm(f"{LAYER}.input_layernorm", "blk.{}.attn_norm")
_FEED_FORWARD_NORM = _norm(f"{LAYER}.post_attention_layernorm", "blk.{}.ffn_norm")
_FINAL_NORM = _norm(FINAL_NORM.removesuffix(".weight"), "output_norm")
_EMBEDDING_NORM = _norm(EMBEDDING_NORM.removesuffix(".weight"), "token_embd_norm")
_POSITIONS = TensorRow(POSITIONS, "position_embd.weight", ("num_position_rows", "hidden_size"))


def _layer(qkv: str | None, *, heads: str | None = None) -> tuple[TensorRow, ...]:
    """qkv: the tensor of a checkpoint that holds all three, with the rows of one head together where heads says so"""
    q, k, v, output = _ATTENTION
    rows = (*q, *k, *v)
    if qkv is not None:
        rows = stacked(*rows, stored=qkv, heads=heads, gguf="attn_qkv")
    return (*_ATTENTION_NORM, *rows, *output, *_FEED_FORWARD_NORM, *_INTO, *_OUT_OF)


def _renamed(rows: tuple[TensorRow, ...], names: dict[str, str], *, transposed: bool = False) -> tuple[TensorRow, ...]:
    """The rows under a checkpoint's names. names: module here -> module there; transposed: a layer's matrices"""

    def renamed(row: TensorRow) -> TensorRow:
        module, _, kind = row.name.rpartition(".")
        in_layer, is_matrix = LAYER in row.name, len(row.shape) > 1
        stored = row.stored or Stored(f"{names.get(module, module)}.{kind}")
        return replace(row, stored=replace(stored, transposed=transposed and in_layer and is_matrix))

    return tuple(map(renamed, rows))


_MODULES = ("input_layernorm", "post_attention_layernorm", "self_attn.o_proj", "mlp.fc1", "mlp.fc2")


def _names(layer: str, begin: dict[str, str], modules: tuple[str, ...]) -> dict[str, str]:
    """Module here -> module in a checkpoint.

    layer    "ROOT.LAYERS.{}"
    begin    weight outside the layers -> its module under ROOT
    modules  `_MODULES` under `layer`
    """
    root = layer.rsplit(".", 2)[0]
    outside = {name.removesuffix(".weight"): f"{root}.{its}" for name, its in begin.items()}
    inside = {f"{LAYER}.{ours}": f"{layer}.{its}" for ours, its in zip(_MODULES, modules, strict=True)}
    return outside | inside


_GPT2_LAYER = "transformer.h.{}"
_GPT2_NAMES = _names(
    _GPT2_LAYER,
    {EMBEDDING: "wte", POSITIONS: "wpe", FINAL_NORM: "ln_f"},
    ("ln_1", "ln_2", "attn.c_proj", "mlp.c_fc", "mlp.c_proj"),
)
_BLOOM_LAYER = "transformer.h.{}"
_BLOOM_NAMES = _names(
    _BLOOM_LAYER,
    {EMBEDDING: "word_embeddings", EMBEDDING_NORM: "word_embeddings_layernorm", FINAL_NORM: "ln_f"},
    (
        "input_layernorm",
        "post_attention_layernorm",
        "self_attention.dense",
        "mlp.dense_h_to_4h",
        "mlp.dense_4h_to_h",
    ),
)
_OPT_LAYER = "model.decoder.layers.{}"
_OPT_NAMES = _names(
    _OPT_LAYER,
    {EMBEDDING: "embed_tokens", POSITIONS: "embed_positions", FINAL_NORM: "final_layer_norm"},
    ("self_attn_layer_norm", "final_layer_norm", "self_attn.out_proj", "fc1", "fc2"),
) | {f"{LAYER}.self_attn.{name}_proj": f"{_OPT_LAYER}.self_attn.{name}_proj" for name in "qkv"}

GPT2 = Architecture(
    name="GPT2LMHeadModel",
    model_type="gpt2",
    gguf_arch="gpt2",
    tensors=_renamed(
        decoder(*_layer(f"{_GPT2_LAYER}.attn.c_attn"), begin=(_POSITIONS,), final_norm=_FINAL_NORM),
        _GPT2_NAMES,
        transposed=True,
    ),
    norm="layer",
    positions="learned",
    ffn_ratio=4,
    prefix="transformer.",
    leftovers=(".attn.bias", ".attn.masked_bias"),  # the causal mask, which old checkpoints hold as a buffer
    keys={
        "hidden_size": "n_embd",
        "num_hidden_layers": "n_layer",
        "num_attention_heads": "n_head",
        "max_position_embeddings": "n_positions",
        "intermediate_size": "n_inner",
        "hidden_act": "activation_function",
        "rms_norm_eps": "layer_norm_epsilon",
    },
    aliases={
        "hidden_size": "n_embd",
        "num_hidden_layers": "n_layer",
        "num_attention_heads": "n_head",
        "max_position_embeddings": "n_positions",
    },
    defaults={
        "hidden_size": 768,
        "num_hidden_layers": 12,
        "num_attention_heads": 12,
        "max_position_embeddings": 1024,
        "vocab_size": 50257,
        "hidden_act": "gelu_new",
        "rms_norm_eps": 1e-5,
        "tie_word_embeddings": True,
    },
    only={"scale_attn_weights": True, "scale_attn_by_inverse_layer_idx": False, "add_cross_attention": False},
)

BLOOM = Architecture(
    name="BloomForCausalLM",
    model_type="bloom",
    gguf_arch="bloom",
    tensors=_renamed(
        decoder(
            *_layer(f"{_BLOOM_LAYER}.self_attention.query_key_value", heads="num_heads"),
            begin=_EMBEDDING_NORM,
            final_norm=_FINAL_NORM,
        ),
        _BLOOM_NAMES,
    ),
    norm="layer",
    positions="alibi",
    ffn_ratio=4,
    prefix="transformer.",
    keys={
        "hidden_size": "n_embed",
        "num_hidden_layers": "n_layer",
        "num_attention_heads": "n_head",
        "max_position_embeddings": "seq_length",
        "rms_norm_eps": "layer_norm_epsilon",
    },
    aliases={"hidden_size": "n_embed", "num_hidden_layers": "n_layer", "num_attention_heads": "n_head"},
    defaults={
        "max_position_embeddings": 2048,
        "hidden_act": "gelu_new",
        "rms_norm_eps": 1e-5,
        "tie_word_embeddings": True,
    },
    only={"apply_residual_connection_post_layernorm": False},
)

OPT = Architecture(
    name="OPTForCausalLM",
    model_type="opt",
    gguf_arch=None,
    tensors=_renamed(decoder(*_layer(None), begin=(_POSITIONS,), final_norm=_FINAL_NORM), _OPT_NAMES),
    norm="layer",
    positions="learned",
    position_offset=2,
    keys={"intermediate_size": "ffn_dim", "hidden_act": "activation_function"},
    defaults={"hidden_act": "relu", "rms_norm_eps": 1e-5, "tie_word_embeddings": True},
    only={
        "do_layer_norm_before": True,
        "enable_bias": True,
        "layer_norm_elementwise_affine": True,
        "_remove_final_layer_norm": False,
    },
)

"""A Source of shapes alone, for tests of decisions before any weight is read."""

from dataclasses import dataclass, field

from quant.formats import get_format
from quant.source import TensorInfo, TokenizerInfo


@dataclass(frozen=True)
class LlamaShape:
    num_layers: int = 4
    hidden: int = 256
    ffn: int = 512
    heads: int = 4
    kv_heads: int = 2
    head_dim: int = 64
    vocab: int = 64
    tied: bool = False


@dataclass(frozen=True)
class ShapeSource:
    """The tensors of a Llama of this shape, all unreadable; matrices in `matrices`, the rest in f32."""

    shape: LlamaShape
    matrices: str = "f32"
    spec: str = "shapes"
    tokenizer: TokenizerInfo | None = None
    config: dict = field(init=False)
    tensors: dict[str, TensorInfo] = field(init=False)

    def __post_init__(self) -> None:
        s = self.shape
        config = {
            "architectures": ["LlamaForCausalLM"],
            "hidden_size": s.hidden,
            "intermediate_size": s.ffn,
            "num_hidden_layers": s.num_layers,
            "num_attention_heads": s.heads,
            "num_key_value_heads": s.kv_heads,
            "head_dim": s.head_dim,
            "vocab_size": s.vocab,
            "max_position_embeddings": 128,
            "rms_norm_eps": 1e-5,
            "tie_word_embeddings": s.tied,
        }
        object.__setattr__(self, "config", config)
        shapes: dict[str, tuple[int, ...]] = {"model.embed_tokens.weight": (s.vocab, s.hidden)}
        for i in range(s.num_layers):
            shapes |= {f"model.layers.{i}.{name}": shape for name, shape in self._layer().items()}
        shapes["model.norm.weight"] = (s.hidden,)
        if not s.tied:
            shapes["lm_head.weight"] = (s.vocab, s.hidden)
        tensors = {
            name: TensorInfo(shape, fmt.name, fmt.size_bytes(shape))
            for name, shape in shapes.items()
            for fmt in [get_format("f32" if len(shape) == 1 else self.matrices)]
        }
        object.__setattr__(self, "tensors", tensors)

    def _layer(self) -> dict[str, tuple[int, ...]]:
        s = self.shape
        return {
            "input_layernorm.weight": (s.hidden,),
            "self_attn.q_proj.weight": (s.heads * s.head_dim, s.hidden),
            "self_attn.k_proj.weight": (s.kv_heads * s.head_dim, s.hidden),
            "self_attn.v_proj.weight": (s.kv_heads * s.head_dim, s.hidden),
            "self_attn.o_proj.weight": (s.hidden, s.heads * s.head_dim),
            "post_attention_layernorm.weight": (s.hidden,),
            "mlp.gate_proj.weight": (s.ffn, s.hidden),
            "mlp.up_proj.weight": (s.ffn, s.hidden),
            "mlp.down_proj.weight": (s.hidden, s.ffn),
        }

    def read(self, name: str):
        raise AssertionError(f"a plan is made without reading weights, got read({name!r})")

    def fingerprint(self) -> str:
        return "0" * 64

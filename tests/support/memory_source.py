"""A small Llama model of any config, held in memory."""

import numpy as np

from quant.formats import get_format
from quant.models import ModelConfig, expected_tensors
from quant.source import TensorInfo, TokenizerInfo

CONFIG = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_act": "silu",
    "vocab_size": 320,
    "hidden_size": 128,
    "intermediate_size": 256,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 32,
    "max_position_embeddings": 256,
    "rms_norm_eps": 1e-5,
    "rope_theta": 10000.0,
    "rope_scaling": None,
    "tie_word_embeddings": False,
}


class MemorySource:
    """Source over random float32 weights."""

    def __init__(self, tokenizer: TokenizerInfo | None = None, seed: int = 0, **changes) -> None:
        self.spec = "memory"
        self.config = {**CONFIG, **changes}
        self.tokenizer = tokenizer
        rng = np.random.default_rng(seed)
        f32 = get_format("f32")
        self.weights = {
            name: rng.normal(0, 0.05, want.shape).astype(np.float32)
            for name, want in expected_tensors(ModelConfig.of(self)).items()
        }
        self.tensors = {name: TensorInfo(w.shape, "f32", f32.size_bytes(w.shape)) for name, w in self.weights.items()}

    def read(self, name):
        return get_format("f32").quantize_ref(self.weights[name])

    def fingerprint(self):
        return "0" * 64

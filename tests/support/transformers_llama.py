"""transformers' Llama over the same weights: the oracle of the runtime's logits."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from transformers import LlamaConfig, LlamaForCausalLM


def transformers_llama(config: Mapping[str, Any], weights: Mapping[str, np.ndarray]) -> LlamaForCausalLM:
    """The model in float32, after checking that every weight found its place."""
    model = LlamaForCausalLM(LlamaConfig(**config)).eval()
    state = {name: torch.from_numpy(weight) for name, weight in weights.items()}
    missing, unexpected = model.load_state_dict(state, strict=False)
    tied = ["lm_head.weight"] if config["tie_word_embeddings"] else []
    assert missing == tied and not unexpected
    model.tie_weights()
    return model


@torch.inference_mode()
def transformers_logits(
    config: Mapping[str, Any], weights: Mapping[str, np.ndarray], tokens: torch.Tensor
) -> torch.Tensor:
    """tokens [B, T] -> logits [B, T, V]"""
    return transformers_llama(config, weights)(tokens, use_cache=False).logits

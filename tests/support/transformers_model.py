"""Any architecture in transformers, loaded as users load it: from a directory in the names that are published."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from support.array_source import ArraySource
from transformers import AutoModelForCausalLM, PreTrainedModel

from quant.artifacts.hf_writer import write_hf


def transformers_model(config: Mapping[str, Any], weights: Mapping[str, np.ndarray], path: Path) -> PreTrainedModel:
    """The model in float32, after checking that every weight found its place. path: an empty directory"""
    write_hf(ArraySource(config, weights), path)
    model, info = AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32, output_loading_info=True)
    problems = {kind: sorted(info[kind]) for kind in ("missing_keys", "unexpected_keys", "mismatched_keys")}
    assert not any(problems.values()), problems
    return model.eval()


@torch.inference_mode()
def logits_of(model: PreTrainedModel, tokens: torch.Tensor) -> torch.Tensor:
    """tokens [B, T] -> logits [B, T, V]"""
    return model(tokens, use_cache=False).logits

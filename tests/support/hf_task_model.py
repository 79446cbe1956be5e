"""lm-eval's own `hf` model over a directory: the oracle of TaskModel."""

from pathlib import Path

import pytest
import torch


def hf_task_model(folder: Path):
    """In float32, one sequence at a time; the test is skipped if lm-eval's `hf` model lacks an import."""
    pytest.importorskip("accelerate", reason="lm-eval's hf model needs accelerate")
    from lm_eval.models.huggingface import HFLM
    from transformers import AutoModelForCausalLM, AutoTokenizer

    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    tokenizer = AutoTokenizer.from_pretrained(folder)
    # Its store of logits misreads requests of the same tokens that are split into context and continuation elsewhere
    # (lm-eval 0.4.13 gathers from the start of the longer continuation's logits, not from their end).
    return HFLM(pretrained=model, tokenizer=tokenizer, device="cpu", batch_size=1, logits_cache=False)

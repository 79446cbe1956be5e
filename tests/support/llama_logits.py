"""Logits of a GGUF file by llama.cpp, the oracle for those of the runtime."""

from pathlib import Path

import numpy as np

TOKENS = list(range(5, 69))


def llama_cpp_logits(path: Path) -> np.ndarray:
    """[T, V], keys and values in float32"""
    import llama_cpp

    f32 = {"type_k": llama_cpp.GGML_TYPE_F32, "type_v": llama_cpp.GGML_TYPE_F32}
    model = llama_cpp.Llama(str(path), verbose=False, n_ctx=128, n_threads=1, n_threads_batch=1, logits_all=True, **f32)
    model.eval(TOKENS)
    logits = np.array(model.scores[: len(TOKENS)])
    model.close()
    return logits

"""Logits of a GGUF file by llama.cpp, and its perplexity: the oracle for those of the runtime."""

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


def llama_cpp_perplexity(path, windows: np.ndarray) -> float:
    """windows [W, T] int64, each from an empty cache; every token but a window's first is scored."""
    import llama_cpp

    model = llama_cpp.Llama(str(path), n_ctx=windows.shape[1], logits_all=True, verbose=False, n_threads=2)
    losses = []
    for window in windows:
        model.reset()
        model.eval(window.tolist())
        logits = np.array(model.scores[: len(window) - 1], dtype=np.float64)  # [T - 1, V]
        top = logits.max(axis=1)
        log_sum = np.log(np.exp(logits - top[:, None]).sum(axis=1)) + top
        losses.append(log_sum - logits[np.arange(len(logits)), window[1:]])
    model.close()
    return float(np.exp(np.mean(losses)))

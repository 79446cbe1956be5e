"""Conventions that cut a text as one stream of tokens into windows."""

from collections.abc import Callable

import numpy as np

from qbench.quality.protocols import windows as cut
from qbench.quality.protocols.protocol import Protocol, tokens_sha256
from qbench.quality.protocols.scoring import GPTQ_WINDOW, Scoring, Setting
from qbench.quality.protocols.windows import Window
from quant.errors import InputError


def gptq(setting: Setting, size: int) -> Scoring:
    """`gptq-2048`, or `windows-N` where context or text holds less.

    source   the evaluation loop of Frantar et al. 2022, arXiv:2210.17323, section 4
    """
    if size != GPTQ_WINDOW:
        raise InputError(f"gptq-{size} is no protocol: gptq-{GPTQ_WINDOW} is, and windows-{size} for another size")
    return _whole(setting, setting.longest)


def sized(setting: Setting, size: int) -> Scoring:
    """`windows-N`"""
    _require_context(setting, size)
    return _whole(setting, size)


def llama_cpp(setting: Setting, size: int) -> Scoring:
    """`llama.cpp-N`: the same as llama-perplexity, which reads special tokens in a text as plain text.

    source   llama.cpp, tools/perplexity/perplexity.cpp; it takes no text of less than two windows
    """
    _require_context(setting, size)
    tokens, tokenizer = setting.plain_tokens, setting.tokenizer
    if size < 4 or len(tokens) < 2 * size:
        raise InputError(
            f"llama.cpp-{size} needs windows of 4 tokens or more and a text of two windows, this one has "
            f"{len(tokens)} tokens; give a longer text or a smaller N"
        )
    windows = cut.second_half(tokens, size, tokenizer.bos_token_id if tokenizer.add_bos else None, setting.limit)
    return _scoring(setting, f"llama.cpp-{size}", tokens, windows, size, "second-half")


def stride(setting: Setting, step: int) -> Scoring:
    """`stride-N`: windows as long as they may be, N tokens from one to the next."""
    size = setting.longest
    if step >= size:
        raise InputError(f"stride-{step} leaves no context in windows of {size} tokens; expected 1 to {size - 1}")
    windows = cut.sliding(setting.tokens, size, step, setting.limit)
    return _scoring(setting, f"stride-{step}", setting.tokens, windows, size, "new", step)


CONVENTIONS: dict[str, Callable[[Setting, int], Scoring]] = {
    "gptq": gptq,
    "windows": sized,
    "llama.cpp": llama_cpp,
    "stride": stride,
}


def _whole(setting: Setting, size: int) -> Scoring:
    size = min(size, len(setting.tokens))
    windows = cut.whole(setting.tokens, size, setting.limit)
    name = f"gptq-{size}" if size == GPTQ_WINDOW else f"windows-{size}"
    return _scoring(setting, name, setting.tokens, windows, size, "all")


def _scoring(
    setting: Setting,
    name: str,
    tokens: np.ndarray,
    windows: list[Window],
    size: int,
    scored: str,
    step: int | None = None,
) -> Scoring:
    """step   from window to window; None: windows do not overlap"""
    protocol = Protocol(
        name=name,
        window=size,
        stride=step or size,
        scored=scored,
        bos="window-start" if scored == "second-half" else "text-start",
        dtype="float32",
        num_windows=len(windows),
        text_windows=cut.num_sliding(len(tokens), size, step) if step else len(tokens) // size,
        data_sha256=setting.data_sha256,
        tokens_sha256=tokens_sha256(tokens),
    )
    return Scoring(protocol, windows, "window")


def _require_context(setting: Setting, size: int) -> None:
    if not 2 <= size <= setting.context:
        raise InputError(f"windows of {size} tokens: the model's context holds {setting.context}, and 2 are the least")

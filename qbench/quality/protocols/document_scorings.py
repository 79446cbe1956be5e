"""lm-eval's word_perplexity and byte_perplexity: whole documents, per word or byte."""

import numpy as np

from qbench.quality.protocols import windows as cut
from qbench.quality.protocols.protocol import Protocol, tokens_sha256
from qbench.quality.protocols.scoring import Scoring, Setting
from qbench.quality.protocols.windows import Window
from quant.errors import InputError


def lm_eval(setting: Setting, unit: str) -> Scoring:
    """`lm-eval-word` or `lm-eval-byte`.

    Each document follows a prefix token. A tokenizer that adds BOS puts one after that, and it is scored with the rest.
    source   lm-eval 0.4, models/huggingface.py: loglikelihood_rolling
    """
    documents, size = setting.passage.documents, setting.longest
    picked = cut.spread(len(documents), setting.limit)
    prefix = _prefix(setting)
    tokens = setting.document_tokens
    windows = [window for block, i in enumerate(picked) for window in cut.rolling(tokens[i], size, prefix, block)]
    num_words, num_bytes = (
        np.array([float(getattr(documents[i], count)) for i in picked]) for count in ("num_words", "num_bytes")
    )
    units = num_words if unit == "word" else num_bytes
    lone = len(picked) == 1
    if lone:  # its windows are all that an interval can be drawn from: each counts by its share of the tokens
        sizes = np.array([len(window.targets) for window in windows])
        windows = [Window(window.tokens, window.first, window.targets, i) for i, window in enumerate(windows)]
        units = units.sum() * sizes / sizes.sum()
    protocol = Protocol(
        name=f"lm-eval-{unit}",
        window=size,
        stride=size,
        scored="document",
        bos="document-start",
        dtype="float32",
        num_windows=len(windows),
        text_windows=sum(-(-len(ids) // size) for ids in tokens),
        data_sha256=setting.data_sha256,
        tokens_sha256=tokens_sha256(np.concatenate(tokens)),
        unit=unit,
        documents=setting.passage.how,
        num_documents=len(picked),
    )
    block_unit = "window" if lone else "document"
    return Scoring(protocol, windows, block_unit, units, int(num_words.sum()), int(num_bytes.sum()))


def _prefix(setting: Setting) -> int:
    for token in (setting.tokenizer.bos_token_id, setting.tokenizer.eos_token_id):
        if token is not None:
            return token
    raise InputError("lm-eval starts each document from BOS or EOS, and this model's tokenizer has neither")

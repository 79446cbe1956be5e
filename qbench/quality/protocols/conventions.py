"""The conventions of the field by name, such as `llama.cpp-512` or lm-eval's: each makes the scoring of a text."""

import re
from collections.abc import Sequence

import numpy as np

from qbench.quality.protocols import windows as cut
from qbench.quality.protocols.protocol import Protocol, tokens_sha256
from qbench.quality.protocols.scoring import Scoring, Setting
from qbench.quality.protocols.stream_scorings import CONVENTIONS
from qbench.quality.protocols.windows import Window
from qbench.words.written import nearest
from quant.errors import InputError

DEFAULT = "gptq-2048"
KNOWN = (DEFAULT, "windows-N", "llama.cpp-512", "llama.cpp-N", "lm-eval-word", "lm-eval-byte", "stride-N")


LEAST = {"windows": 2, "llama.cpp": 4, "stride": 1}  # kind of protocol -> its smallest N


def check_protocol(name: str) -> None:
    """raises InputError for an unknown name; whether its N fits text and model is checked later"""
    kind, _, number = name.rpartition("-")
    is_sized = kind in LEAST and re.fullmatch("[1-9][0-9]{0,8}", number) and int(number) >= LEAST[kind]
    if not is_sized and (name.endswith("-N") or name not in (*KNOWN, "all")):
        raise _unknown(name)


def make_scorings(setting: Setting, names: Sequence[str] = (DEFAULT,)) -> list[Scoring]:
    """One scoring per name, in order; `all` means every convention with its usual numbers, cut to a short context.

    raises   InputError for an unknown name, a text too short for it, or a limit below 1
    """
    if setting.limit is not None and setting.limit < 1:
        raise InputError(f"the number of windows must be 1 or more, got {setting.limit}")
    llama_cpp = min(512, setting.longest)
    every = (DEFAULT, f"llama.cpp-{llama_cpp}", "lm-eval-word", "lm-eval-byte", f"stride-{setting.longest // 2}")
    wanted = [one for name in names for one in (every if name == "all" else (name,))]
    scorings = {scoring.protocol.name: scoring for scoring in (_scoring(setting, name) for name in wanted)}
    return list(scorings.values())


def _scoring(setting: Setting, name: str) -> Scoring:
    kind, _, number = name.rpartition("-")
    if kind == "lm-eval" and number in ("word", "byte"):
        return lm_eval(setting, number)
    if kind in CONVENTIONS and re.fullmatch("[1-9][0-9]{0,8}", number):
        return CONVENTIONS[kind](setting, int(number))
    raise _unknown(name)


def _unknown(name: str) -> InputError:
    return InputError(f"unknown protocol {name!r}; known: {', '.join(KNOWN)}, all{nearest(name, KNOWN)}")


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

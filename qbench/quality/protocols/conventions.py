"""The conventions of the field by name, such as `llama.cpp-512`: each makes the scoring of a text."""

import re
from collections.abc import Sequence

from qbench.quality.protocols.document_scorings import lm_eval
from qbench.quality.protocols.scoring import Scoring, Setting
from qbench.quality.protocols.stream_scorings import CONVENTIONS
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

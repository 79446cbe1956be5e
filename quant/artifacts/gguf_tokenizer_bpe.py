"""Byte-level BPE: GGUF's tokenizer model "gpt2", with the way words are cut as a name."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from quant.artifacts.gguf_cursor import Value, Written
from quant.artifacts.gguf_vocabulary import Vocabulary, string_list
from quant.artifacts.tokenizer_parts import Step, TokenizerParts
from quant.errors import InputError, shown

MODEL = "gpt2"
MERGES = "tokenizer.ggml.merges"
ADD_BOS = False


@dataclass(frozen=True, slots=True)
class PreTokenizer:
    """One tokenizer.ggml.pre. ignore_merges: a word that is a token is taken whole."""

    steps: tuple[Step, ...]
    ignore_merges: bool = False


def _byte_level(use_regex: bool) -> Step:
    return {"type": "ByteLevel", "add_prefix_space": False, "use_regex": use_regex}


def _split(regex: str) -> Step:
    return {"type": "Split", "pattern": {"Regex": regex}, "behavior": "Isolated", "invert": False}


_LLAMA3 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
# The regular expression of "gpt-2" is the one inside the `tokenizers` ByteLevel step.
PRE_TOKENIZERS: dict[str, PreTokenizer] = {
    "gpt-2": PreTokenizer((_byte_level(True),)),
    "llama-bpe": PreTokenizer((_split(_LLAMA3), _byte_level(False)), ignore_merges=True),
    "smollm": PreTokenizer(({"type": "Digits", "individual_digits": True}, _byte_level(True))),
}


def merge_pairs(model: Mapping[str, Any], where: str) -> list[tuple[str, str]]:
    """The merges of a `tokenizers` model in either spelling, "a b" or ["a", "b"]."""
    merges = model.get("merges")
    pairs = [merge.split(" ", 1) if isinstance(merge, str) else merge for merge in merges] if merges else []
    if not isinstance(merges, list) or not all(isinstance(pair, list) and len(pair) == 2 for pair in pairs):
        raise InputError(f"{where}: the tokenizer's merges must be a list of pairs")
    return [(first, second) for first, second in pairs]


def metadata_from_json(document: Mapping[str, Any], vocabulary: Vocabulary, where: str) -> dict[str, Written]:
    """pre and merges. raises InputError for a preparation of the text that has no name in GGUF."""
    steps = _steps(document.get("pre_tokenizer"))
    ignore_merges = bool(document["model"].get("ignore_merges"))
    rows = PRE_TOKENIZERS.items()
    pre = next((name for name, row in rows if row.steps == steps and row.ignore_merges == ignore_merges), None)
    if pre is None or document.get("normalizer") is not None:
        raise InputError(
            f"{where}: the tokenizer cuts words in none of the ways known for GGUF "
            f"({', '.join(PRE_TOKENIZERS)}); write a Hugging Face directory"
        )
    return {"pre": pre, "merges": [f"{left} {right}" for left, right in merge_pairs(document["model"], where)]}


def json_from_metadata(metadata: Mapping[str, Value], vocabulary: Vocabulary, where: str) -> TokenizerParts:
    """The parts of a `tokenizers` JSON document that make this kind."""
    pre = metadata.get("tokenizer.ggml.pre")
    if not isinstance(pre, str) or pre not in PRE_TOKENIZERS:
        raise InputError(f"{where}: tokenizer.ggml.pre is {shown(pre)}; known: {', '.join(PRE_TOKENIZERS)}")
    row = PRE_TOKENIZERS[pre]
    # A vocabulary of bytes alone has no merges, and the gguf package writes no empty array.
    texts = string_list(metadata, MERGES, where) if MERGES in metadata else []
    merges = [merge.split(" ", 1) for merge in texts]
    known = vocabulary.stored()
    for pair in merges:
        if len(pair) != 2 or not {*pair, "".join(pair)} <= known.keys():
            raise InputError(f"{where}: merge {shown(' '.join(pair))} joins or makes what is no token")
    byte_level: Step = {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True}
    return {
        "normalizer": None,
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": [_whole(step) for step in row.steps]},
        "post_processor": None,
        "decoder": byte_level,
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": None,
            "continuing_subword_prefix": None,
            "end_of_word_suffix": None,
            "fuse_unk": False,
            "byte_fallback": False,
            "ignore_merges": row.ignore_merges,
            "vocab": known,
            "merges": merges,
        },
    }


def _steps(pre_tokenizer: Mapping[str, Any] | None) -> tuple[Mapping[str, Any], ...]:
    """The steps of a document in order, without the keys that move offsets alone."""
    if pre_tokenizer is None:
        return ()
    steps = pre_tokenizer["pretokenizers"] if pre_tokenizer.get("type") == "Sequence" else [pre_tokenizer]
    return tuple({key: value for key, value in step.items() if key != "trim_offsets"} for step in steps)


def _whole(step: Step) -> Step:
    return {**step, "trim_offsets": True} if step["type"] == "ByteLevel" else step

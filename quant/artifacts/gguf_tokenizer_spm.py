"""SentencePiece-like BPE: GGUF's tokenizer model "llama".

GGUF keeps no merges: any two neighbours that spell a token may merge, the one with the highest score first. So the
merge list of `tokenizers` holds every split of every token, in the order of the tokens' scores.
"""

from collections.abc import Mapping
from itertools import pairwise
from typing import Any

from quant.artifacts.gguf_cursor import Value, Written
from quant.artifacts.gguf_tokenizer_bpe import merge_pairs
from quant.artifacts.gguf_vocabulary import BYTE, NORMAL, UNKNOWN, Vocabulary, number_list
from quant.artifacts.tokenizer_parts import Step, TokenizerParts
from quant.errors import InputError

MODEL = "llama"
ADD_BOS = True  # llama.cpp's own choice where the file does not say
SPACE = "\u2581"  # LOWER ONE EIGHTH BLOCK, SentencePiece's visible space

PREPEND: Step = {"type": "Prepend", "prepend": SPACE}
REPLACE: Step = {"type": "Replace", "pattern": {"String": " "}, "content": SPACE}


def has_visible_spaces(document: Mapping[str, Any]) -> bool:
    """Whether the tokenizer writes spaces as SentencePiece does; not all of those fall back to bytes."""
    normalizer, pre = document.get("normalizer") or {}, document.get("pre_tokenizer") or {}
    return REPLACE in [normalizer, *normalizer.get("normalizers", ())] or pre.get("type") == "Metaspace"


def metadata_from_json(document: Mapping[str, Any], vocabulary: Vocabulary, where: str) -> dict[str, Written]:
    """pre, scores and add_space_prefix. raises InputError if no scores give the order of the merges."""
    pairs = merge_pairs(document["model"], where)
    rank = {}
    for number, (left, right) in enumerate(pairs):
        rank.setdefault(left + right, number)
    unmerged = len(pairs) + 1  # characters, bytes, special tokens: no merge makes them, so their score orders nothing
    scores = [-float(rank.get(token, unmerged)) for token in vocabulary.tokens]
    again = _merges(vocabulary, scores)
    if set(again) != set(pairs) or not all(rank[sum_of(a)] <= rank[sum_of(b)] for a, b in pairwise(pairs)):
        raise InputError(
            f"{where}: the tokenizer's merges are not all splits of its tokens in one order, which GGUF's 'llama' "
            "tokenizer takes for granted; write a Hugging Face directory"
        )
    return {"pre": "default", "scores": scores, "add_space_prefix": _space_prefix(document, where)}


def json_from_metadata(metadata: Mapping[str, Value], vocabulary: Vocabulary, where: str) -> TokenizerParts:
    """The parts of a `tokenizers` JSON document that make this kind."""
    scores = number_list(metadata, "tokenizer.ggml.scores", where)
    if len(scores) != len(vocabulary.tokens):
        raise InputError(f"{where}: {len(scores)} scores for {len(vocabulary.tokens)} tokens")
    prefix = metadata.get("tokenizer.ggml.add_space_prefix", True)
    unknown = next(iter(vocabulary.ids(UNKNOWN)), None)
    return {
        "normalizer": {"type": "Sequence", "normalizers": [PREPEND, REPLACE] if prefix else [REPLACE]},
        "pre_tokenizer": None,
        "post_processor": None,
        "decoder": space_decoder(bool(prefix)),
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": unknown,
            "continuing_subword_prefix": None,
            "end_of_word_suffix": None,
            "fuse_unk": True,
            "byte_fallback": bool(vocabulary.ids(BYTE)),
            "ignore_merges": False,
            "vocab": vocabulary.stored(),
            "merges": [list(pair) for pair in _merges(vocabulary, scores)],
        },
    }


def space_decoder(has_prefix: bool) -> Step:
    """Visible spaces become spaces again, without the one before the text."""
    steps: list[Step] = [
        {"type": "Replace", "pattern": {"String": SPACE}, "content": " "},
        {"type": "ByteFallback"},
        {"type": "Fuse"},
    ]
    strip: list[Step] = [{"type": "Strip", "content": " ", "start": 1, "stop": 0}] if has_prefix else []
    return {"type": "Sequence", "decoders": [*steps, *strip]}


def sum_of(pair: tuple[str, str]) -> str:
    return pair[0] + pair[1]


def _merges(vocabulary: Vocabulary, scores: list[float]) -> list[tuple[str, str]]:
    """Every split of every normal token into two, best score first, then by the ids of the halves."""
    ids = vocabulary.ids(NORMAL)
    merges = []
    for token in sorted(ids, key=lambda token: (-scores[ids[token]], ids[token])):
        splits = [(token[:cut], token[cut:]) for cut in range(1, len(token))]
        found = [(left, right) for left, right in splits if left in ids and right in ids]
        merges += sorted(found, key=lambda pair: (ids[pair[0]], ids[pair[1]]))
    return merges


def _space_prefix(document: Mapping[str, Any], where: str) -> bool:
    """Whether a space is put before the text. raises InputError for any other preparation of the text."""
    normalizer, pre = document.get("normalizer"), document.get("pre_tokenizer")
    steps = normalizer.get("normalizers") if normalizer and normalizer.get("type") == "Sequence" else [normalizer]
    if pre is None and steps in ([PREPEND, REPLACE], [REPLACE]):
        return len(steps) == 2
    if normalizer is None and pre and pre.get("type") == "Metaspace" and pre.get("split") is False:
        return pre.get("prepend_scheme") != "never"
    raise InputError(
        f"{where}: the tokenizer's normalizer or pre-tokenizer is more than SentencePiece's spaces, which GGUF's "
        "'llama' tokenizer cannot say; write a Hugging Face directory"
    )

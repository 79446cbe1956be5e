"""SentencePiece-like BPE: GGUF's tokenizer model "llama".

GGUF keeps no merges: any two neighbours that spell a token may merge, the one with the highest score first. So the
merge list of `tokenizers` holds every split of every token, in the order of the tokens' scores.
"""

from collections.abc import Mapping
from itertools import pairwise
from typing import Any

from quant.artifacts.gguf_cursor import Value, Written
from quant.artifacts.gguf_keys import scalar
from quant.artifacts.gguf_vocabulary import BYTE, NORMAL, UNKNOWN, Vocabulary, merge_pairs, number_list
from quant.artifacts.tokenizer_parts import Step, TokenizerParts
from quant.errors import InputError, shown

MODEL = "llama"
SPACE = "\u2581"  # LOWER ONE EIGHTH BLOCK, SentencePiece's visible space

PREPEND: Step = {"type": "Prepend", "prepend": SPACE}
REPLACE: Step = {"type": "Replace", "pattern": {"String": " "}, "content": SPACE}
# Gemma's, which finds no space behind REPLACE.
_SPLIT = {"type": "Split", "pattern": {"String": " "}, "behavior": "MergedWithPrevious", "invert": False}
# prepend_scheme of a Metaspace step. It leaves a text alone that begins with a space, and as "first" also a text behind
# a special token. llama.cpp adds a space to both and ignores the key.
METASPACE = "qbench.tokenizer.metaspace"
_SCHEMES = ("first", "always")


def has_visible_spaces(document: Mapping[str, Any]) -> bool:
    """Whether the tokenizer writes spaces as SentencePiece does; not all of those fall back to bytes."""
    normalizer, pre = document.get("normalizer") or {}, document.get("pre_tokenizer") or {}
    return REPLACE in [normalizer, *normalizer.get("normalizers", ())] or pre.get("type") == "Metaspace"


def adds_bos(metadata: Mapping[str, Value], where: str) -> bool:
    """llama.cpp's own choice if the file does not say it."""
    return True


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
    scheme = (document.get("pre_tokenizer") or {}).get("prepend_scheme")
    return {
        "pre": "default",
        "scores": scores,
        "add_space_prefix": _space_prefix(document, where),
        **({METASPACE: scheme} if scheme in _SCHEMES else {}),
    }


def json_from_metadata(metadata: Mapping[str, Value], vocabulary: Vocabulary, where: str) -> TokenizerParts:
    """The parts of a `tokenizers` JSON document that make this kind."""
    scores = number_list(metadata, "tokenizer.ggml.scores", where)
    if len(scores) != len(vocabulary.tokens):
        raise InputError(f"{where}: {len(scores)} scores for {len(vocabulary.tokens)} tokens")
    prefix = metadata.get("tokenizer.ggml.add_space_prefix", True)
    unknown = next(iter(vocabulary.ids(UNKNOWN)), None)
    scheme = scalar(metadata, METASPACE, str, where)
    if scheme is not None and scheme not in _SCHEMES:
        raise InputError(f"{where}: {METASPACE} is {shown(scheme)}, expected {' or '.join(_SCHEMES)}")
    return {
        "normalizer": None
        if scheme
        else {"type": "Sequence", "normalizers": [PREPEND, REPLACE] if prefix else [REPLACE]},
        "pre_tokenizer": _metaspace(scheme) if scheme else None,
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


def _metaspace(scheme: str) -> Step:
    return {"type": "Metaspace", "replacement": SPACE, "prepend_scheme": scheme, "split": False}


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
    if steps in ([PREPEND, REPLACE], [REPLACE]) and pre in (None, _SPLIT):
        return len(steps) == 2
    if normalizer is None and pre and pre.get("type") == "Metaspace" and pre.get("split") is False:
        return pre.get("prepend_scheme") != "never"
    raise InputError(
        f"{where}: the tokenizer's normalizer or pre-tokenizer is more than SentencePiece's spaces, which GGUF's "
        "'llama' tokenizer cannot say; write a Hugging Face directory"
    )

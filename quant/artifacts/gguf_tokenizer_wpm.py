"""WordPiece: GGUF's tokenizer model "bert", the longest pieces of each word.

A piece that begins a word is stored behind a visible space, and one that goes on without the "##" of `tokenizers`.
llama.cpp puts [CLS] before and [SEP] behind every text, whatever the file says. It also cuts words of more than 100
characters, which are unknown here, and drops marks that take room, as vowel signs of Devanagari are.
source: llama.cpp, llm_tokenizer_wpm
"""

import logging
from collections.abc import Mapping
from typing import Any

from quant.artifacts.gguf_cursor import Value, Written
from quant.artifacts.gguf_tokenizer_spm import SPACE
from quant.artifacts.gguf_vocabulary import CONTROL, NORMAL, UNKNOWN, USER_DEFINED, Vocabulary
from quant.artifacts.stop_tokens import special_token
from quant.artifacts.tokenizer_parts import Step, TokenizerParts
from quant.errors import InputError, shown

MODEL = "bert"
GOES_ON = "##"
LONGEST_WORD = 100  # characters, of BERT and all that followed it
LOWERCASE, STRIP_ACCENTS = (f"tokenizer.ggml.normalizer.{key}" for key in ("lowercase", "strip_accents"))
SEPARATOR = "[SEP]"
_WORDS: Step = {"type": "BertPreTokenizer"}


def adds_bos(metadata: Mapping[str, Value], where: str) -> bool:
    """llama.cpp's own choice if the file does not say it."""
    return True


def metadata_from_json(document: Mapping[str, Any], vocabulary: Vocabulary, where: str) -> dict[str, Written]:
    """Tokens in GGUF's spelling, and the rules for case. raises InputError for a tokenizer that GGUF cannot say."""
    model, normalizer = document["model"], document.get("normalizer") or {}
    is_bert = normalizer.get("type") == "BertNormalizer" and document.get("pre_tokenizer") == _WORDS
    if not is_bert or not (normalizer.get("clean_text") and normalizer.get("handle_chinese_chars")):
        raise InputError(
            f"{where}: GGUF's 'bert' tokenizer (WordPiece) prepares texts as BertNormalizer with clean_text and "
            "handle_chinese_chars, and as BertPreTokenizer, and this one does not; write a Hugging Face directory"
        )
    if (model.get("continuing_subword_prefix"), model.get("max_input_chars_per_word")) != (GOES_ON, LONGEST_WORD):
        raise InputError(
            f"{where}: GGUF's 'bert' tokenizer (WordPiece) has the prefix '{GOES_ON}' and words of up to "
            f"{LONGEST_WORD} characters, got {shown(model.get('continuing_subword_prefix'))} and "
            f"{shown(model.get('max_input_chars_per_word'))}; write a Hugging Face directory"
        )
    tokens = [_stored(token, kind) for token, kind in zip(vocabulary.tokens, vocabulary.types, strict=True)]
    if len(set(tokens)) < len(tokens) or {"", SPACE} & set(tokens):
        raise InputError(
            f"{where}: GGUF's 'bert' tokenizer (WordPiece) would spell two of the tokens in one way, or one as "
            "nothing; write a Hugging Face directory"
        )
    lowercase = bool(normalizer.get("lowercase"))
    strips = normalizer.get("strip_accents")
    separator = vocabulary.find(SEPARATOR)
    keys: dict[str, Written] = {"pre": "default", "tokens": tokens}
    if separator is not None:
        keys["seperator_token_id"] = separator  # GGUF's own spelling
    if (lowercase, strips) not in ((True, None), (True, True)):
        keys |= {LOWERCASE: lowercase, STRIP_ACCENTS: lowercase if strips is None else strips}
        logging.getLogger(__name__).warning(
            "%s: the tokenizer keeps case or accents, which older versions of llama.cpp do not", where
        )
    return keys


def json_from_metadata(metadata: Mapping[str, Value], vocabulary: Vocabulary, where: str) -> TokenizerParts:
    """The parts of a `tokenizers` JSON document that make this kind. vocabulary: of `words`"""
    unknown = special_token(metadata, "unknown_token_id", where)
    if unknown is None:
        raise InputError(f"{where}: tokenizer.ggml.unknown_token_id names no token, which WordPiece needs")
    lowercase = metadata.get(LOWERCASE, True) is True
    return {
        "normalizer": {
            "type": "BertNormalizer",
            "clean_text": True,
            "handle_chinese_chars": True,
            "strip_accents": metadata.get(STRIP_ACCENTS, lowercase) is True,
            "lowercase": lowercase,
        },
        "pre_tokenizer": _WORDS,
        "post_processor": None,
        "decoder": {"type": "WordPiece", "prefix": GOES_ON, "cleanup": True},
        "model": {
            "type": "WordPiece",
            "unk_token": vocabulary.tokens[unknown],
            "continuing_subword_prefix": GOES_ON,
            "max_input_chars_per_word": LONGEST_WORD,
            "vocab": vocabulary.ids(NORMAL, UNKNOWN, CONTROL, USER_DEFINED),
        },
    }


def words(vocabulary: Vocabulary, where: str) -> Vocabulary:
    """The tokens of a file as `tokenizers` spells them. raises InputError if two of them become one"""
    tokens = [_spelled(token, kind) for token, kind in zip(vocabulary.tokens, vocabulary.types, strict=True)]
    if len(set(tokens)) < len(tokens):
        raise InputError(f"{where}: tokenizer.ggml.tokens has a text twice, once as a control token")
    return Vocabulary(tokens, vocabulary.types)


def _stored(token: str, kind: int) -> str:
    if kind != NORMAL:
        return token
    return token.removeprefix(GOES_ON) if token.startswith(GOES_ON) else SPACE + token


def _spelled(token: str, kind: int) -> str:
    """Files of others have a visible space before all but control tokens."""
    if token.startswith(SPACE) and kind != CONTROL:
        return token.removeprefix(SPACE)
    return GOES_ON + token if kind == NORMAL else token

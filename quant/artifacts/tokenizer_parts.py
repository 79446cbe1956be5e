"""The parts of a `tokenizers` JSON document that a GGUF file's keys become, as that library spells them."""

from typing import NotRequired, TypedDict


class Pattern(TypedDict, total=False):
    """One of the two keys: an exact text, or a regular expression."""

    String: str
    Regex: str


class Step(TypedDict):
    """A normalizer, pre-tokenizer or decoder; which keys there are depends on the type."""

    type: str
    add_prefix_space: NotRequired[bool]
    trim_offsets: NotRequired[bool]
    use_regex: NotRequired[bool]
    individual_digits: NotRequired[bool]
    prepend: NotRequired[str]
    pattern: NotRequired[Pattern]
    behavior: NotRequired[str]
    invert: NotRequired[bool]
    content: NotRequired[str]
    replacement: NotRequired[str]
    prepend_scheme: NotRequired[str]
    split: NotRequired[bool]
    start: NotRequired[int]
    stop: NotRequired[int]
    normalizers: NotRequired[list["Step"]]
    pretokenizers: NotRequired[list["Step"]]
    decoders: NotRequired[list["Step"]]
    precompiled_charsmap: NotRequired[str]
    clean_text: NotRequired[bool]
    handle_chinese_chars: NotRequired[bool]
    strip_accents: NotRequired[bool | None]
    lowercase: NotRequired[bool]
    prefix: NotRequired[str]
    cleanup: NotRequired[bool]


class BpeModel(TypedDict):
    """vocab: text -> id; merges: pairs"""

    type: str
    dropout: float | None
    unk_token: str | None
    continuing_subword_prefix: str | None
    end_of_word_suffix: str | None
    fuse_unk: bool
    byte_fallback: bool
    ignore_merges: bool
    vocab: dict[str, int]
    merges: list[list[str]]


class UnigramModel(TypedDict):
    """vocab: [text, log-probability] in the order of ids"""

    type: str
    unk_id: int
    vocab: list[list[str | float]]
    byte_fallback: bool


class WordPieceModel(TypedDict):
    """vocab: text -> id"""

    type: str
    unk_token: str
    continuing_subword_prefix: str
    max_input_chars_per_word: int
    vocab: dict[str, int]


class Piece(TypedDict):
    """A special token or a text ("A", "B") in a template."""

    id: str
    type_id: int


class TemplatePart(TypedDict, total=False):
    """One of the two keys."""

    SpecialToken: Piece
    Sequence: Piece


class TemplateToken(TypedDict):
    id: str
    ids: list[int]
    tokens: list[str]


class Template(TypedDict):
    """A post-processor that puts special tokens around one text or a pair of texts."""

    type: str
    single: list[TemplatePart]
    pair: list[TemplatePart]
    special_tokens: dict[str, TemplateToken]


class TokenizerParts(TypedDict):
    """The keys of the document beyond those that are the same for all."""

    normalizer: Step | None
    pre_tokenizer: Step | None
    post_processor: Template | None
    decoder: Step
    model: BpeModel | UnigramModel | WordPieceModel


def prepend(token: str, token_id: int) -> Template:
    """The post-processor that puts one special token before the text."""
    special: TemplatePart = {"SpecialToken": {"id": token, "type_id": 0}}
    single: list[TemplatePart] = [special, {"Sequence": {"id": "A", "type_id": 0}}]
    return {
        "type": "TemplateProcessing",
        "single": single,
        "pair": [*single, special, {"Sequence": {"id": "B", "type_id": 0}}],
        "special_tokens": {token: {"id": token, "ids": [token_id], "tokens": [token]}},
    }

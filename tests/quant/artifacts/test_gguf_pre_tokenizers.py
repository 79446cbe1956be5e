"""Pre-tokenizers by name: each cuts as llama.cpp does, and is found again however a document spells it."""

import json
import os
from pathlib import Path
from random import Random

import pytest
from support.memory_source import MemorySource
from tokenizers import Tokenizer

from quant.artifacts.gguf_pre_tokenizers import PRE_TOKENIZERS
from quant.artifacts.gguf_reader import GGUFSource
from quant.artifacts.gguf_shards import read_shards
from quant.artifacts.gguf_tokenizer import metadata_from_tokenizer, tokenizer_from_metadata
from quant.artifacts.gguf_tokenizer_bpe import probe_texts
from quant.artifacts.gguf_writer import write_gguf
from quant.source import TokenizerInfo

VOCAB_SIZE = 2048
BYTE_LEVEL = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}
# Bytes of texts that every way cuts somewhere: letters of both cases, digits, signs, white space, three scripts.
PARTS = [
    *"aszB'.,!(\n\t  019",
    "'s",
    "'LL",
    "\u6f22",
    "\u0e31",
    "\u20ac",
    "\u0663",
    "  ",
    "\n\n",
    "iPhone",
    "1,234,567",
]
OF_ONE_CASE = ["\u00e9", "\u0411"]
# Parts that llama.cpp cuts elsewhere. If the case of letters counts, it takes letters outside ASCII for both cases and
# marks for signs, and for a few names it ignores the case. Its \d is a digit of ASCII.
BY_CASE = {name for name, row in PRE_TOKENIZERS.items() if any("Lu" in str(step) for step in row.steps)}
UNLIKE = {name: [*OF_ONE_CASE, "\u0e31"] for name in BY_CASE} | {"superbpe": ["\u0663"]}
for each in ("youtu", "tiny_aya", "cohere2moe", "kimi-k2"):
    UNLIKE[each] += [part for part in PARTS if part != part.lower()] + ["\u0663"]
for each in ("tiny_aya", "cohere2moe"):  # whose \b is another one there
    UNLIKE[each] += [part for part in PARTS if part.isspace() or part.isdigit() or "," in part or not part.isascii()]
BYTES_IN_PAIRS = 40


def document_of(steps, ignore_merges=False, normalizer=None):
    """A byte-level BPE in which any two of some bytes merge, in any order: a cut between two shows in most texts."""
    letters = Tokenizer.from_str(json.dumps(blank({"type": "BPE", "vocab": {}, "merges": []}))).pre_tokenizer
    spelled = [letters.pre_tokenize_str(part)[0][0] for part in [*PARTS, *OF_ONE_CASE]]
    symbols = sorted({letter for text in spelled for letter in text})[:BYTES_IN_PAIRS]
    pairs = [(one, other) for one in symbols for other in symbols]
    Random(1).shuffle(pairs)
    alphabet = sorted({letters.pre_tokenize_str(chr(code))[0][0][-1] for code in range(0x100)} | {*symbols})
    tokens = list(dict.fromkeys([*all_letters(letters), *alphabet, *("".join(pair) for pair in pairs)]))
    model = {"type": "BPE", "vocab": {token: i for i, token in enumerate(tokens)}, "merges": pairs}
    document = blank(model | {"ignore_merges": ignore_merges})
    return document | {"pre_tokenizer": steps, "normalizer": normalizer}


def blank(model):
    rest = dict.fromkeys(("truncation", "padding", "normalizer", "post_processor"))
    return {"version": "1.0", "added_tokens": [], **rest, "pre_tokenizer": BYTE_LEVEL, "decoder": None, "model": model}


def all_letters(byte_level):
    """The printable characters of all bytes, from texts that hold each of them."""
    texts = [chr(code) for code in (*range(0x800), *range(0x800, 0xD800, 0x40), *range(0x10000, 0x110000, 0x1000))]
    return sorted({letter for text in texts for letter in byte_level.pre_tokenize_str(text)[0][0]})


def info_of(document):
    return TokenizerInfo(json.dumps(document), None, 0, False)


def sequence(row):
    return {"type": "Sequence", "pretokenizers": list(row.steps)}


def texts_for(name, count=300):
    random = Random(name)
    parts = [part for part in (*PARTS, *OF_ONE_CASE) if part not in UNLIKE.get(name, ())]
    return ["".join(random.choice(parts) for _ in range(random.randint(1, 12))) for _ in range(count)]


BYTE_WISE = [name for name, row in PRE_TOKENIZERS.items() if row.bytes]


@pytest.mark.parametrize("name", BYTE_WISE)
def test_words_are_cut_as_in_llama_cpp(tmp_path, monkeypatch, name):
    llama_cpp = pytest.importorskip("llama_cpp", reason="llama-cpp-python is not installed")
    row = PRE_TOKENIZERS[name]

    def named(*given):
        return metadata_from_tokenizer(*given) | {"tokenizer.ggml.pre": name}

    monkeypatch.setattr("quant.artifacts.gguf_writer.metadata_from_tokenizer", named)
    plain = PRE_TOKENIZERS["gpt-2"]
    path = tmp_path / "x.gguf"
    source = MemorySource(info_of(document_of(sequence(plain))), vocab_size=VOCAB_SIZE, num_hidden_layers=1)
    write_gguf(source, path, name="x")
    ours = Tokenizer.from_str(GGUFSource(path).tokenizer.json)
    theirs = llama_cpp.Llama(str(path), vocab_only=True, verbose=False)
    for text in texts_for(name):
        expected = theirs.tokenize(text.encode(), add_bos=False, special=False)
        assert ours.encode(text, add_special_tokens=False).ids == expected, repr(text)
    assert row.ignore_merges == json.loads(GGUFSource(path).tokenizer.json)["model"]["ignore_merges"]


def name_of(steps, **options):
    return metadata_from_tokenizer(info_of(document_of(steps, **options)), VOCAB_SIZE, "x")["tokenizer.ggml.pre"]


@pytest.mark.parametrize("name", [name for name in BYTE_WISE if name != "default"])
def test_a_document_gets_the_name_of_its_own_way_back(name):
    row = PRE_TOKENIZERS[name]
    found = PRE_TOKENIZERS[name_of(sequence(row), ignore_merges=row.ignore_merges)]
    assert found.steps == row.steps and found.ignore_merges == row.ignore_merges


def split(regex):
    return {"type": "Split", "pattern": {"Regex": regex}, "behavior": "Isolated", "invert": False}


DIGITS = {"type": "Digits", "individual_digits": True}
QWEN = (
    r"(?:'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD]|'\u017f)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
SPELLINGS = {
    "qwen2, contractions spelled out": ("qwen2", [split(QWEN), BYTE_LEVEL]),
    "smollm, bytes first": ("smollm", [DIGITS, {**BYTE_LEVEL, "use_regex": True}]),
    "gpt-2, one step": ("gpt-2", [{**BYTE_LEVEL, "use_regex": True}]),
    "deepseek-coder, digits by class": (
        "deepseek-coder",
        [
            *map(split, (r"[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", "[\u4e00-\u9fa5\u0800-\u4e00\uac00-\ud7ff]+")),
            DIGITS,
            BYTE_LEVEL,
        ],
    ),
    "bloom, as a set in a set": (
        "bloom",
        [split(" ?[^(\\s|[.,!?\u2026\u3002\uff0c\u3001\u0964\u06d4\u060c])]+"), BYTE_LEVEL],
    ),
}


@pytest.mark.parametrize("name, steps", SPELLINGS.values(), ids=SPELLINGS)
def test_another_spelling_of_the_same_way(name, steps):
    assert name_of({"type": "Sequence", "pretokenizers": steps}) == name


def test_composed_characters_come_back(tmp_path):
    """Qwen's tokenizers compose; GGUF has no word for it but ours, and llama.cpp goes without."""
    steps = sequence(PRE_TOKENIZERS["qwen2"])
    before = info_of(document_of(steps, normalizer={"type": "NFC"}))
    path = tmp_path / "x.gguf"
    write_gguf(MemorySource(before, vocab_size=VOCAB_SIZE, num_hidden_layers=1), path, name="x")
    one, other = (Tokenizer.from_str(info.json) for info in (before, GGUFSource(path).tokenizer))
    for text in ["cafe\u0301 \u212b", *probe_texts()[:200]]:
        assert one.encode(text).ids == other.encode(text).ids


def test_a_file_without_a_name_is_cut_like_llama_cpp_with_a_warning(caplog):
    metadata = metadata_from_tokenizer(info_of(document_of(sequence(PRE_TOKENIZERS["gpt-2"]))), VOCAB_SIZE, "x")
    del metadata["tokenizer.ggml.pre"]
    numbers = {"tokenizer.ggml.token_type"}
    import numpy as np

    as_read = {key: np.array(value) if key in numbers else value for key, value in metadata.items()}
    info = tokenizer_from_metadata(as_read, VOCAB_SIZE, "old.gguf")
    assert json.loads(info.json)["pre_tokenizer"] == sequence(PRE_TOKENIZERS["default"])
    assert "old.gguf does not name its pre-tokenizer" in caplog.text


VOCABULARIES = Path(os.environ.get("LLAMA_VOCABULARIES", "models"))
SEPARATOR = "\n__ggml_vocab_test__\n"
PUBLISHED = sorted(path.name for path in VOCABULARIES.glob("ggml-vocab-*.gguf") if Path(f"{path}.inp").exists())


@pytest.mark.parametrize(
    "name",
    PUBLISHED
    or [pytest.param("", marks=pytest.mark.skip("LLAMA_VOCABULARIES: no folder of llama.cpp's vocabulary files"))],
)
def test_published_vocabularies_give_the_tokens_that_llama_cpp_expects(name):
    path = VOCABULARIES / name
    metadata = read_shards(path).metadata
    info = tokenizer_from_metadata(metadata, len(metadata["tokenizer.ggml.tokens"]), name)
    tokenizer = Tokenizer.from_str(info.json)
    texts = Path(f"{path}.inp").read_bytes().decode().split(SEPARATOR)
    expected = Path(f"{path}.out").read_text().split("\n")
    assert len(texts) in (len(expected), len(expected) - 1)
    for text, ids in zip(texts, expected, strict=False):
        assert tokenizer.encode(text, add_special_tokens=False).ids == [int(token) for token in ids.split()], repr(text)


SPECIAL = (2, 3, 4)  # unknown, control, user-defined
AROUND = ("{0}", "a{0}b", "a {0} b", "{0} b", "a\n{0}\nb", "{0}{0}")


@pytest.mark.parametrize("name", PUBLISHED or [pytest.param("", marks=pytest.mark.skip("LLAMA_VOCABULARIES"))])
def test_control_tokens_in_a_text_are_read_as_llama_cpp_parses_them(name):
    """As its server and its `completion` do; its perplexity takes them as plain text."""
    llama_cpp = pytest.importorskip("llama_cpp")
    metadata = read_shards(VOCABULARIES / name).metadata
    tokens = metadata["tokenizer.ggml.tokens"]
    tokenizer = Tokenizer.from_str(tokenizer_from_metadata(metadata, len(tokens), name).json)
    theirs = llama_cpp.Llama(str(VOCABULARIES / name), vocab_only=True, verbose=False)
    special = [
        token for token, kind in zip(tokens, metadata["tokenizer.ggml.token_type"], strict=True) if kind in SPECIAL
    ]
    for text in (around.format(token) for token in special[:100] for around in AROUND):
        ids = tokenizer.encode(text, add_special_tokens=False).ids
        assert ids == theirs.tokenize(text.encode(), add_bos=False, special=True), text

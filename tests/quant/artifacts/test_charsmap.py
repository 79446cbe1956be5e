"""SentencePiece's table of replaced characters: as in a textbook, as in llama.cpp, and refused if it is broken."""

import base64
import json
import os
import struct
import unicodedata
from functools import cache
from pathlib import Path
from random import Random

import pytest
from support.charsmap_table import nmt_nfkc, replaced, table
from support.memory_source import MemorySource
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

from quant.artifacts import charsmap
from quant.artifacts.gguf_reader import GGUFSource
from quant.artifacts.gguf_shards import read_shards
from quant.artifacts.gguf_tokenizer import metadata_from_tokenizer, tokenizer_from_metadata
from quant.artifacts.gguf_tokenizer_spm import SPACE
from quant.artifacts.gguf_writer import write_gguf
from quant.artifacts.tokenizer_json import load_tokenizer
from quant.errors import InputError
from quant.source import TokenizerInfo

ENTRIES = nmt_nfkc()
TABLE = table(ENTRIES)
VOCAB_SIZE = 512
LETTERS = [*"aeouyxAEOUY \u00ea\u00e2\u01b0\uff41\uff25\uff5e\u304b\u306f\uff76\u1100\u1109\uac00\ufb01\u2581\u3000"]
MARKS = [
    *"\u0300\u0301\u0302\u0303\u0306\u0309\u031b\u0323\u3099\u309a\uff9e\u1161\u116e\u11a8\u11ab\u200d\u0331\u0001"
]
# Published forms, in this order: T5 and XLM-R, SpmConverter of transformers 4, of older versions, mBART.
FORMS = {
    "words": ([], [pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Metaspace()]),
    "stripped": (
        [normalizers.Strip(left=False, right=True), normalizers.Replace(Regex(" {2,}"), SPACE)],
        [pre_tokenizers.Metaspace()],
    ),
    "runs": ([normalizers.Replace(Regex(" {2,}"), " ")], [pre_tokenizers.Metaspace(prepend_scheme="first")]),
    "plain": ([], [pre_tokenizers.Metaspace()]),
}


def odd_texts(count: int, seed: int = 0):
    """Accents in and out of order, on letters that have them composed and on others."""
    rng = Random(seed)
    for _ in range(count):
        yield "".join(rng.choice(rng.choice([LETTERS, MARKS])) for _ in range(rng.randrange(1, 12)))


def normalized(steps) -> normalizers.Normalizer:
    document = {"type": "Sequence", "normalizers": list(steps)}
    tokenizer = json.loads(Tokenizer(models.Unigram([("a", 0.0)], 0, False)).to_str())
    return Tokenizer.from_str(json.dumps(tokenizer | {"normalizer": document})).normalizer


def test_entries_come_back():
    assert charsmap.entries(TABLE) == ENTRIES
    assert charsmap.growth(TABLE) == 11  # U+FDFA, 18 letters for one


def test_texts_are_replaced_as_in_a_textbook():
    normalizer = normalized(charsmap.steps(TABLE))
    for text in [*ENTRIES, *odd_texts(2000)]:
        assert normalizer.normalize_str(text) == replaced(text, ENTRIES), ascii(text)


@pytest.mark.parametrize("entries", [{"A": "a", "B": ""}, {"x": "yy", "\u0001": " "}], ids=["cases", "mark in use"])
def test_a_table_without_sequences(entries):
    normalizer = normalized(charsmap.steps(table(entries)))
    for text in ["A\u0301B", "AxB\u0323\u0301x", "x\u0301", "\uff41 plain \u00bd"]:
        assert normalizer.normalize_str(text) == replaced(text, entries), ascii(text)


def test_sequences_that_nfkc_composes_otherwise_are_refused():
    with pytest.raises(InputError, match="1 sequences, and NFKC composes sequences otherwise"):
        charsmap.steps(table({"``": '"'}))


def unit(label=0, offset=0, leaf=False) -> int:
    return offset << 10 | leaf << 8 | label


def raw(units: dict[int, int], texts: bytes = b"x\0", size: int = 512) -> bytes:
    return struct.pack(f"<I{size}I", 4 * size, *(units.get(place, 0) for place in range(size))) + texts


A = 256 ^ ord("a")  # where the root below looks for "a"
BROKEN = {
    "empty": (b"", "0 bytes of units in 0"),
    "short": (b"\1\0", "1 bytes of units in 2"),
    "no units": (struct.pack("<I", 0) + b"x\0", "0 bytes of units in 6"),
    "units beyond the end": (struct.pack("<II", 4096, 0), "4096 bytes of units in 8"),
    "half a unit": (struct.pack("<II", 3, 0) + b"x\0", "3 bytes of units"),
    "no block": (raw({}, size=4), "a node at unit 255 of 4"),
    "root beyond the end": (raw({0: unit(offset=4096)}), "a node at unit 4351 of 512"),
    "child beyond the end": (raw({0: unit(offset=256), A: unit(ord("a"), 1 << 20, True)}), "of 512"),
    "loop": (raw({0: unit(offset=256), A: unit(ord("a"), ord("a"))}), "a loop"),
    "text beyond the end": (
        raw({0: unit(offset=256), A: unit(ord("a"), A, True), 0 ^ 0: unit(offset=256) | 0}, b"x\0"),
        "a text at byte",
    ),
    "text without an end": (raw({0: unit(offset=256), A: unit(ord("a"), A ^ 300, True)}, b"xyz"), "without an end"),
    "text in half a character": (
        raw({0: unit(offset=256), A: unit(ord("a"), A ^ 300, True), 300: 1}, "\u00e9\0".encode()),
        "a text that is not UTF-8",
    ),
    "key of half a character": (
        raw({0: unit(offset=256), 256 ^ 0xC3: unit(0xC3, 256 ^ 0xC3 ^ 300, True), 300: 0}),
        "an entry for half a character",
    ),
}


@pytest.mark.parametrize("name", BROKEN)
def test_broken_tables_are_refused(name, texts):
    """In a GGUF file and in a tokenizer.json, before the library could panic."""
    table_of_it, words = BROKEN[name]
    metadata = metadata_from_tokenizer(unigram(texts), VOCAB_SIZE, "x") | {
        "tokenizer.ggml.precompiled_charsmap": list(table_of_it)
    }
    with pytest.raises(InputError, match=f"^x.gguf: the table of replaced characters is broken: .*{words}"):
        tokenizer_from_metadata(as_read(metadata), VOCAB_SIZE, "x.gguf")
    if table_of_it:
        document = json.loads(unigram(texts).json)
        part = {"type": "Precompiled", "precompiled_charsmap": base64.b64encode(table_of_it).decode()}
        with pytest.raises(InputError, match=r"^tokenizer\.json: not a tokenizer that"):
            load_tokenizer(json.dumps(document | {"normalizer": part}), "tokenizer.json")


def as_read(metadata):
    """Lists of numbers arrive as arrays, bytes as such of bytes."""
    import numpy as np

    kinds = {"tokenizer.ggml.precompiled_charsmap": np.uint8}
    return {
        key: np.array(list(value), kinds.get(key))
        if isinstance(value, list | bytes) and not (value and isinstance(value[0], str))
        else value
        for key, value in metadata.items()
    }


def unigram(texts, form: str = "words") -> TokenizerInfo:
    """Trained on the texts, with the table and the steps of a published form."""
    return _unigram(tuple(texts), form)


@cache
def _unigram(texts, form) -> TokenizerInfo:
    tokenizer = Tokenizer(models.Unigram())
    steps, pre = FORMS[form]
    tokenizer.normalizer = normalizers.Sequence([normalizers.Precompiled(TABLE), *steps])
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(pre)
    tokenizer.decoder = decoders.Metaspace()
    specials = [AddedToken(text, special=True, normalized=False) for text in ("<unk>", "<s>")]
    trainer = trainers.UnigramTrainer(vocab_size=300, special_tokens=specials, unk_token="<unk>", show_progress=False)
    accented = ["\u00e9t\u00e9 ti\u1ebfng vi\u1ec7t r\u1ea5t \u0111\u1eb9p \uac01 \u304c \u00ea\u0323"] * 9
    tokenizer.train_from_iterator([*texts, *accented], trainer)
    return TokenizerInfo(tokenizer.to_str(), 1, None, False)


def through_file(tmp_path, info):
    path = tmp_path / "x.gguf"
    write_gguf(MemorySource(info, vocab_size=VOCAB_SIZE, num_hidden_layers=1), path, name="x")
    return GGUFSource(path).tokenizer, path


SPACED = ["", "a", "the  cat\tsat ", "  the cat ", " a", "\u3000the\u2581cat", "to\u00a0be", "the\ncat\u200b \uff5e"]


@pytest.mark.parametrize("form", FORMS)
def test_published_forms_come_back(tmp_path, texts, form):
    before = unigram(texts, form)
    after, _ = through_file(tmp_path, before)
    one, other = Tokenizer.from_str(before.json), Tokenizer.from_str(after.json)
    for text in [*texts, *SPACED, *odd_texts(200)]:
        assert other.encode(text).ids == one.encode(text).ids, ascii(text)


@pytest.mark.parametrize("form", FORMS)
def test_llama_cpp_cuts_published_forms_the_same(tmp_path, texts, form):
    """Texts of composed characters. llama.cpp and SentencePiece compose others, and drop a space at the end."""
    llama_cpp = pytest.importorskip("llama_cpp")
    before = unigram(texts, form)
    _, path = through_file(tmp_path, before)
    theirs = llama_cpp.Llama(str(path), vocab_only=True, verbose=False)
    mine = Tokenizer.from_str(before.json)
    both = [*texts, *(text.strip() for text in SPACED), "\uff41\u00e9 \u1ebf\ufb01"]
    for text in [text for text in both if not (form == "plain" and text.startswith(" "))]:
        assert theirs.tokenize(text.encode(), add_bos=False, special=False) == mine.encode(text).ids, ascii(text)


@pytest.mark.parametrize("flags", [(True, True), (True, False), (False, False), (False, True), (None, None)])
def test_llama_cpp_cuts_odd_texts_of_others_the_same(tmp_path, texts, monkeypatch, flags):
    """Files without the key of ours: spaces before a text, and runs of them, as the file says."""
    llama_cpp = pytest.importorskip("llama_cpp")

    def of_others(*given):
        metadata = metadata_from_tokenizer(*given)
        metadata.pop("qbench.tokenizer.steps")
        keys = dict(zip(("add_space_prefix", "remove_extra_whitespaces"), flags, strict=True))
        metadata |= {f"tokenizer.ggml.{key}": value for key, value in keys.items()}
        return {key: value for key, value in metadata.items() if value is not None}

    monkeypatch.setattr("quant.artifacts.gguf_writer.metadata_from_tokenizer", of_others)
    after, path = through_file(tmp_path, unigram(texts))
    theirs = llama_cpp.Llama(str(path), vocab_only=True, verbose=False)
    mine = Tokenizer.from_str(after.json)
    for text in [*texts, *SPACED, "   ", "a [PAD400]", *odd_texts(400)]:
        assert theirs.tokenize(text.encode(), add_bos=False, special=False) == mine.encode(text).ids, ascii(text)
    monkeypatch.undo()
    again, _ = through_file(tmp_path, after)
    assert json.loads(again.json)["normalizer"] == json.loads(after.json)["normalizer"]


@pytest.mark.parametrize(
    "change, words",
    [
        pytest.param(lambda d: d["normalizer"]["normalizers"].append({"type": "Lowercase"}), "more than", id="case"),
        pytest.param(lambda d: d["normalizer"]["normalizers"].insert(0, {"type": "NFD"}), "more than", id="before it"),
        pytest.param(lambda d: d.update(pre_tokenizer={"type": "Whitespace"}), "more than", id="words"),
        pytest.param(lambda d: d["model"]["vocab"].append([f"a{SPACE}b", -9.0]), "more than", id="a piece of words"),
    ],
)
def test_forms_without_a_place_in_gguf_are_refused(texts, change, words):
    before = unigram(texts)
    document = json.loads(before.json)
    change(document)
    with pytest.raises(InputError, match=words):
        metadata_from_tokenizer(TokenizerInfo(json.dumps(document), 1, None, False), VOCAB_SIZE, "x")


@pytest.mark.parametrize("value", ["no JSON", "[1]", '[{"type": "Lowercas"}, null]', '["x", 3]'])
def test_broken_steps_of_a_file_are_refused(texts, value):
    metadata = as_read(metadata_from_tokenizer(unigram(texts), VOCAB_SIZE, "x")) | {"qbench.tokenizer.steps": value}
    with pytest.raises(InputError):
        load_tokenizer(tokenizer_from_metadata(metadata, VOCAB_SIZE, "x.gguf").json, "x.gguf")


VOCABULARIES = Path(os.environ.get("LLAMA_VOCABULARIES", "models"))
XLM_R, TEXTS = VOCABULARIES / "ggml-vocab-nomic-bert-moe.gguf", VOCABULARIES / "ggml-vocab-llama-bpe.gguf.inp"


@pytest.mark.skipif(not XLM_R.exists(), reason="LLAMA_VOCABULARIES: no folder of llama.cpp's vocabulary files")
def test_the_published_vocabulary_gives_the_tokens_of_llama_cpp():
    """llama.cpp has no expected tokens of this file, so its texts for another one are cut by both."""
    llama_cpp = pytest.importorskip("llama_cpp")
    metadata = read_shards(XLM_R).metadata
    info = tokenizer_from_metadata(metadata, len(metadata["tokenizer.ggml.tokens"]), XLM_R.name)
    theirs = llama_cpp.Llama(str(XLM_R), vocab_only=True, verbose=False)
    mine = Tokenizer.from_str(info.json)
    texts = TEXTS.read_bytes().decode().split("\n__ggml_vocab_test__\n")
    for text in [*texts, *(unicodedata.normalize("NFD", text) for text in texts), *odd_texts(1000)]:
        ids = mine.encode(text, add_special_tokens=False).ids
        assert ids == theirs.tokenize(text.encode(), add_bos=False, special=True), ascii(text)

"""WordPiece through GGUF and back: the same ids, also in llama.cpp, and one line for each refused tokenizer."""

import json
from random import Random

import numpy as np
import pytest
from support.memory_source import MemorySource
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors

from quant.artifacts.gguf_reader import GGUFSource
from quant.artifacts.gguf_tokenizer import metadata_from_tokenizer, tokenizer_from_metadata
from quant.artifacts.gguf_writer import write_gguf
from quant.artifacts.hf_reader import HFSource
from quant.artifacts.hf_writer import write_hf
from quant.errors import InputError
from quant.source import TokenizerInfo

VOCAB_SIZE = 320
SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
PIECES = [
    *"abcdefghijklmnopqrstuvwxyz0123456789.,!?'-[]$+\u6f22\u5b57\u00df\u0436",
    "the",
    "cat",
    "state",
    "The",
    "\u00e9t\u00e9",
]
TEXTS = [
    *(
        "",
        "The cat, the state!",
        "  caf\u00e9  \u00c9T\u00c9 e\u0301te\u0301 ",
        "don't 3.50$ a+b",
        "\u6f22\u5b57the\u6f22",
    ),
    *("a\tb\nc\u00a0d\u3000e", "[CLS] the [SEP]", "Stra\u00dfe \u0416", "zzq\U0001f642 the", "a\u0000b\ufffdc\u200bd"),
]


def word_piece(**changes) -> TokenizerInfo:
    """A letter begins a word and goes on in it. changes: of BertNormalizer"""
    goes_on = [f"##{piece}" for piece in PIECES if piece.isalnum()]
    vocab = {token: number for number, token in enumerate([*SPECIAL, *PIECES, *goes_on])}
    tokenizer = Tokenizer(models.WordPiece(vocab, unk_token="[UNK]", max_input_chars_per_word=100))
    tokenizer.normalizer = normalizers.BertNormalizer(**changes)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece()
    tokenizer.add_special_tokens(SPECIAL)
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A", pair="[CLS] $A [CLS] $B", special_tokens=[("[CLS]", 2)]
    )
    return TokenizerInfo(tokenizer.to_str(), 2, 3, True)


def through_file(tmp_path, info):
    path = tmp_path / "x.gguf"
    write_gguf(MemorySource(info, vocab_size=VOCAB_SIZE, num_hidden_layers=1), path, name="x")
    return GGUFSource(path).tokenizer, path


def texts():
    rng = Random(0)
    letters = [*"abc  .,'-AB\u00c9\u00e9\u0301\u6f22\u0436\u0416\u00df$+\n\u2019\u20ac\u00b5\u1e9e"]
    return [*TEXTS, *("".join(rng.choices(letters, k=rng.randrange(12))) for _ in range(400))]


CASES = {
    "uncased": {},
    "cased": {"lowercase": False},
    "accents": {"strip_accents": False},
    "cased, no accents": {"lowercase": False, "strip_accents": True},
}


@pytest.mark.parametrize("case", CASES)
def test_it_comes_back(tmp_path, case, caplog):
    before = word_piece(**CASES[case])
    after, _ = through_file(tmp_path, before)
    one, other = Tokenizer.from_str(before.json), Tokenizer.from_str(after.json)
    for text in texts():
        ids = one.encode(text).ids
        assert other.encode(text).ids == ids, ascii(text)
        assert other.decode(ids) == one.decode(ids)
    assert (after.bos_token_id, after.eos_token_id, after.add_bos) == (2, 3, True)
    assert ("which older versions of llama.cpp do not" in caplog.text) == (case != "uncased")


@pytest.mark.parametrize("case", CASES)
def test_llama_cpp_cuts_it_the_same(tmp_path, case):
    llama_cpp = pytest.importorskip("llama_cpp")
    before = word_piece(**CASES[case])
    _, path = through_file(tmp_path, before)
    theirs = llama_cpp.Llama(str(path), vocab_only=True, verbose=False)
    mine = Tokenizer.from_str(before.json)
    for text in texts():
        ids = mine.encode(text, add_special_tokens=False).ids
        assert theirs.tokenize(text.encode(), add_bos=False, special=True) == ids, ascii(text)
    assert theirs.tokenize(b"the cat", add_bos=True, special=True) == [2, *mine.encode("the cat").ids[1:], 3]


def test_a_directory_of_the_file_is_read_again(tmp_path):
    """From GGUF to a Hugging Face directory and back."""
    before = word_piece()
    after, path = through_file(tmp_path, before)
    (tmp_path / "directory").mkdir()
    write_hf(GGUFSource(path), tmp_path / "directory")
    again = HFSource(tmp_path / "directory").tokenizer
    assert json.loads(again.json)["model"] == json.loads(after.json)["model"]
    assert (again.bos_token_id, again.eos_token_id, again.add_bos) == (2, 3, True)


def as_read(metadata):
    return {
        key: np.array(value) if isinstance(value, list) and not isinstance(value[0], str) else value
        for key, value in metadata.items()
    }


def test_a_file_of_llama_cpps_converter():
    """It has only control tokens as they are, the usual ids of BERT, and no key for the beginning of a text."""
    tokens = [f"[unused{number}]" for number in range(110)]
    tokens[100:104] = ["[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    stored = [token if 100 <= number < 104 else f"\u2581{token}" for number, token in enumerate(tokens)]
    stored[104:] = ["\u2581the", "s", "\u2581cat", "\u2581.", "\u2581s", "\u2581[PAD109]"]
    types = [3 if 100 <= number < 104 else 1 for number in range(109)] + [5]
    metadata = {"tokenizer.ggml.model": "bert", "tokenizer.ggml.tokens": stored, "tokenizer.ggml.token_type": types}
    info = tokenizer_from_metadata(as_read(metadata), 110, "x.gguf")
    assert Tokenizer.from_str(info.json).encode("The cats. \u6f22").ids == [101, 104, 106, 105, 107, 100]
    assert (info.bos_token_id, info.add_bos) == (101, True)
    del metadata["tokenizer.ggml.token_type"]
    with pytest.raises(InputError, match="unknown_token_id names no token"):
        tokenizer_from_metadata(as_read(metadata | {"tokenizer.ggml.tokens": stored[:9]}), 9, "x.gguf")


@pytest.mark.parametrize(
    "change, words",
    [
        pytest.param(lambda d: d["normalizer"].update(clean_text=False), "clean_text", id="controls"),
        pytest.param(lambda d: d["normalizer"].update(handle_chinese_chars=False), "handle_chinese", id="ideographs"),
        pytest.param(lambda d: d.update(normalizer=None), "as BertNormalizer", id="no normalizer"),
        pytest.param(lambda d: d.update(pre_tokenizer={"type": "Whitespace"}), "BertPreTokenizer", id="words"),
        pytest.param(lambda d: d["model"].update(continuing_subword_prefix="@@"), "the prefix '##'", id="prefix"),
        pytest.param(lambda d: d["model"].update(max_input_chars_per_word=9), "up to 100 characters", id="length"),
        pytest.param(lambda d: d["model"]["vocab"].update({"##[SEP]": 200}), "in one way", id="two of one spelling"),
        pytest.param(lambda d: d["model"]["vocab"].update({"##": 200}), "as nothing", id="a token of nothing"),
    ],
)
def test_word_piece_without_a_place_in_gguf_is_refused(change, words):
    document = json.loads(word_piece().json)
    change(document)
    with pytest.raises(InputError, match=words):
        metadata_from_tokenizer(TokenizerInfo(json.dumps(document), 2, 3, True), VOCAB_SIZE, "x")


@pytest.mark.parametrize(
    "change, words",
    [
        ({"tokenizer.ggml.unknown_token_id": 4000}, "unknown_token_id names no token"),
        ({"tokenizer.ggml.tokens": ["a", "##a", "\u2581##a"]}, "has a text twice"),
    ],
)
def test_files_that_are_refused(change, words):
    metadata = as_read(metadata_from_tokenizer(word_piece(), VOCAB_SIZE, "x")) | change
    size = len(metadata["tokenizer.ggml.tokens"])
    metadata["tokenizer.ggml.token_type"] = np.ones(size, int)
    with pytest.raises(InputError, match=words):
        tokenizer_from_metadata(metadata, size, "x.gguf")

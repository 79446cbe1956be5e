"""Tokenizers through GGUF and back: the same ids for every text, and the ids of llama.cpp."""

import json
from dataclasses import replace

import gguf
import pytest
from support.data import SHARED, STORIES260K, needs_stories
from support.memory_source import MemorySource
from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

from quant.artifacts.gguf_pre_tokenizers import PRE_TOKENIZERS
from quant.artifacts.gguf_reader import GGUFSource
from quant.artifacts.gguf_tokenizer import metadata_from_tokenizer, tokenizer_from_metadata
from quant.artifacts.gguf_tokenizer_spm import SPACE
from quant.artifacts.gguf_writer import write_gguf
from quant.artifacts.hf_reader import HFSource
from quant.errors import InputError
from quant.source import TokenizerInfo


def through_file(tmp_path, info):
    vocab_size = 512
    path = tmp_path / "x.gguf"
    write_gguf(MemorySource(info, vocab_size=vocab_size, num_hidden_layers=1), path, name="x")
    return GGUFSource(path).tokenizer, path


def assert_same_ids(before: TokenizerInfo, after: TokenizerInfo, texts):
    assert (after.bos_token_id, after.eos_token_id, after.add_bos) == (
        before.bos_token_id,
        before.eos_token_id,
        before.add_bos,
    )
    one, other = Tokenizer.from_str(before.json), Tokenizer.from_str(after.json)
    for text in texts:
        ids = one.encode(text).ids
        assert other.encode(text).ids == ids
        assert other.decode(ids) == one.decode(ids)


@needs_stories
def test_stories_come_back_whole(tmp_path, texts):
    before = HFSource(STORIES260K).tokenizer
    after, _ = through_file(tmp_path, before)
    assert json.loads(after.json) == json.loads(before.json)
    assert_same_ids(before, after, texts)


def test_byte_level_bpe_comes_back(tmp_path, byte_level_tokenizer, texts):
    after, _ = through_file(tmp_path, byte_level_tokenizer)
    assert_same_ids(byte_level_tokenizer, after, [*texts, "a<|end|>b"])


def test_a_chat_template_comes_back(tmp_path, byte_level_tokenizer):
    after, _ = through_file(tmp_path, replace(byte_level_tokenizer, chat_template="{{ messages }}"))
    assert after.chat_template == "{{ messages }}"


def llama_ids(path, text, add_bos):
    llama_cpp = pytest.importorskip("llama_cpp")
    model = llama_cpp.Llama(str(path), vocab_only=True, verbose=False)
    return model.tokenize(text.encode(), add_bos=add_bos, special=False)


@needs_stories
@pytest.mark.parametrize("index", range(4))
def test_llama_cpp_cuts_stories_the_same(tmp_path, texts, index):
    before = HFSource(STORIES260K).tokenizer
    _, path = through_file(tmp_path, before)
    assert llama_ids(path, texts[index], True) == Tokenizer.from_str(before.json).encode(texts[index]).ids


@pytest.mark.parametrize("index", range(4))
def test_llama_cpp_cuts_byte_level_the_same(tmp_path, byte_level_tokenizer, texts, index):
    _, path = through_file(tmp_path, byte_level_tokenizer)
    expected = Tokenizer.from_str(byte_level_tokenizer.json).encode(texts[index]).ids
    assert llama_ids(path, texts[index], False) == expected


@pytest.mark.parametrize("pre, expected", [("gpt-2", False), ("llama-bpe", True), ("smollm", False)])
def test_bos_without_a_key_in_the_file_matches_llama_cpp(tmp_path, byte_level_tokenizer, monkeypatch, pre, expected):
    """Files of Llama 3 of 2024 have no add_bos_token."""
    document = json.loads(byte_level_tokenizer.json)
    row = PRE_TOKENIZERS[pre]
    document["pre_tokenizer"] = {"type": "Sequence", "pretokenizers": list(row.steps)}
    document["model"]["ignore_merges"] = row.ignore_merges

    def without_key(*given):
        metadata = metadata_from_tokenizer(*given)
        del metadata["tokenizer.ggml.add_bos_token"]
        return metadata

    monkeypatch.setattr("quant.artifacts.gguf_writer.metadata_from_tokenizer", without_key)
    after, path = through_file(tmp_path, TokenizerInfo(json.dumps(document), 1, 0, False))
    assert after.add_bos == expected
    llama_cpp = pytest.importorskip("llama_cpp")
    theirs = llama_cpp.Llama(str(path), vocab_only=True, verbose=False)
    assert theirs._model.add_bos_token() == expected
    text = "Hello, world"
    assert (
        theirs.tokenize(text.encode(), add_bos=True, special=False) == Tokenizer.from_str(after.json).encode(text).ids
    )


@needs_stories
@pytest.mark.parametrize(
    "change",
    [{"bos_token_id": None}, {"bos_token_id": None, "eos_token_id": None}, {"bos_token_id": 2**32 - 1}],
    ids=["no BOS", "no BOS, no EOS", "BOS of no token"],
)
def test_bos_and_eos_of_a_file_without_their_keys_match_llama_cpp(tmp_path, monkeypatch, change):
    """llama.cpp begins a text in token 1 and ends it in token 2, as files of the first Llama models need it."""

    def changed(*given):
        metadata = metadata_from_tokenizer(*given) | {f"tokenizer.ggml.{key}": value for key, value in change.items()}
        return {key: value for key, value in metadata.items() if value is not None}

    monkeypatch.setattr("quant.artifacts.gguf_writer.metadata_from_tokenizer", changed)
    after, path = through_file(tmp_path, HFSource(STORIES260K).tokenizer)
    assert (after.bos_token_id, after.eos_token_id, after.add_bos) == (1, 2, True)
    ids = Tokenizer.from_str(after.json).encode("Once upon").ids
    assert ids[0] == 1 and ids == llama_ids(path, "Once upon", True)


@needs_stories
def test_bytes_of_a_file_without_token_types_stay_bytes():
    metadata = as_read(metadata_from_tokenizer(HFSource(STORIES260K).tokenizer, 512, "x"))
    before = tokenizer_from_metadata(metadata, 512, "x")
    del metadata["tokenizer.ggml.token_type"]
    after = tokenizer_from_metadata(metadata, 512, "x")
    texts = ["a \U0001f642", "\u6f22"]
    one, other = Tokenizer.from_str(before.json), Tokenizer.from_str(after.json)
    assert [other.encode(text).ids for text in texts] == [one.encode(text).ids for text in texts]


@pytest.mark.parametrize("kind", [1, 4], ids=["normal", "user defined"])
def test_an_end_of_a_turn_is_a_control_token_of_any_type(byte_level_tokenizer, kind):
    """llama.cpp overrides the type, which some converters get wrong."""
    metadata = as_read(metadata_from_tokenizer(byte_level_tokenizer, 512, "x"))
    token = metadata["tokenizer.ggml.tokens"].index("<|end|>")
    metadata["tokenizer.ggml.token_type"][token] = kind
    after = Tokenizer.from_str(tokenizer_from_metadata(metadata, 512, "x").json)
    assert token in after.encode("a<|end|>b").ids and "<|end|>" not in after.decode([token])


def test_a_vocabulary_of_bytes_without_merges_opens_in_llama_cpp(tmp_path, texts):
    """llama.cpp wants the list of merges although it is empty, which the gguf package does not write."""
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(models.BPE({letter: i for i, letter in enumerate(letters)}, []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    before = TokenizerInfo(tokenizer.to_str(), None, None, False)
    after, path = through_file(tmp_path, before)
    both = [*texts, "", " a  b\n", "\u6f22 \U0001f642"]
    assert_same_ids(before, after, both)
    assert [llama_ids(path, text, False) for text in both] == [tokenizer.encode(text).ids for text in both]
    assert gguf.GGUFReader(path).fields["tokenizer.ggml.merges"].contents() == []


GPT2 = SHARED / "models" / "tokenizers"
WIKITEXT = SHARED / "corpora" / "wikitext-2-raw" / "wiki.valid.raw"


@pytest.mark.skipif(not (GPT2.exists() and WIKITEXT.exists()), reason="shared/data has no GPT-2 tokenizer and text")
def test_gpt2_cuts_real_text_the_same(tmp_path):
    """50257 tokens; 200 kB of Wikipedia, through us and through llama.cpp."""
    model = models.BPE.from_file(*(str(next(GPT2.rglob(name))) for name in ("*vocab.json", "*merges.txt")))
    tokenizer = Tokenizer(model)
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    before = TokenizerInfo(tokenizer.to_str(), None, None, False)
    path = tmp_path / "x.gguf"
    shape = {"hidden_size": 8, "head_dim": 2, "intermediate_size": 8, "num_hidden_layers": 1}
    write_gguf(MemorySource(before, vocab_size=50304, **shape), path, name="x")  # 47 ids without a token
    text = WIKITEXT.read_text(encoding="utf-8")[:200_000]
    ids = tokenizer.encode(text).ids
    assert Tokenizer.from_str(GGUFSource(path).tokenizer.json).encode(text).ids == ids
    assert llama_ids(path, text, False) == ids


WORDS = {"type": "WordLevel", "unk_token": "[UNK]", "vocab": {"[UNK]": 0}}


def change_json(info, change):
    document = json.loads(info.json)
    change(document)
    return TokenizerInfo(json.dumps(document), info.bos_token_id, info.eos_token_id, info.add_bos)


@pytest.mark.parametrize(
    "change, words",
    [
        pytest.param(lambda d: d.update(normalizer={"type": "NFD"}), "none but NFC", id="normalizer"),
        pytest.param(lambda d: d.update(pre_tokenizer=None), "none of the 91 ways known", id="no pre-tokenizer"),
        pytest.param(lambda d: d.update(model=WORDS), "model is 'WordLevel', and GGUF holds", id="whole words"),
        pytest.param(lambda d: d["model"].update(type="Unigram"), "the tokenizers library reads", id="no Unigram"),
        pytest.param(lambda d: d["model"]["vocab"].update(x=512), "the embedding has 512 rows", id="id past the end"),
        pytest.param(lambda d: d["model"].update(merges=["a b c", 3]), "the tokenizers library reads", id="merges"),
    ],
)
def test_tokenizers_that_gguf_cannot_hold_are_refused(byte_level_tokenizer, change, words):
    with pytest.raises(InputError, match=words):
        metadata_from_tokenizer(change_json(byte_level_tokenizer, change), 512, "x")


def test_sentencepiece_without_byte_fallback_comes_back(tmp_path):
    space = "\u2581"
    pieces = ["<unk>", space, *"athe,", f"{space}t", "he", f"{space}the"]
    merges = [(space, "t"), ("h", "e"), (f"{space}t", "he")]
    model = models.BPE({piece: i for i, piece in enumerate(pieces)}, merges, unk_token="<unk>", fuse_unk=True)
    tokenizer = Tokenizer(model)
    tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend(space), normalizers.Replace(" ", space)])
    fuse = [decoders.Replace(space, " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    tokenizer.decoder = decoders.Sequence(fuse)
    tokenizer.add_special_tokens(["<unk>"])
    before = TokenizerInfo(tokenizer.to_str(), None, None, False)
    after, _ = through_file(tmp_path, before)
    assert_same_ids(before, after, ["the hat, the heat", "a", "", "xyz the", "  the"])


ENDS, RUNS = normalizers.Replace(Regex(r"\A +| +\z"), ""), normalizers.Replace(Regex(" +"), " ")
PREPEND, REPLACE = normalizers.Prepend(SPACE), normalizers.Replace(" ", SPACE)
NORMALIZERS = {"prefix": [PREPEND, REPLACE], "no prefix": [REPLACE], "one space": [ENDS, RUNS, PREPEND, REPLACE]}


def unigram(texts, steps) -> TokenizerInfo:
    """Trained on the texts; `steps` of its normalizer, or None for a pre-tokenizer that cuts words."""
    tokenizer = Tokenizer(models.Unigram())
    if steps is None:
        tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    else:
        tokenizer.normalizer = normalizers.Sequence(steps)
    strip = [] if steps is not None and PREPEND not in steps else [decoders.Strip(" ", 1, 0)]
    tokenizer.decoder = decoders.Sequence(
        [decoders.Replace(SPACE, " "), decoders.ByteFallback(), decoders.Fuse(), *strip]
    )
    trainer = trainers.UnigramTrainer(
        vocab_size=200, special_tokens=["<unk>", "<s>"], unk_token="<unk>", show_progress=False
    )
    tokenizer.train_from_iterator(texts, trainer)
    return TokenizerInfo(tokenizer.to_str(), 1, None, False)


@pytest.mark.parametrize("steps", [*NORMALIZERS.values(), None], ids=[*NORMALIZERS, "words"])
def test_unigram_comes_back_and_llama_cpp_cuts_it_the_same(tmp_path, texts, steps):
    before = unigram(texts * 3, steps)
    after, path = through_file(tmp_path, before)
    odd = ["", "a", "the  cat   sat", "\u6f22\u6f22 the \U0001f642", "it is", "the \n cat", "a [PAD300]"]
    both = [*texts, *odd, "  the cat ", " a"]
    if steps is None:  # Metaspace adds no space to one that is there
        both = [text for text in both if not text.startswith(" ")]
    assert_same_ids(before, after, both)
    for text in both:
        assert llama_ids(path, text, False) == Tokenizer.from_str(before.json).encode(text).ids, text


@pytest.mark.parametrize(
    "change, words",
    [
        pytest.param(
            lambda d: d.update(normalizer={"type": "NFKC"}), "more than SentencePiece's spaces", id="normalizer"
        ),
        pytest.param(lambda d: d["model"].update(byte_fallback=True), "no fallback to bytes", id="bytes"),
        pytest.param(lambda d: d["model"]["vocab"].append(["a\u2581b", -9.0]), "more than", id="a piece of two words"),
        pytest.param(lambda d: d["model"]["vocab"].append(["<s>", -9.0]), "a text twice", id="twice"),
        pytest.param(lambda d: d["model"]["vocab"].append(["q"]), "the tokenizers library reads", id="no score"),
    ],
)
def test_unigram_that_gguf_cannot_hold_is_refused(texts, change, words):
    with pytest.raises(InputError, match=words):
        metadata_from_tokenizer(change_json(unigram(texts, None), change), 512, "x")


@pytest.mark.parametrize(
    "change, words",
    [
        pytest.param({"precompiled_charsmap": [1]}, "charsmap' must be a list of bytes", id="charsmap"),
        pytest.param({"token_type": [1] * 512}, "names no unknown token", id="no unknown token"),
        pytest.param({"scores": [0.0]}, "1 scores for 512 tokens", id="few scores"),
    ],
)
def test_unigram_of_others_that_is_refused(texts, change, words):
    metadata = metadata_from_tokenizer(unigram(texts, None), 512, "x")
    metadata |= {f"tokenizer.ggml.{key}": value for key, value in change.items()}
    with pytest.raises(InputError, match=words):
        tokenizer_from_metadata(as_read(metadata), 512, "x.gguf")


@needs_stories
@pytest.mark.parametrize(
    "change, words",
    [
        pytest.param(lambda d: d["model"]["merges"].pop(), "not all splits", id="a merge less"),
        pytest.param(
            lambda d: d["model"]["merges"].insert(60, d["model"]["merges"].pop(7)), "not all splits", id="split later"
        ),
        pytest.param(lambda d: d.update(normalizer={"type": "NFC"}), "more than SentencePiece's", id="normalizer"),
    ],
)
def test_sentencepiece_that_gguf_cannot_hold_is_refused(change, words):
    """Merge 7 is the second split of a token whose first is merge 6."""
    info = change_json(HFSource(STORIES260K).tokenizer, change)
    with pytest.raises(InputError, match=words):
        metadata_from_tokenizer(info, 512, "x")


LEADING = [" leading", "plain", "a</s>b", "a</s> b", "  two"]
SPLIT_AT_SPACES = {"type": "Split", "pattern": {"String": " "}, "behavior": "MergedWithPrevious", "invert": False}


def metaspace(scheme):
    return {"type": "Metaspace", "replacement": SPACE, "prepend_scheme": scheme, "split": False}


@needs_stories
@pytest.mark.parametrize(
    "normalizer, steps",
    [(None, metaspace("first")), (None, metaspace("always")), (None, metaspace("never")), (REPLACE, SPLIT_AT_SPACES)],
    ids=["Mistral's", "always", "never", "Gemma's"],
)
def test_spaces_of_other_families_come_back(tmp_path, texts, normalizer, steps):
    normalizer = None if normalizer is None else json.loads(normalizer.__getstate__())
    adds_space = steps.get("prepend_scheme") in ("first", "always")

    def change(document):
        document.update(normalizer=normalizer, pre_tokenizer=steps)
        if not adds_space:
            document["decoder"]["decoders"].pop()  # which takes a space away again

    info = change_json(HFSource(STORIES260K).tokenizer, change)
    after, path = through_file(tmp_path, info)
    assert_same_ids(info, after, [*texts, *LEADING])
    if not adds_space:  # which llama.cpp does at other places
        for text in [*texts, *(text for text in LEADING if "</s>" not in text)]:
            assert llama_ids(path, text, True) == Tokenizer.from_str(info.json).encode(text).ids


def test_an_end_that_llama_cpp_appends_is_reported(byte_level_tokenizer, caplog):
    metadata = as_read(metadata_from_tokenizer(byte_level_tokenizer, 512, "x"))
    tokenizer_from_metadata(metadata, 512, "x.gguf")
    assert not caplog.text
    tokenizer_from_metadata(metadata | {"tokenizer.ggml.add_eos_token": True}, 512, "x.gguf")
    assert "llama.cpp ends every text in EOS" in caplog.text


def test_invalid_special_tokens_are_absent(byte_level_tokenizer, caplog):
    """As llama.cpp has it, whose warning is about 2**32 - 1 in files of some converters."""
    metadata = as_read(metadata_from_tokenizer(byte_level_tokenizer, 512, "x"))
    info = tokenizer_from_metadata(metadata | {"tokenizer.ggml.eos_token_id": 2**32 - 1}, 512, "x.gguf")
    assert info.eos_token_id is None
    assert "x.gguf: tokenizer.ggml.eos_token_id is 4294967295, expected 0 to 511; taken as absent" in caplog.text


@needs_stories
def test_scores_follow_the_merges_and_not_the_ids():
    info = change_json(
        HFSource(STORIES260K).tokenizer, lambda d: d["model"]["merges"].insert(60, d["model"]["merges"].pop(5))
    )
    again = tokenizer_from_metadata(as_read(metadata_from_tokenizer(info, 512, "x")), 512, "x")
    assert json.loads(again.json)["model"]["merges"] == json.loads(info.json)["model"]["merges"]


def as_read(metadata):
    """Lists of numbers arrive as arrays."""
    import numpy as np

    return {
        key: np.array(value) if isinstance(value, list) and not isinstance(value[0], str) else value
        for key, value in metadata.items()
    }


@pytest.mark.parametrize(
    "change, words",
    [
        pytest.param(
            {"tokenizer.ggml.model": "rwkv"},
            r"'rwkv' \(a trie of bytes\), known: llama, gpt2, gemma4, t5, bert, no_vocab; read the model from its Hugg",
            id="a trie of bytes",
        ),
        pytest.param({"tokenizer.ggml.model": "new"}, "is 'new', known: llama", id="kind of a newer llama.cpp"),
        pytest.param({"tokenizer.ggml.pre": "falcon2"}, "'falcon2', none of the 91 that are known", id="pre"),
        pytest.param({"qbench.tokenizer.normalizer": "NFD"}, "'NFD', expected NFC", id="normalizer"),
        pytest.param({"tokenizer.ggml.tokens": ["a"]}, "1 tokens for an embedding of 512 rows", id="few tokens"),
        pytest.param({"tokenizer.ggml.tokens": ["a"] * 512}, "has a text twice", id="text twice"),
        pytest.param({"tokenizer.ggml.tokens": 3}, "must be a list of strings, got int", id="no list"),
        pytest.param({"tokenizer.ggml.token_type": "x"}, "must be a list of numbers", id="types"),
        pytest.param({"tokenizer.ggml.merges": ["zq qz"]}, "joins or makes what is no token", id="merge"),
        pytest.param({"tokenizer.ggml.merges": ["zq"]}, "joins or makes what is no token", id="half a merge"),
    ],
)
def test_corrupt_metadata(byte_level_tokenizer, change, words):
    metadata = as_read(metadata_from_tokenizer(byte_level_tokenizer, 512, "x"))
    with pytest.raises(InputError, match=words):
        tokenizer_from_metadata({**metadata, **change}, 512, "x.gguf")

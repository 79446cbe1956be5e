"""Tokenizers through GGUF and back: the same ids for every text, and the ids of llama.cpp."""

import json
from dataclasses import replace

import pytest
from support.data import SHARED, STORIES260K, needs_stories
from support.memory_source import MemorySource
from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

from quant.artifacts.gguf_reader import GGUFSource
from quant.artifacts.gguf_tokenizer import metadata_from_tokenizer, tokenizer_from_metadata
from quant.artifacts.gguf_tokenizer_bpe import PRE_TOKENIZERS
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


@pytest.mark.parametrize("pre", PRE_TOKENIZERS)
def test_every_named_pre_tokenizer_comes_back(tmp_path, byte_level_tokenizer, texts, pre):
    document = json.loads(byte_level_tokenizer.json)
    steps = [dict(step) for step in PRE_TOKENIZERS[pre].steps]
    document["pre_tokenizer"] = {"type": "Sequence", "pretokenizers": [{"trim_offsets": True, **s} for s in steps]}
    document["model"]["ignore_merges"] = PRE_TOKENIZERS[pre].ignore_merges
    before = TokenizerInfo(json.dumps(document), None, 0, False)
    metadata = metadata_from_tokenizer(before, 512, "x")
    assert metadata["tokenizer.ggml.pre"] == pre
    after, _ = through_file(tmp_path, before)
    assert_same_ids(before, after, texts)


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


def change_json(info, change):
    document = json.loads(info.json)
    change(document)
    return TokenizerInfo(json.dumps(document), info.bos_token_id, info.eos_token_id, info.add_bos)


@pytest.mark.parametrize(
    "change, words",
    [
        pytest.param(lambda d: d.update(normalizer={"type": "NFC"}), "none of the ways known", id="normalizer"),
        pytest.param(lambda d: d.update(pre_tokenizer=None), "none of the ways known", id="no pre-tokenizer"),
        pytest.param(
            lambda d: d["model"].update(type="WordPiece"), "model is 'WordPiece', and GGUF holds", id="WordPiece"
        ),
        pytest.param(
            lambda d: d["model"].update(type="Unigram"), "must be a list of texts with scores", id="no Unigram"
        ),
        pytest.param(lambda d: d["model"]["vocab"].update(x=512), "the embedding has 512 rows", id="id past the end"),
        pytest.param(lambda d: d["model"].update(merges=["a b c", 3]), "merges must be", id="merges"),
    ],
)
def test_tokenizers_that_gguf_cannot_say(byte_level_tokenizer, change, words):
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


ENDS, RUNS = normalizers.Replace(Regex("^ +| +$"), ""), normalizers.Replace(Regex(" +"), " ")
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
    odd = ["", "a", "the  cat   sat", "\u6f22\u6f22 the \U0001f642", "it is"]
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
        pytest.param(lambda d: d["model"]["vocab"].append(["q"]), "a list of texts with scores", id="no score"),
    ],
)
def test_unigram_that_gguf_cannot_say(texts, change, words):
    with pytest.raises(InputError, match=words):
        metadata_from_tokenizer(change_json(unigram(texts, None), change), 512, "x")


@pytest.mark.parametrize(
    "change, words",
    [
        pytest.param({"precompiled_charsmap": [1]}, "precompiled_charsmap is not supported", id="charsmap"),
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
def test_sentencepiece_that_gguf_cannot_say(change, words):
    """Merge 7 is the second split of a token whose first is merge 6."""
    info = change_json(HFSource(STORIES260K).tokenizer, change)
    with pytest.raises(InputError, match=words):
        metadata_from_tokenizer(info, 512, "x")


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
        pytest.param({"tokenizer.ggml.model": "bert"}, "'bert'; known: llama, gpt2, t5, no_vocab", id="kind"),
        pytest.param({"tokenizer.ggml.pre": "falcon"}, "'falcon'; known: gpt-2", id="pre"),
        pytest.param({"tokenizer.ggml.tokens": ["a"]}, "1 tokens for an embedding of 512 rows", id="few tokens"),
        pytest.param({"tokenizer.ggml.tokens": ["a"] * 512}, "has a text twice", id="text twice"),
        pytest.param({"tokenizer.ggml.tokens": 3}, "must be a list of strings, got int", id="no list"),
        pytest.param({"tokenizer.ggml.token_type": "x"}, "must be a list of numbers", id="types"),
        pytest.param({"tokenizer.ggml.bos_token_id": 512}, "bos_token_id is 512, expected 0 to 511", id="bos"),
        pytest.param({"tokenizer.ggml.merges": ["zq qz"]}, "joins or makes what is no token", id="merge"),
        pytest.param({"tokenizer.ggml.merges": ["zq"]}, "joins or makes what is no token", id="half a merge"),
    ],
)
def test_corrupt_metadata(byte_level_tokenizer, change, words):
    metadata = as_read(metadata_from_tokenizer(byte_level_tokenizer, 512, "x"))
    with pytest.raises(InputError, match=words):
        tokenizer_from_metadata({**metadata, **change}, 512, "x.gguf")

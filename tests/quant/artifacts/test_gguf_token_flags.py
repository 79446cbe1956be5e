"""Added tokens in a text, through GGUF, in transformers and in llama.cpp: all of them, and those with flags."""

import json

import pytest
from support.memory_source import MemorySource
from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers

from qbench.runtime.text.tokenizer import Tokenizer as OurTokenizer
from quant.artifacts.gguf_reader import GGUFSource
from quant.artifacts.gguf_tokenizer_spm import SPACE
from quant.artifacts.gguf_writer import write_gguf
from quant.artifacts.hf_reader import HFSource
from quant.artifacts.hf_writer import write_hf
from quant.errors import InputError
from quant.source import TokenizerInfo

TURNS = ("<|user|>", "<|end|>", "<|assistant|>", "<|endoftext|>", "<s>", "</s>", "<unk>")
PLAIN = ("<|endoftext|>", "<s>", "<unk>")
CHAT = "<|user|>\n the cat<|end|>\n<|assistant|>\n  sat <|endoftext|> on"


def with_turns(info, **flags):
    """The tokenizer with tokens for the turns of a chat that have these flags."""
    document = json.loads(info.json)
    plain = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)
    names = {token["content"] for token in document["added_tokens"]}
    for number, text in enumerate(text for text in TURNS if text not in names):
        token_id = 500 + number
        document["model"]["vocab"][text] = token_id
        document["added_tokens"].append({"id": token_id, "content": text, **plain, "special": True})
    for token in document["added_tokens"]:
        token |= flags if token["content"] not in PLAIN else {}
    return TokenizerInfo(json.dumps(document), None, 0, False)


def through_file(tmp_path, info, name):
    path = tmp_path / "x.gguf"
    write_gguf(MemorySource(info, vocab_size=512, num_hidden_layers=1), path, name=name)
    return path, GGUFSource(path).tokenizer


def ids(info):
    return Tokenizer.from_str(info.json).encode(CHAT).ids


@pytest.mark.parametrize("flags", [{"rstrip": True}, {"lstrip": True}, {"single_word": True, "rstrip": True}], ids=str)
def test_flags_come_back_and_are_reported(tmp_path, byte_level_tokenizer, flags, caplog):
    before = with_turns(byte_level_tokenizer, **flags)
    _, after = through_file(tmp_path, before, "x")
    assert ids(after) == ids(before) != ids(with_turns(byte_level_tokenizer))
    assert f"added tokens have {' and '.join(sorted(flags))}, which GGUF cannot say" in caplog.text


@pytest.mark.parametrize("name, strips", [("Phi-3-mini", True), ("my phi3", True), ("Phi-4", False)])
def test_control_tokens_of_phi3_take_the_spaces_behind_them_as_in_llama_cpp(
    tmp_path, byte_level_tokenizer, name, strips
):
    llama_cpp = pytest.importorskip("llama_cpp", reason="llama-cpp-python is not installed")
    path, after = through_file(tmp_path, with_turns(byte_level_tokenizer), name)
    theirs = llama_cpp.Llama(str(path), vocab_only=True, verbose=False)
    assert ids(after) == theirs.tokenize(CHAT.encode(), add_bos=False, special=True)
    assert ids(after) == ids(with_turns(byte_level_tokenizer, rstrip=strips))


def test_flags_that_are_no_list_are_named(tmp_path, byte_level_tokenizer):
    path = tmp_path / "x.gguf"
    source = MemorySource(byte_level_tokenizer, vocab_size=512, num_hidden_layers=1)
    write_gguf(source, path, name="x", metadata={"qbench.tokenizer.rstrip": "yes"})
    with pytest.raises(InputError, match=r"'qbench.tokenizer.rstrip' must be a list of token ids"):
        GGUFSource(path)


CONTROL = ("<pad>", "<eos>", "<bos>", "<unk>", "<start_of_turn>")
TAGS = ("</s>", "<s>", "<h1>", "\n\n")  # of HTML, as ordinary added tokens of Gemma
MERGED = (f"{SPACE}t", "he", f"{SPACE}the", "bo", "bos", f"{SPACE}<", "</", "s>")
AROUND = ("{0}", "a{0}b", "a {0} b", "{0} the", " {0}", "the{0}", "{0}{0}", "a\n{0}\n\nb")
WITH_TOKENS = [around.format(token) for token in (*CONTROL, *TAGS) for around in AROUND]
WITH_TOKENS += ["the hat", "  the  hat", "", "<bo s>", "<b<bos>", "</s", "< /s>"]


def spaced(has_prefix: bool, normalized: bool) -> TokenizerInfo:
    """A small tokenizer of characters with Gemma's tokens, or with a space before the text as Llama 2 has it."""
    letters = dict.fromkeys((*CONTROL, *TAGS, *(f"<0x{byte:02X}>" for byte in range(256)), SPACE, *"athe<>/sboun1d_fr"))
    ids = {piece: number for number, piece in enumerate((*letters, *MERGED))}
    merges = []
    for piece in MERGED:
        splits = [(piece[:cut], piece[cut:]) for cut in range(1, len(piece))]
        known = [(left, right) for left, right in splits if left in ids and right in ids]
        merges += sorted(known, key=lambda pair: (ids[pair[0]], ids[pair[1]]))
    tokenizer = Tokenizer(models.BPE(ids, merges, unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    prepend = [normalizers.Prepend(SPACE)] if has_prefix else []
    tokenizer.normalizer = normalizers.Sequence([*prepend, normalizers.Replace(" ", SPACE)])
    strip = [decoders.Strip(" ", 1, 0)] if has_prefix else []
    tokenizer.decoder = decoders.Sequence(
        [decoders.Replace(SPACE, " "), decoders.ByteFallback(), decoders.Fuse(), *strip]
    )
    tokenizer.add_special_tokens([AddedToken(token, normalized=normalized, special=True) for token in CONTROL])
    tokenizer.add_tokens([AddedToken(token, normalized=normalized) for token in TAGS])
    return TokenizerInfo(tokenizer.to_str(), 2, 1, False)


@pytest.mark.parametrize("has_prefix", [False, True], ids=["Gemma's spaces", "Llama's spaces"])
@pytest.mark.parametrize("normalized", [False, True], ids=["before", "behind the normalizer"])
def test_tokens_in_a_text_match_transformers_and_llama_cpp(tmp_path, has_prefix, normalized, caplog):
    """A directory cuts as transformers, its GGUF the same, and both as llama.cpp that parses special tokens.

    llama.cpp has no tokens behind the normalizer, which a warning says if it makes a difference.
    """
    llama_cpp = pytest.importorskip("llama_cpp", reason="llama-cpp-python is not installed")
    transformers = pytest.importorskip("transformers")
    (tmp_path / "model").mkdir()
    write_hf(MemorySource(spaced(has_prefix, normalized), vocab_size=512, num_hidden_layers=1), tmp_path / "model")
    source = HFSource(tmp_path / "model")
    path, info = through_file(tmp_path, source.tokenizer, "x")
    in_directory, in_gguf = OurTokenizer(source.tokenizer), OurTokenizer(info)
    theirs = transformers.AutoTokenizer.from_pretrained(tmp_path / "model")
    llama = llama_cpp.Llama(str(path), vocab_only=True, verbose=False)
    differs = has_prefix and normalized
    assert ("added tokens have normalized, which GGUF cannot say" in caplog.text) is differs
    for text in WITH_TOKENS:
        ids = theirs(text, add_special_tokens=False)["input_ids"]
        assert in_directory.encode(text, add_bos=False) == in_gguf.encode(text, add_bos=False) == ids, text
        words = theirs(text, add_special_tokens=False, split_special_tokens=True)["input_ids"]
        assert in_directory.encode_words(text) == in_gguf.encode_words(text) == words, text
        assert differs or llama.tokenize(text.encode(), add_bos=False, special=True) == ids, text

"""Added tokens that take spaces next to them, through GGUF and in llama.cpp."""

import json

import pytest
from support.memory_source import MemorySource
from tokenizers import Tokenizer

from quant.artifacts.gguf_reader import GGUFSource
from quant.artifacts.gguf_writer import write_gguf
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
def test_flags_come_back_and_are_told(tmp_path, byte_level_tokenizer, flags, caplog):
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

import json

import pytest
from tokenizers import pre_tokenizers

from qbench.reference.corpus import EOS, heldout_text
from qbench.reference.lexicon import KEYS, VALUES
from training.tokenizer import VOCAB_SIZE, save_tokenizer, train_tokenizer


@pytest.mark.parametrize(
    "text",
    [
        pytest.param(heldout_text(None, 5000).replace(EOS, ""), id="held-out text"),
        pytest.param("Zürich 東京 \x00\t  two  spaces\n\n", id="bytes it never saw"),
        pytest.param("", id="empty"),
    ],
)
def test_round_trip(tokenizer, text):
    assert tokenizer.decode(tokenizer.encode(text).ids) == text


def test_learning_is_deterministic(tokenizer):
    assert train_tokenizer().to_str() == tokenizer.to_str()


@pytest.mark.parametrize("words", [KEYS, VALUES], ids=["keys", "values"])
def test_words_of_recall_are_single_tokens(tokenizer, words):
    assert all(len(tokenizer.encode(f" {word}").ids) == 1 for word in words)


def test_a_digit_is_a_token(tokenizer):
    assert tokenizer.encode("27+35:7+5=12,62").tokens == list("27+35:7+5=12,62")


def test_end_of_text_is_one_token_inside_text(tokenizer):
    assert tokenizer.encode(f"{EOS}set").ids == [tokenizer.token_to_id(EOS), tokenizer.token_to_id("set")]


def test_gguf_can_hold_the_same(tokenizer):
    """GGUF's "gpt2" model is byte-level BPE with merges of two tokens, and every id named in a list."""
    spec = json.loads(tokenizer.to_str())
    assert tokenizer.get_vocab_size() == VOCAB_SIZE <= 4096
    assert spec["model"]["type"] == "BPE" and spec["normalizer"] is None
    assert spec["pre_tokenizer"]["type"] == spec["decoder"]["type"] == "ByteLevel"
    assert spec["pre_tokenizer"]["use_regex"] and not spec["pre_tokenizer"]["add_prefix_space"]
    vocab = spec["model"]["vocab"]
    assert sorted(vocab.values()) == list(range(VOCAB_SIZE))
    assert set(pre_tokenizers.ByteLevel.alphabet()) <= set(vocab)
    assert all("".join(merge) in vocab for merge in spec["model"]["merges"])


def test_saved_files_load_in_transformers(tokenizer, tmp_path):
    transformers = pytest.importorskip("transformers")
    save_tokenizer(tokenizer, tmp_path, context=1024)
    loaded = transformers.AutoTokenizer.from_pretrained(tmp_path)
    text = heldout_text(None, 2000)
    assert loaded(text, add_special_tokens=False)["input_ids"] == tokenizer.encode(text).ids
    assert loaded.bos_token == loaded.eos_token == EOS

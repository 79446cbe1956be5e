"""Which tokens end a text, by all of a model's files."""

import json
from dataclasses import replace

import numpy as np
import pytest
from support.architectures import random_weights, small_config
from support.array_source import ArraySource
from support.artifact import write_artifact
from support.byte_tokenizer import trained_byte_level

from qbench.sources import open_source
from quant.artifacts.gguf_vocabulary import CONTROL, NORMAL
from quant.artifacts.stop_tokens import gguf_stop_tokens
from quant.errors import InputError
from quant.models import ModelConfig


def directory(folder, eos):
    config = small_config(vocab_size=300, eos_token_id=eos)
    return write_artifact(ArraySource(config, random_weights(config)), folder / "model")


def stop_tokens(path) -> tuple[int, ...]:
    return ModelConfig.of(open_source(str(path))).eos_token_ids


@pytest.mark.parametrize(
    "own, generation, expected",
    [(2, 2, (2,)), (2, [7, 2], (2, 7)), (2, None, (2,)), (None, 5, (5,)), ([2, 3], [3, 9], (2, 3, 9))],
)
def test_generation_config_adds_to_the_config(tmp_path, own, generation, expected):
    path = directory(tmp_path, own)
    before = open_source(str(path)).fingerprint()
    (path / "generation_config.json").write_text(json.dumps({"eos_token_id": generation}))
    assert stop_tokens(path) == expected
    is_more = len(expected) > (1 if isinstance(own, int) else len(own or ()))
    assert (open_source(str(path)).fingerprint() != before) == is_more, "its own file counts where it says more"
    assert stop_tokens(write_artifact(open_source(str(path)), tmp_path / "copy")) == expected


def test_an_invalid_generation_config_is_named(tmp_path):
    path = directory(tmp_path, 2)
    (path / "generation_config.json").write_text('{"eos_token_id": "two"}')
    with pytest.raises(InputError, match=r"generation_config.json: eos_token_id is 'two'"):
        open_source(str(path))


def test_a_generation_config_that_cannot_be_read_is_named_once(tmp_path):
    path = directory(tmp_path, 2)
    (path / "generation_config.json").mkdir()
    with pytest.raises(InputError) as caught:
        open_source(str(path))
    assert str(caught.value).count("generation_config.json") == 1


def test_keys_and_turn_ends_of_a_gguf_file():
    """llama.cpp takes <end_of_turn> for a control token of any type."""
    tokens, types = ["a", "<|end|>", "<end_of_turn>", "b", "</s>"], [NORMAL, CONTROL, NORMAL, NORMAL, CONTROL]
    metadata = {"tokenizer.ggml.tokens": tokens, "tokenizer.ggml.token_type": types, "tokenizer.ggml.eos_token_id": 4}
    assert gguf_stop_tokens(metadata, "x.gguf") == {"eos_token_id": [4, 1, 2]}
    assert gguf_stop_tokens(metadata | {"tokenizer.ggml.eot_token_id": 3}, "x.gguf") == {"eos_token_id": [4, 3, 1, 2]}
    assert gguf_stop_tokens({"tokenizer.ggml.eos_token_id": 4}, "x.gguf") == {"eos_token_id": 4}
    assert gguf_stop_tokens({}, "x.gguf") == {}


def test_a_turn_end_survives_gguf(tmp_path):
    info = trained_byte_level(["some words and some more words"])
    document = json.loads(info.json)
    last = {**document["added_tokens"][-1], "id": 399, "content": "<|im_end|>", "special": True}
    document["added_tokens"].append(last)
    config = small_config(vocab_size=400, eos_token_id=[info.eos_token_id, 399])
    tokenizer = replace(info, json=json.dumps(document))
    source = ArraySource(config, random_weights(config), tokenizer=tokenizer)
    assert stop_tokens(write_artifact(source, tmp_path / "m.gguf")) == (info.eos_token_id, 399)


def with_tokenizer(eos, own):
    """A model of 400 words; the tokenizer's own end is `own`."""
    info = trained_byte_level(["some words and some more words"])
    config = small_config(vocab_size=400, eos_token_id=eos)
    return ArraySource(config, random_weights(config), tokenizer=replace(info, eos_token_id=own))


@pytest.mark.parametrize(
    "eos, own, expected",
    [([257, 258], 257, {257, 258}), (257, 258, {257, 258}), (None, 258, {258}), ([2, 3, 4], 2, {2, 3, 4})],
)
def test_a_directory_and_its_gguf_end_texts_at_the_same_tokens(tmp_path, eos, own, expected):
    """At any token that config.json or the tokenizer names; in GGUF also at 0, which is <|end|>."""
    path = write_artifact(with_tokenizer(eos, own), tmp_path / "model")
    assert set(stop_tokens(path)) == expected
    assert set(stop_tokens(write_artifact(open_source(str(path)), tmp_path / "m.gguf"))) == expected | {0}


def test_more_ends_than_gguf_has_keys_for_are_named(tmp_path, caplog):
    path = write_artifact(with_tokenizer([2, 3, 4, 5], 2), tmp_path / "m.gguf")
    assert stop_tokens(path) == (2, 3, 4, 0) and "texts end in one of the tokens 2, 3, 4, 5" in caplog.text


def test_a_key_of_no_token_is_absent():
    """llama.cpp warns about 2**32 - 1 and goes on."""
    metadata = {"tokenizer.ggml.tokens": ["a", "b"], "tokenizer.ggml.eos_token_id": 2**32 - 1}
    assert gguf_stop_tokens(metadata, "x.gguf") == {}


@pytest.mark.parametrize("given", [{}, {"eos_token_id": 99}], ids=str)
@pytest.mark.parametrize("types, expected", [(None, 2), ([1, 1, CONTROL], 2), ([1, 1, NORMAL], None)], ids=str)
def test_the_end_of_a_file_without_its_key_is_that_of_llama_cpp(given, types, expected):
    metadata = {"model": "llama", "tokens": ["a", "b", "</s>"], **given}
    metadata |= {} if types is None else {"token_type": np.array(types)}
    named = {f"tokenizer.ggml.{key}": value for key, value in metadata.items()}
    assert gguf_stop_tokens(named, "x.gguf").get("eos_token_id") == expected

"""Tokens and BOS of the files next to a tokenizer.json: as transformers reads the folder."""

import json

import pytest
from tokenizers import Tokenizer

from quant.artifacts.hf_tokenizer import read_tokenizer, write_tokenizer
from quant.source import TokenizerInfo

CLASS = {"tokenizer_class": "PreTrainedTokenizerFast"}
NEW = {"content": "<new>", "lstrip": False, "rstrip": False, "normalized": False, "single_word": False, "special": True}
TEXT = "the <new> cat <new>sat"


@pytest.fixture
def folder(tmp_path, byte_level_tokenizer):
    (tmp_path / "tokenizer.json").write_text(byte_level_tokenizer.json)
    return tmp_path


def put(folder, **files):
    for name, value in files.items():
        (folder / f"{name}.json").write_text(json.dumps(value))


def theirs(folder, text=TEXT):
    transformers = pytest.importorskip("transformers")
    return transformers.AutoTokenizer.from_pretrained(folder)(text)["input_ids"]


def ours(folder, vocab_size=1000):
    return read_tokenizer(folder, {"vocab_size": vocab_size})


def ids(info, text=TEXT):
    return Tokenizer.from_str(info.json).encode(text, add_special_tokens=False).ids


@pytest.mark.parametrize(
    "files",
    [
        {"tokenizer_config": {**CLASS, "added_tokens_decoder": {"600": NEW}}},
        {"tokenizer_config": {**CLASS, "added_tokens_decoder": {"600": {**NEW, "lstrip": True, "special": False}}}},
        {"tokenizer_config": {**CLASS, "additional_special_tokens": ["<new>"]}},
        {"tokenizer_config": {**CLASS, "extra_special_tokens": {"new_token": "<new>"}}},
        {"tokenizer_config": {**CLASS, "pad_token": "<new>"}},
        {"tokenizer_config": {**CLASS, "pad_token": {"__type": "AddedToken", **NEW}, "eos_token": " cat"}},
        {"tokenizer_config": CLASS, "added_tokens": {"<new>": 600}},
        {"tokenizer_config": CLASS, "added_tokens": {"<new>": 601, " cat": 600}},
        {"tokenizer_config": CLASS, "special_tokens_map": {"pad_token": "<new>"}},
    ],
    ids=str,
)
def test_tokens_of_the_other_files_are_added(folder, files):
    put(folder, **files)
    info = ours(folder)
    assert info.is_completed and ids(info) == theirs(folder)
    assert ids(info) != Tokenizer.from_str((folder / "tokenizer.json").read_text()).encode(TEXT).ids


def test_tokens_that_are_there_change_nothing(folder, byte_level_tokenizer):
    eos = Tokenizer.from_str(byte_level_tokenizer.json).id_to_token(byte_level_tokenizer.eos_token_id)
    put(folder, tokenizer_config={**CLASS, "eos_token": eos}, special_tokens_map={"eos_token": eos})
    assert not ours(folder).is_completed and ours(folder).json == byte_level_tokenizer.json


@pytest.mark.parametrize("flags", [{"rstrip": True}, {"lstrip": True, "special": False}], ids=str)
def test_flags_of_the_list_count(folder, flags):
    """As in transformers: the added_tokens_decoder of tokenizer_config.json wins over tokenizer.json."""
    put(folder, tokenizer_config={**CLASS, "added_tokens_decoder": {"0": {**NEW, "content": "<|end|>", **flags}}})
    info, text = ours(folder), "the <|end|>  cat"
    assert info.is_completed and ids(info, text) == theirs(folder, text)
    assert ids(info, text) != Tokenizer.from_str((folder / "tokenizer.json").read_text()).encode(text).ids


def test_flags_that_are_the_same_change_nothing(folder, byte_level_tokenizer):
    put(folder, tokenizer_config={**CLASS, "added_tokens_decoder": {"0": {**NEW, "content": "<|end|>"}}})
    assert not ours(folder).is_completed and ours(folder).json == byte_level_tokenizer.json


def test_a_token_behind_the_embedding_is_left_out_and_named(folder, byte_level_tokenizer, caplog):
    put(folder, tokenizer_config={**CLASS, "pad_token": "<new>"})
    size = Tokenizer.from_str(byte_level_tokenizer.json).get_vocab_size()
    assert ours(folder, size).json == byte_level_tokenizer.json
    assert f"'<new>' has no row in the embedding of {size}" in caplog.text


def with_template(folder, token):
    """The post-processor puts this token before each text."""
    document = json.loads((folder / "tokenizer.json").read_text())
    token_id = Tokenizer.from_str(json.dumps(document)).token_to_id(token)
    special, text = {"SpecialToken": {"id": token, "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}
    document["post_processor"] = {
        "type": "TemplateProcessing",
        "single": [special, text],
        "pair": [special, text, text],
        "special_tokens": {token: {"id": token, "ids": [token_id], "tokens": [token]}},
    }
    (folder / "tokenizer.json").write_text(json.dumps(document))
    return token_id


@pytest.mark.parametrize("place", [0, 1, 2], ids=["before BOS", "behind BOS", "at the end"])
def test_other_tokens_of_the_post_processor_are_reported(folder, caplog, place):
    with_template(folder, "<|end|>")
    put(folder, tokenizer_config=CLASS)
    ours(folder)
    assert "the post-processor adds" not in caplog.text
    document = json.loads((folder / "tokenizer.json").read_text())
    document["post_processor"]["single"].insert(place, {"SpecialToken": {"id": "<|end|>", "type_id": 0}})
    (folder / "tokenizer.json").write_text(json.dumps(document))
    ours(folder)
    assert "the post-processor adds '<|end|>', '<|end|>' to every text" in caplog.text


@pytest.mark.parametrize("key", [True, False])
@pytest.mark.parametrize("name", ["PreTrainedTokenizerFast", "Qwen2Tokenizer", "GPT2Tokenizer", None])
def test_the_post_processor_decides_about_bos(folder, name, key, caplog):
    bos = with_template(folder, "<|end|>")
    put(folder, tokenizer_config={"tokenizer_class": name, "bos_token": "<|end|>", "add_bos_token": key})
    info = ours(folder)
    assert info.add_bos and info.bos_token_id == bos and theirs(folder)[0] == bos
    assert ("add_bos_token is false, and the post-processor adds BOS" in caplog.text) == (not key)


@pytest.mark.parametrize("adds", [True, False])
@pytest.mark.parametrize("name", ["LlamaTokenizer", "LlamaTokenizerFast", "GemmaTokenizerFast"])
def test_the_key_decides_for_classes_that_obey_it(folder, name, adds):
    """DeepSeek-Coder's files have the key and no post-processor that adds BOS; transformers 4 adds it."""
    if not adds:
        with_template(folder, "<|end|>")
    put(folder, tokenizer_config={"tokenizer_class": name, "bos_token": "<|end|>", "add_bos_token": adds})
    assert ours(folder).add_bos == adds


def test_the_token_that_the_post_processor_adds_is_bos(folder):
    bos = with_template(folder, "<|end|>")
    put(folder, tokenizer_config={**CLASS, "bos_token": "<not there>"})
    assert ours(folder).bos_token_id == bos and theirs(folder)[0] == bos


def written(folder, info):
    """The files of a directory with this tokenizer, name -> content."""
    out = folder / "written"
    out.mkdir()
    write_tokenizer(out, info, 128)
    return out, {path.name: path.read_text() for path in out.iterdir()}


def test_a_written_directory_keeps_the_files_of_its_source(folder):
    """Class, padding, names of inputs, and settings of generation."""
    settings = {"tokenizer_class": "Qwen2Tokenizer", "pad_token": "<|end|>", "padding_side": "left", "unk_token": None}
    kept = {"special_tokens_map": {"pad_token": "<|end|>"}, "generation_config": {"top_p": 0.9}, "added_tokens": {}}
    put(folder, tokenizer_config=settings, **kept)
    before = {path.name: path.read_text() for path in folder.iterdir()}
    assert written(folder, ours(folder))[1] == before


def test_missing_code_of_a_tokenizer_is_not_named(folder):
    put(folder, tokenizer_config={**CLASS, "auto_map": {"AutoTokenizer": ["tokenization_x.Tokenizer", None]}})
    assert json.loads(written(folder, ours(folder))[1]["tokenizer_config.json"]) == CLASS


def test_a_directory_of_another_source_adds_bos_by_itself(folder, byte_level_tokenizer):
    """No version of transformers obeys add_bos_token for every class; each obeys a post-processor."""
    bos = Tokenizer.from_str(byte_level_tokenizer.json).token_to_id("<|end|>")
    out, files = written(folder, TokenizerInfo(byte_level_tokenizer.json, bos, None, add_bos=True))
    assert theirs(out, "the")[0] == bos and read_tokenizer(out, {}).add_bos
    settings = json.loads(files["tokenizer_config.json"])
    assert settings["model_input_names"] == ["input_ids", "attention_mask"], "no token_type_ids for generate()"


def test_directories_of_older_versions_keep_their_bos(folder, caplog):
    """They had the key, whose class does not obey it in transformers, and no post-processor."""
    older = {"eos_token": "<|end|>", "clean_up_tokenization_spaces": False, "model_max_length": 128}
    put(folder, tokenizer_config={**CLASS, "bos_token": "<|end|>", "add_bos_token": True, **older})
    assert ours(folder).add_bos and not caplog.text

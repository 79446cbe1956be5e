from dataclasses import replace

import numpy as np
import pytest
from support.refused_rows import refused_rows

from qbench.quality.protocols.conventions import make_scorings
from qbench.quality.protocols.documents import read_passage
from qbench.quality.protocols.scoring import Scoring, Setting
from qbench.reference.registry import weights_dir
from qbench.statistics.paired import require_same_protocol
from quant.artifacts.hf_tokenizer import read_tokenizer
from quant.errors import InputError

TEXT = "the cat saw 12 + 7 = 19 " * 60


@pytest.fixture(scope="module")
def setting() -> Setting:
    return Setting(
        read_passage(TEXT),
        read_tokenizer(weights_dir("llama"), {"bos_token_id": 0, "eos_token_id": 0}),
        context=100,
        limit=None,
    )


def scoring(setting: Setting, name: str = "gptq-2048", **changes) -> Scoring:
    (only,) = make_scorings(replace(setting, **changes), [name])
    return only


def test_a_name_contains_the_window_that_context_and_text_allow(setting):
    assert scoring(setting).protocol.name == "windows-100"
    long = replace(setting, passage=read_passage(TEXT * 9), context=4096)
    assert scoring(long).protocol.name == "gptq-2048"
    assert scoring(setting, context=4096).protocol.name == f"windows-{len(setting.tokens)}"


def test_each_convention_has_its_own_protocol(setting):
    scorings = make_scorings(setting, ["llama.cpp-32", "windows-64", "stride-7", "lm-eval-word", "lm-eval-byte"])
    assert [p.protocol.name for p in scorings] == [
        "llama.cpp-32",
        "windows-64",
        "stride-7",
        "lm-eval-word",
        "lm-eval-byte",
    ]
    assert len({p.protocol.hash for p in scorings}) == 5
    for p in scorings:
        assert p.protocol.num_windows == len(p.windows) == p.protocol.text_windows
        assert p.block_sizes.sum() == p.starts[-1] == len(p.positions)
        assert max(len(window.tokens) for window in p.windows) <= setting.context
    assert scorings[0].windows[1].tokens[0] == setting.tokenizer.bos_token_id
    assert scorings[0].protocol.bos == "window-start" and scorings[1].protocol.bos == "text-start"


def test_all_conventions_fit_a_short_context(setting):
    short = replace(setting, context=256)
    names = [one.protocol.name for one in make_scorings(short, ["all"])]
    assert names == ["windows-256", "llama.cpp-256", "lm-eval-word", "lm-eval-byte", "stride-128"]


def test_asking_twice_measures_once(setting):
    assert len(make_scorings(setting, ["windows-64", "windows-64", "gptq-2048", "windows-100"])) == 2


def test_special_tokens_in_a_text_are_text_only_to_llama_cpp(setting):
    marked = replace(setting, passage=read_passage(f"{TEXT}<|endoftext|>{TEXT}"))
    assert marked.tokens[1:].tolist().count(setting.tokenizer.bos_token_id) == 1
    assert marked.plain_tokens[1:].tolist().count(setting.tokenizer.bos_token_id) == 0
    used = scoring(marked, "llama.cpp-32").protocol.tokens_sha256
    assert used != scoring(marked, "windows-32").protocol.tokens_sha256


def test_words_and_bytes_belong_to_documents_or_to_a_lone_ones_windows(setting):
    lone = scoring(setting, "lm-eval-word")
    assert lone.block_unit == "window" and lone.num_blocks == len(lone.windows) > 2
    assert np.isclose(lone.units.sum(), lone.num_words) and lone.num_words == len(TEXT.split()) + 1
    parts = read_passage(f"{TEXT}<|endoftext|>one two<|endoftext|>{TEXT[:400]}")
    many = scoring(setting, "lm-eval-byte", passage=parts)
    assert many.block_unit == "document" and many.units.tolist() == [len(TEXT), len("one two"), 400]
    limited = scoring(setting, "lm-eval-byte", passage=parts, limit=2)
    assert limited.units.tolist() == [len(TEXT), len("one two")] and limited.protocol.num_documents == 2


@pytest.mark.parametrize(
    "changes, field",
    [
        pytest.param({"context": 50}, "window", id="window"),
        pytest.param({"passage": read_passage(TEXT + "more")}, "data_sha256", id="data"),
        pytest.param({"limit": 3}, "num_windows", id="how many windows"),
    ],
)
def test_unlike_protocols_do_not_join_and_the_difference_is_named(setting, changes, field):
    one, other = (
        scoring(setting).protocol.describe().to_json(),
        scoring(setting, **changes).protocol.describe().to_json(),
    )
    assert one["hash"] != other["hash"]
    with pytest.raises(InputError, match=field):
        require_same_protocol(one, other)
    require_same_protocol(one, scoring(setting, limit=99).protocol.describe().to_json())


def test_the_protocol_of_earlier_records_keeps_its_hash(setting):
    """Fields that came later say nothing of windows, so rows measured before them still join."""
    names = ["name", "window", "stride", "scored", "bos", "dtype", "num_windows", "text_windows", "data_sha256"]
    assert list(scoring(setting).protocol.describe().to_json()) == [*names, "tokens_sha256", "hash"]


@pytest.mark.parametrize("name, message", refused_rows(__file__, "refused_protocols.yaml"))
def test_impossible_names_are_refused(setting, name, message):
    with pytest.raises(InputError, match=message):
        scoring(setting, name)


def test_texts_that_are_too_short(setting):
    with pytest.raises(InputError, match="text of two windows"):
        scoring(setting, "llama.cpp-64", passage=read_passage("the cat"))
    with pytest.raises(InputError, match="1 tokens"):
        scoring(replace(setting, tokenizer=replace(setting.tokenizer, add_bos=False)), passage=read_passage("a"))
    with pytest.raises(InputError, match="got 0"):
        scoring(setting, limit=0)
    with pytest.raises(InputError, match="neither"):
        scoring(setting, "lm-eval-word", tokenizer=replace(setting.tokenizer, bos_token_id=None, eos_token_id=None))

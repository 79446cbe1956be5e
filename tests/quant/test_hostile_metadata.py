"""Counts, types and patterns that no real file has: an InputError before anything is made of them."""

import asyncio
import json
import os
import re
import threading
import tracemalloc
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.gguf_parts import GgufParts
from support.memory_source import MemorySource
from tokenizers import Regex, Tokenizer, models, pre_tokenizers

from qbench.reference import weights_dir
from qbench.runtime.text.tokenizer import Tokenizer as OurTokenizer
from qbench.sources import open_source
from quant.artifacts.f32_vectors import F32Vectors
from quant.artifacts.gguf_reader import GGUFSource
from quant.artifacts.gguf_writer import write_gguf
from quant.artifacts.layouts import read_layout
from quant.artifacts.layouts.patterns import MOST_DEPTH, Pattern
from quant.errors import MOST_CHARACTERS, InputError, bounded, shown
from quant.models import ModelConfig
from quant.panics import panics_as, without_reports
from quant.recipes.yaml_recipe import read_recipe
from quant.source import TokenizerInfo

MOST_BYTES = 64 << 20  # of a refusal: the small file and its parsed part, far below the requested count


@pytest.fixture(scope="module")
def llama(tmp_path_factory):
    path = tmp_path_factory.mktemp("gguf") / "m.gguf"
    write_gguf(F32Vectors(open_source("ref:llama")), path, name="m")
    return path


@pytest.fixture(scope="module")
def deepseek(tmp_path_factory):
    path = tmp_path_factory.mktemp("gguf") / "d.gguf"
    write_gguf(F32Vectors(open_source("ref:mla-moe")), path, name="d")
    return path


def refusal(path, **keys):
    """The message that a file with these keys is refused with, whose making takes little memory"""
    parts = GgufParts.read(path)
    for key, value in keys.items():
        parts.set(key, value)
    changed = path.with_name("changed.gguf")
    changed.write_bytes(parts.bytes())
    tracemalloc.start()
    try:
        with pytest.raises(InputError) as caught:
            GGUFSource(changed)
        assert tracemalloc.get_traced_memory()[1] < MOST_BYTES
    finally:
        tracemalloc.stop()
    message = str(caught.value)
    assert message.startswith(str(changed)) and len(message) <= MOST_CHARACTERS
    return message


@pytest.mark.parametrize("count", [4097, 10**6, 2**31 - 1])
@pytest.mark.parametrize("key", ["llama.block_count", "deepseek2.block_count", "deepseek2.expert_count"])
def test_a_huge_count_in_gguf(llama, deepseek, key, count):
    assert "expected a whole number from 1 to" in refusal(llama if "llama" in key else deepseek, **{key: count})


@pytest.mark.parametrize(
    "model, key", [("llama", "num_hidden_layers"), ("mla-moe", "n_routed_experts"), ("mla-moe", "num_hidden_layers")]
)
@pytest.mark.parametrize("count", [4097, 2**31 - 1, 2**70])
def test_a_huge_count_in_config_json(model, key, count):
    config = json.loads((weights_dir(model) / "config.json").read_text()) | {key: count}
    with pytest.raises(InputError, match=rf"{key} is \d+(\.\.\.\d+)?, expected a whole number from 1 to 4096"):
        ModelConfig.from_hf(config)


def test_layers_times_experts():
    config = json.loads((weights_dir("mla-moe") / "config.json").read_text())
    with pytest.raises(InputError, match="4096 layers of 4096 experts, expected at most 65536"):
        ModelConfig.from_hf(config | {"num_hidden_layers": 4096, "n_routed_experts": 4096})


SINGLE = (
    "general.architecture", "tokenizer.ggml.model", "tokenizer.ggml.bos_token_id", "tokenizer.ggml.eos_token_id",
    "tokenizer.ggml.eot_token_id", "tokenizer.ggml.pre", "tokenizer.chat_template", "split.count", "split.no",
    "general.alignment", "llama.block_count", "llama.attention.layer_norm_rms_epsilon",
)  # fmt: skip


@pytest.mark.parametrize("value", [["a", "b"], [1, 2], [1.0]], ids=["texts", "counts", "floats"])
@pytest.mark.parametrize("key", SINGLE)
def test_an_array_for_a_single_value(llama, key, value):
    assert key in refusal(llama, **{key: value})


def test_a_mark_of_an_architecture_may_be_of_any_type(deepseek):
    assert "deepseek2.expert_group_count" in refusal(deepseek, **{"deepseek2.expert_group_count": [2, 3]})


def test_a_kv_entry_nested_too_deep(llama):
    assert "must be JSON" in refusal(llama, **{"qbench.kv_cache": "[" * 100_000})


def group(**changes):
    weights = {"num_bits": 4, "type": "int", "symmetric": True, "strategy": "group", "group_size": 32}
    return {"weights": weights, "targets": ["Linear"], "format": "pack-quantized", **changes}


@pytest.mark.parametrize(
    "config",
    [
        pytest.param({"quant_method": ["gptq"]}, id="a list as a method"),
        pytest.param([], id="a list"),
        *(
            pytest.param({"quant_method": "compressed-tensors", "config_groups": {"0": each}}, id=name)
            for name, each in {
                "no group": 3,
                "a target that is no text": group(targets=[3]),
                "targets that are no list": group(targets="Linear"),
                "weights that are no object": group(weights=[1]),
                "no group size": group(weights={"num_bits": 4, "strategy": "group"}),
                "a list as a strategy": group(weights={"num_bits": 8, "strategy": ["group"]}),
                "a format that is no text": group(format=[]),
                "inputs that are no object": group(input_activations=[1]),
                "a list as the inputs' strategy": group(input_activations={"strategy": []}, format="int-quantized"),
                "half of a pattern": group(targets=["re:(("]),
                "an endless pattern": group(targets=["re:" + "(" * 600 + ")" * 600]),
                "a million patterns": group(targets=[f"re:{n}" for n in range(1000)]),
            }.items()
        ),
        pytest.param({"quant_method": "gptq", "bits": 4, "dynamic": {"(": {}}}, id="half of gptq's pattern"),
        pytest.param({"quant_method": "gptq", "bits": 4, "checkpoint_format": []}, id="a list as gptq's version"),
        pytest.param({"quant_method": "bitsandbytes", "load_in_8bit": [1]}, id="a list as a flag"),
    ],
)
def test_a_quantization_config_of_other_types(config):
    with pytest.raises(InputError, match=r"^where: quantization_config") as caught:
        read_layout({"quantization_config": config}, "where")
    assert len(str(caught.value)) < 600


NAME = "model.layers.10.self_attn.q_proj"


def test_a_pattern_that_backtracking_never_ends():
    assert not Pattern("(.*)*" * 12 + "X$", "here").matches(NAME)
    assert Pattern("(a*)*(a|a)*b", "here").matches("a" * 500 + "b")
    with pytest.raises(InputError, match=f"nested deeper than {MOST_DEPTH}"):
        Pattern("(" * 80 + "a" + ")" * 80, "here")
    for text in (r"(a)\1", "(?i)a", "(?i:a)", "(?<=a)b", "(?>a*)a", "a{1,60000}", "a" * 1001):
        with pytest.raises(InputError, match=r"^here: "):
            Pattern(text, "here")


@pytest.mark.parametrize(
    "text",
    [
        r".*self_attn.*", r"model\.layers\.\d+\.(self_attn|mlp)\..*proj$", r"(?!.*lm_head).*$", r"^model", r".*j\Z",
        r"[a-m]{5}\.\w+\.1[^1-9]\.", r".*\bq_proj$", r".*\blayers\B", r"(model|lm_head)?\.?layers", r"model\.l*?a+",
    ],
)  # fmt: skip
@pytest.mark.parametrize("name", [NAME, "lm_head", "", "model.layers.1\n"])
def test_patterns_of_published_models(text, name):
    assert Pattern(text, "here").matches(name) is bool(re.match(text, name))


PARTS = st.recursive(
    st.sampled_from(["a", "b", ".", "[ab]", "[^a]", r"\d", "^", "$", r"\b", ""]),
    lambda inner: st.one_of(
        st.tuples(inner, inner).map("".join),
        st.tuples(inner, inner).map(lambda pair: f"({pair[0]}|{pair[1]})"),
        st.tuples(inner, st.sampled_from(["*", "+", "?", "*?", "{2}", "{1,3}", "{0,2}?"])).map(
            lambda pair: f"(?:{pair[0]}){pair[1]}"
        ),
        inner.map(lambda text: f"(?={text})"),
        inner.map(lambda text: f"(?!{text})"),
    ),
    max_leaves=6,
)


@given(PARTS, st.text("ab1", max_size=6))
@settings(max_examples=300, deadline=None)
def test_patterns_as_python_matches_them(text, name):
    assert Pattern(text, "here").matches(name) is bool(re.match(text, name)), (text, name)


def test_a_tokenizer_that_panics():
    tokenizer = Tokenizer(models.BPE(vocab={"a": 0}, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex(r"^(a|a)*$"), "isolated")
    ours = OurTokenizer(TokenizerInfo(tokenizer.to_str(), None, None, False, None))
    with pytest.raises(InputError, match="tokenizer cannot cut"):
        ours.encode("a" * 64 + "b")


class PanicException(BaseException):
    """As PyO3 names its own."""


REPORT = b"before\n\nthread 'x' panicked at x.rs:6:2:\nOnig\nbehind\n"


def panic():
    with pytest.raises(ValueError, match="Onig"), panics_as(ValueError):
        os.write(2, REPORT)
        raise PanicException("Onig")


def test_the_report_of_a_panic_is_left_out_and_nothing_else(capfd, monkeypatch):
    monkeypatch.delenv("RUST_BACKTRACE", raising=False)
    panic()
    assert capfd.readouterr().err == "before\nbehind\n"
    with panics_as(ValueError):
        os.write(2, REPORT)
    assert capfd.readouterr().err == REPORT.decode()


async def panic_in_a_loop():
    panic()


def panic_in_a_thread():
    thread = threading.Thread(target=panic)
    thread.start()
    thread.join()


@pytest.mark.parametrize("call", [panic_in_a_thread, lambda: asyncio.run(panic_in_a_loop())], ids=["thread", "loop"])
def test_a_server_holds_no_stderr(capfd, monkeypatch, call):
    monkeypatch.delenv("RUST_BACKTRACE", raising=False)
    call()
    assert capfd.readouterr().err == REPORT.decode()


def test_a_backtrace_that_was_asked_for_is_printed(capfd, monkeypatch):
    monkeypatch.setenv("RUST_BACKTRACE", "1")
    panic()
    assert capfd.readouterr().err == REPORT.decode()


@pytest.mark.parametrize(
    "written, left",
    [
        (b"a\n\nthread '<unnamed>' (15) panicked at src/lib.rs:6:2:\nOnig: over\nb\n", b"a\nb\n"),
        (b"thread 'x' panicked at x.rs:6:2:\nOnig: over\nnote: run with `RUST_BACKTRACE=1` for it\n", b""),
        (b"\nthread 'x' panicked at x.rs:6:2:\nanother\n", b"\nthread 'x' panicked at x.rs:6:2:\nanother\n"),
    ],
    ids=["between lines", "note", "of another panic"],
)
def test_reports_of_panics(written, left):
    assert without_reports(written, ["Onig: over"]) == left


def test_a_tokenizer_without_its_unknown_token():
    tokenizer = Tokenizer(models.BPE(vocab={"a": 0}, merges=[], unk_token="gone"))
    ours = OurTokenizer(TokenizerInfo(tokenizer.to_str(), None, None, False, None))
    with pytest.raises(InputError, match=r"tokenizer cannot cut.*gone"):
        ours.encode("ab")


@pytest.mark.parametrize(
    "text",
    [
        "base: 2024-13-45", "base: !!int abc", "base: 0x_", "base: " + "[" * 3000, "base: !!float x", "base: !!bool x",
        "base: !!binary '*'", "base: !!timestamp x", "base: &a [*a]", "? [a]\n: b", "base: \x00",
        "a: &a [x]\n" + "".join(f"{b}: &{b} [{','.join(['*' + a] * 9)}]\n" for a, b in pairwise("abcdefghi")),
    ],
    ids=lambda text: repr(text[:24]),
)  # fmt: skip
def test_a_recipe_that_is_no_yaml(tmp_path, text):
    path = tmp_path / "r.yaml"
    path.write_text(text)
    with pytest.raises(InputError, match=r"not YAML|base|unknown keys") as caught:
        read_recipe(path)
    assert str(path) in str(caught.value) and len(str(caught.value)) <= MOST_CHARACTERS


def test_messages_are_bounded():
    assert len(str(InputError("x" * 10**6))) <= MOST_CHARACTERS
    assert str(InputError("begin " + "x" * 10**6 + " end")).startswith("begin ") and InputError("short").args == (
        "short",
    )
    assert bounded("x" * 100, 20) == "xxxxxxx ... xxxxxxx"
    for value in ([0] * 10**6, "x" * 10**6, {n: n for n in range(10**5)}, [[[[[0]]]]], 10**400, MemorySource().config):
        assert len(shown(value)) <= 100

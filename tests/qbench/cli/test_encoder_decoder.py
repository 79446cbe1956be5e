"""A T5 directory on the command line: commands that run it, and commands that refuse it."""

import json

import numpy as np
import pytest
from safetensors.numpy import save_file
from support.encoder_decoders import small_t5, t5_weights, write_t5
from tokenizers import Tokenizer, decoders, models, pre_tokenizers

from quant.artifacts.hf_encoder_decoder import EncoderDecoderSource
from quant.artifacts.tokenizer_json import load_tokenizer

LETTERS = "abcdefghijklmnopqrstuvwxyz"
WORDS = [f"\u2581{a}{b}" for a in LETTERS[:10] for b in LETTERS[:11]]
PIECES = ["<pad>", "</s>", "<unk>", "\u2581", *LETTERS, *WORDS]


@pytest.fixture
def t5(tmp_path):
    """A directory as published: a Unigram tokenizer that marks the beginnings of words."""
    config = small_t5(tie_word_embeddings=False, vocab_size=len(PIECES))
    folder = write_t5(tmp_path / "t5", config, t5_weights(config))
    tokenizer = Tokenizer(models.Unigram([(piece, -1.0 - len(piece)) for piece in PIECES], unk_id=2))
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    tokenizer.decoder = decoders.Metaspace()
    tokenizer.add_special_tokens(PIECES[:3])
    assert load_tokenizer(tokenizer.to_str(), "t5").get_vocab_size() == len(PIECES)
    (folder / "tokenizer.json").write_text(tokenizer.to_str(), encoding="utf-8")
    return folder


def test_generate_prints_the_text_of_an_encoder_decoder(qbench, t5):
    argv = ("generate", t5, "-n", "12", "--prompt")
    result = json.loads(qbench(*argv, "ab ac", "--json", "--logprobs", "1").out)
    assert (
        result["stop_reason"] in ("eos", "length")
        and result["text"]
        and sum(result["impls"].values()) == 2 * 6 + 3 * 10 + 1
    )
    assert [scores["top"][0][0] for scores in result["logprobs"]] == result["tokens"]
    assert qbench(*argv, "ab ac").out.rstrip("\n") == result["text"].rstrip("\n")
    assert json.loads(qbench(*argv, "ad ae", "--json").out)["tokens"] != result["tokens"], "the prompt is not read"
    assert qbench(*argv, "").status == 0


def test_doctor_examines_its_tensors(qbench, t5):
    outcome = qbench("doctor", t5)
    assert outcome.status == 0 and "decoder.block.2.layer.1.EncDecAttention.v.weight" in outcome.out
    assert "KV scales: n/a, an encoder-decoder has none" in outcome.out + outcome.err


@pytest.mark.parametrize(
    "argv",
    [
        ("eval", "{}", "--text", "{}/config.json"),
        ("bench", "{}"),
        ("quantize", "{}", "--recipe", "q8_0", "-o", "{}/x.gguf"),
        ("generate", "{}", "--recipe", "q8_0"),
        ("generate", "{}", "--kv", "kv-fp8"),
        ("sweep", "{}/sweep.yaml", "-o", "{}/run"),
    ],
    ids=lambda argv: " ".join(argv[:1] + argv[2:3]),
)
def test_commands_without_encoder_decoder_support_refuse_them(qbench, t5, argv):
    (t5 / "sweep.yaml").write_text(f"name: s\nmodels: [{t5}]\nrecipes: [q8_0]\nbench: {{pp: 8, tg: 2}}\n")
    before = set(t5.iterdir())
    qbench(*(word.format(t5) for word in argv)).fails_with("T5ForConditionalGeneration is an encoder-decoder")
    assert set(t5.iterdir()) == before


POLICY_COMMANDS = {
    "eval": ("eval", "{}", "--text", "{}/config.json"),
    "bench": ("bench", "{}"),
    "generate": ("generate", "{}", "--prompt", "ab"),
    "engine": ("engine", "{}"),
    "serve": ("serve", "{}"),
}


@pytest.mark.parametrize("choice", ["--policy h2o:budget=16", "--policy quest:budget=48", "--prefill star:25%"])
@pytest.mark.parametrize("command", POLICY_COMMANDS)
def test_policies_and_patterns_are_refused_before_any_weight_is_read(qbench, t5, command, choice, monkeypatch):
    monkeypatch.setattr(EncoderDecoderSource, "read", lambda *_: pytest.fail("a weight was read"))
    argv = [word.format(t5) for word in POLICY_COMMANDS[command]]
    qbench(*argv, *choice.split()).fails_with(f"{t5}", "is an encoder-decoder")


def test_patterns_pay_nowhere(qbench, t5):
    qbench("breakeven", t5).fails_with(f"{t5}", "is an encoder-decoder, whose encoder is not causal")


def test_a_sweep_refuses_policies(qbench, t5):
    suite = t5 / "sweep.yaml"
    suite.write_text(
        f"name: s\nmodels: [{t5}]\nrecipes: [bf16]\npolicies: ['h2o:budget=16']\nbench: {{pp: 8, tg: 2}}\n"
    )
    qbench("sweep", suite, "-o", t5 / "run").fails_with("is an encoder-decoder")
    assert not (t5 / "run").exists()


@pytest.mark.parametrize("command", POLICY_COMMANDS)
def test_an_encoder_decoder_of_an_unknown_family(qbench, tmp_path, command):
    config = {"architectures": ["BartForConditionalGeneration"], "is_encoder_decoder": True, "d_model": 64}
    (tmp_path / "config.json").write_text(json.dumps(config))
    save_file({"shared": np.zeros(1, np.float32)}, tmp_path / "model.safetensors")
    argv = [word.format(tmp_path) for word in POLICY_COMMANDS[command]]
    qbench(*argv, "--policy", "h2o:budget=16").fails_with("architecture 'BartForConditionalGeneration' is unknown")


@pytest.mark.parametrize(
    "changes, parts",
    [
        ({"feed_forward_proj": "swish"}, ("config.json: feed_forward_proj 'swish' is not supported; known: relu",)),
        ({"d_kv": None}, ("'d_kv' is missing",)),
        ({"d_ff": 80}, ("DenseReluDense.wi.weight' has shape (96, 64), config.json says (80, 64)",)),
        ({"num_decoder_layers": 4}, ("decoder.block.3", "is missing")),
        ({"num_decoder_layers": 2}, ("decoder.block.2", "it would be lost")),
        ({"relative_attention_max_distance": 16}, ("relative_attention_max_distance 16, expected",)),
        ({"eos_token_id": 1000}, ("token id 1000 is outside the vocabulary",)),
    ],
    ids=lambda value: "-".join(value) if isinstance(value, dict) else "",
)
def test_bad_directories(qbench, t5, changes, parts):
    config = json.loads((t5 / "config.json").read_text())
    (t5 / "config.json").write_text(json.dumps(config | changes))
    qbench("generate", t5, "--prompt", "a").fails_with(*parts)

"""T5 against transformers: the encoder, and the decoder whole, step by step, in batches and greedily."""

import pytest
import torch
from support.array_source import ArraySource
from support.close import assert_close
from support.encoder_decoders import small_t5, t5_weights, write_t5

from qbench.runtime import Sampling, generate
from qbench.runtime.encoder_decoder import load_encoder_decoder
from qbench.sources import open_source

LOGITS_ATOL = 1e-4  # the project's promise for float32 logits of order 1
CONFIGS = {
    "relu, tied": {},
    "gated gelu, own head (T5 1.1)": {"feed_forward_proj": "gated-gelu", "tie_word_embeddings": False},
    "gated silu": {"feed_forward_proj": "gated-silu"},
    "gelu": {"feed_forward_proj": "gelu"},
    "few buckets": {"relative_attention_num_buckets": 8, "relative_attention_max_distance": 20},
    "mT5": {
        "architectures": ["MT5ForConditionalGeneration"],
        "model_type": "mt5",
        "feed_forward_proj": "gated-gelu",
        "tie_word_embeddings": False,
    },
}
cases = pytest.mark.parametrize("changes", CONFIGS.values(), ids=CONFIGS.keys())


def random_tokens(*shape: int, seed: int = 1) -> torch.Tensor:
    return torch.randint(2, 160, shape, generator=torch.Generator().manual_seed(seed))


def oracle(folder):
    transformers = pytest.importorskip("transformers")
    model, info = transformers.AutoModelForSeq2SeqLM.from_pretrained(
        folder, dtype=torch.float32, output_loading_info=True
    )
    problems = {kind: sorted(info[kind]) for kind in ("missing_keys", "unexpected_keys", "mismatched_keys")}
    assert not any(problems.values()), problems
    return model.eval()


@cases
def test_logits_equal_transformers(tmp_path, changes):
    config = small_t5(**changes)
    folder = write_t5(tmp_path / "t5", config, t5_weights(config))
    inputs, tokens = random_tokens(2, 70), random_tokens(2, 60, seed=2)
    with torch.inference_mode():
        theirs = oracle(folder)(input_ids=inputs, decoder_input_ids=tokens, use_cache=False)
    assert theirs.logits.std() > 0.3, "logits this small would let a wrong model pass"
    for impl in ("auto", "reference"):
        model = load_encoder_decoder(open_source(str(folder)), impl=impl)
        for row, expected in zip(inputs.tolist(), theirs.encoder_last_hidden_state, strict=True):
            assert_close(model.encode(row)[0], expected, atol=LOGITS_ATOL)
        decoder = model.condition(inputs.tolist())
        assert_close(decoder(tokens), theirs.logits, atol=LOGITS_ATOL)
        cache = decoder.new_cache(capacity=7)
        chunks = tokens.split([40] + [1] * 20, dim=1)
        assert_close(torch.cat([decoder(chunk, cache) for chunk in chunks], dim=1), theirs.logits, atol=LOGITS_ATOL)
        assert_close(decoder(tokens, last_only=True)[:, 0], theirs.logits[:, -1], atol=LOGITS_ATOL)


@pytest.fixture(scope="module")
def model():
    config = small_t5(feed_forward_proj="gated-gelu")
    return load_encoder_decoder(ArraySource(config, t5_weights(config)))


def test_greedy_text_is_that_of_transformers(tmp_path):
    config = small_t5(tie_word_embeddings=False, num_decoder_layers=2)  # its cache counts the layers of the encoder
    folder = write_t5(tmp_path / "t5", config, t5_weights(config))
    inputs = random_tokens(1, 30)
    expected = oracle(folder).generate(inputs, max_new_tokens=40, do_sample=False, eos_token_id=None)[0, 1:]
    decoder = load_encoder_decoder(open_source(str(folder))).condition(inputs.tolist())
    got = generate(decoder, [0], Sampling(), 40, stop_ids=())
    assert list(got.tokens) == expected.tolist() and len(set(got.tokens)) > 5


@pytest.mark.parametrize("seq_lens", [(9, 9, 9), (1, 30, 7)], ids=["alike", "unlike"])
def test_inputs_of_a_batch_do_not_see_each_other(model, seq_lens):
    inputs = [random_tokens(seq_len, seed=seq_len + n).tolist() for n, seq_len in enumerate(seq_lens)]
    tokens = random_tokens(len(inputs), 12)
    together = model.condition(inputs)(tokens)
    for n, row in enumerate(inputs):
        assert_close(together[n], model.condition([row])(tokens[n : n + 1])[0], atol=LOGITS_ATOL)


def test_sequences_of_unlike_lengths(model):
    inputs = [random_tokens(seq_len, seed=seq_len).tolist() for seq_len in (5, 11, 3)]
    tokens = random_tokens(3, 10)
    decoder = model.condition(inputs)
    cache = decoder.new_cache()
    first = decoder(tokens, cache, num_valid=[4, 10, 1])
    second = decoder(random_tokens(3, 2, seed=3), cache, last_only=True)
    assert cache.seq_lens.tolist() == [6, 12, 3]
    for n, count in enumerate((4, 10, 1)):
        alone = model.condition([inputs[n]])
        own = alone.new_cache()
        assert_close(first[n, :count], alone(tokens[n : n + 1, :count], own)[0], atol=LOGITS_ATOL)
        assert first[n, count:].isnan().all()
        after = alone(random_tokens(3, 2, seed=3)[n : n + 1], own, last_only=True)
        assert_close(second[n], after[0], atol=LOGITS_ATOL)


def test_padding_on_the_left_is_not_seen(model):
    inputs = [random_tokens(6).tolist(), random_tokens(8, seed=2).tolist()]
    tokens = random_tokens(2, 9)
    decoder = model.condition(inputs)
    cache = decoder.new_cache()
    cache.pad_left([3, 0])
    padded = decoder(tokens, cache)
    assert_close(padded[0, 3:], model.condition(inputs[:1])(tokens[:1, 3:])[0], atol=LOGITS_ATOL)


def test_quantized_weights_run():
    """The formats that kernels multiply serve here as they do in decoders."""
    config = small_t5()
    weights = t5_weights(config)
    formats = {name: "q8_0" for name, w in weights.items() if w.ndim == 2 and w.shape[1] % 32 == 0}
    exact = load_encoder_decoder(ArraySource(config, weights)).condition([[5, 6, 7]])(random_tokens(1, 20))
    model = load_encoder_decoder(ArraySource(config, weights, formats))
    error = (model.condition([[5, 6, 7]])(random_tokens(1, 20)) - exact).pow(2).mean().sqrt() / exact.std()
    # Weights and inputs are off by a uniform half step of 127 in absmax, about 3 deviations; 10 products a layer.
    assert_close(error, 0, atol=3 / 127 / 12**0.5 * (2 * 10 * 3) ** 0.5)
    assert error > 2**-12, "nothing was quantized"

"""Batches of sequences of unlike lengths: each is as it is alone."""

import numpy as np
import pytest
import torch
from support.architectures import random_weights, small_config
from support.array_source import ArraySource
from support.caches import is_in_torch
from support.close import assert_close

from qbench.run.options import RunOptions
from qbench.runtime import Model, load_model
from qbench.runtime.caches.cache import Cache
from qbench.runtime.caches.no_cache import NoCache
from qbench.runtime.caches.step import varlen_step
from quant.errors import InputError
from quant.extension import has_cpu_kernels
from quant.kv import KV_FORMATS, KVScheme
from quant.kv.scheme import CONFIG_KEY
from quant.models import ModelConfig

LENGTHS = (7, 1, 19, 12)  # of the prompts of a batch
FLOAT_ATOL = 1e-4  # torch's products of more rows sum in another order: the project's promise for float32 logits


def model_of(
    architecture: str = "llama",
    kv: str | None = None,
    weights: str = "q8_0",
    impl: str = "auto",
    path: str = "auto",
    **options,
) -> Model:
    config = small_config(architecture, **({"head_dim": 32} if architecture != "deepseek2" else {}))
    values = random_weights(config)
    entry = {} if kv is None else {CONFIG_KEY: KVScheme(KV_FORMATS[kv]).config_entry()}
    formats = {name: weights for name, value in values.items() if value.ndim == 2}
    return load_model(ArraySource(config | entry, values, formats), RunOptions(**options), impl=impl, path=path)


def prompts() -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(3)
    return [torch.randint(150, (seq_len + 4,), generator=generator) for seq_len in LENGTHS]


def padded(rows: list[torch.Tensor], on: str) -> torch.Tensor:
    """[B, T] of the rows, with ids that no vocabulary has as padding."""
    width = max(map(len, rows))
    spaces = [torch.full((width - len(row),), -1) for row in rows]
    return torch.stack([torch.cat((r, s) if on == "right" else (s, r)) for r, s in zip(rows, spaces, strict=True)])


def feed(model: Model, cache: Cache, on: str, last_only: bool) -> list[torch.Tensor]:
    """Logits of each sequence: of its prompt, of three tokens more for all, and of one."""
    rows = prompts()
    tokens = padded([row[:-4] for row in rows], on)
    if on == "left":
        cache.pad_left([tokens.shape[1] - seq_len for seq_len in LENGTHS])
        logits = [model(tokens, cache, last_only=last_only)]
    else:
        logits = [model(tokens, cache, last_only=last_only, num_valid=LENGTHS)]
    if not last_only:
        assert_nan_at_padding(logits[0], on)
    rest = torch.stack([row[-4:] for row in rows])
    logits += [model(part, cache, last_only=last_only) for part in rest.split((3, 1), dim=1)]
    assert cache.seq_lens.tolist() == [seq_len + 4 for seq_len in LENGTHS]
    assert cache.seq_len == max(LENGTHS) + 4
    return [torch.cat([real(part[b]) for part in logits]) for b in range(len(rows))]


def real(logits: torch.Tensor) -> torch.Tensor:
    return logits[~logits.isnan().any(-1)]


def assert_nan_at_padding(logits: torch.Tensor, on: str) -> None:
    is_padding = (padded([torch.zeros(seq_len) for seq_len in LENGTHS], on) == -1)[..., None]
    assert_close(logits.isnan(), is_padding.expand_as(logits))


def feed_alone(model: Model, last_only: bool) -> list[torch.Tensor]:
    outputs = []
    for row in prompts():
        cache = model.new_cache()
        parts = [model(part[None], cache, last_only=last_only) for part in row.split((len(row) - 4, 3, 1))]
        outputs.append(torch.cat(parts, dim=1)[0])
    return outputs


@pytest.mark.skipif(not has_cpu_kernels(), reason="the C++ extension is not built")
@pytest.mark.parametrize("last_only", [False, True], ids=["all", "last only"])
@pytest.mark.parametrize("on", ["left", "right"])
@pytest.mark.parametrize(
    "path, kv",
    [(path, kv) for path in ("layers", "steps", "net-steps", "python") for kv in (None, "kv-f16", "kv-int4")]
    + [(path, "kv-int4-kc") for path in ("auto", "net-steps", "python")],  # which no store of the kernels holds
)
@pytest.mark.usefixtures("inputs_of_8_bits")  # of many tokens as of few
def test_on_the_kernels_bit_for_bit(path, kv, on, last_only):
    model = model_of(kv=kv, path=path)
    got = feed(model, model.new_cache(len(LENGTHS), capacity=3), on, last_only)
    for one, expected in zip(got, feed_alone(model, last_only), strict=True):
        assert_close(one, expected)


@pytest.mark.parametrize("on", ["left", "right"])
@pytest.mark.parametrize(
    "architecture, kv",
    [("llama", None), ("llama", "kv-fp8"), ("llama", "kv-int4-kc"), ("qwen3moe", None), ("deepseek2", None)],
)
def test_on_torch(architecture, kv, on):
    model = model_of(architecture, kv, "f32", impl="reference")
    got = feed(model, model.new_cache(len(LENGTHS), capacity=3), on, last_only=False)
    for one, expected in zip(got, feed_alone(model, last_only=False), strict=True):
        if kv is None:
            assert_close(one, expected, atol=FLOAT_ATOL)
        else:  # a key's last bit moves it to the next code now and then
            assert_close((one - expected).pow(2).mean().sqrt() / expected.std(), 0, atol=2**-3 / 16)


def test_without_a_cache():
    model = model_of(weights="f32", impl="reference")
    logits = model(padded(prompts(), "right"), num_valid=[seq_len + 4 for seq_len in LENGTHS])
    for row, tokens in zip(logits, prompts(), strict=True):
        assert_close(real(row), model(tokens[None])[0], atol=FLOAT_ATOL)


def test_sequences_that_are_equal_again_are_read_as_one_batch():
    model = model_of()
    cache = model.new_cache(len(LENGTHS))
    model(padded(prompts(), "right"), cache, num_valid=LENGTHS)
    assert cache.cu_seqlens is not None
    cache.truncate(1)
    model(torch.ones(len(LENGTHS), 2, dtype=torch.int64), cache, num_valid=[2] * len(LENGTHS))
    model(torch.ones(len(LENGTHS), 2, dtype=torch.int64), cache)
    assert cache.cu_seqlens is None and cache.seq_lens.tolist() == [5] * len(LENGTHS)


def test_truncate_keeps_shorter_sequences():
    for cache in (model_of().new_cache(len(LENGTHS)), model_of(impl="reference").new_cache(len(LENGTHS))):
        model_of()(padded(prompts(), "right"), cache, num_valid=LENGTHS)
        cache.truncate(10)
        assert cache.seq_lens.tolist() == [7, 1, 10, 10] and cache.seq_len == 10


def test_step_of_a_textbook_loop():
    rng = np.random.default_rng(1)
    tokens = torch.from_numpy(rng.integers(0, 100, (4, 9)))
    seq_lens, counts, left = np.array([3, 0, 8, 8]), np.array([1, 9, 4, 2]), np.array([2, 0, 5, 1])
    step = varlen_step(tokens, seq_lens, counts, left)
    expected = [
        (b * 9 + left[b] + i, int(tokens[b, left[b] + i]), seq_lens[b] + i) for b in range(4) for i in range(counts[b])
    ]
    assert list(zip(step.places.tolist(), step.tokens[0].tolist(), step.positions.tolist(), strict=True)) == expected
    assert step.cu_seqlens.tolist() == [0, 1, 10, 14, 16]
    assert (step.seq_len, step.end) == (8, 12)


@pytest.mark.parametrize(
    "num_valid, message",
    [([1, 2], "expected 1 to 3"), ([0, 1, 2, 3], "expected 1 to 3"), ([1, 4, 1, 1], "expected 1 to 3")],
    ids=["too few", "an empty row", "more than there are"],
)
def test_bad_numbers_of_tokens(num_valid, message):
    model = model_of()
    cache = model.new_cache(4)
    with pytest.raises(InputError, match=message):
        model(torch.zeros(4, 3, dtype=torch.int64), cache, num_valid=num_valid)
    assert cache.seq_len == 0


def test_another_batch_than_the_caches():
    model = model_of()
    with pytest.raises(InputError, match="tokens of 3 sequences, expected 2"):
        model(torch.zeros(3, 1, dtype=torch.int64), model.new_cache(2))


@pytest.mark.parametrize("columns", [[1], [1, -1], [3, 0]], ids=["too few", "negative", "nothing left"])
def test_bad_padding_on_the_left(columns):
    model = model_of()
    cache = model.new_cache(2)
    with pytest.raises(InputError, match=r"padding|expected 1 to 3"):
        cache.pad_left(columns)
        model(torch.zeros(2, 3, dtype=torch.int64), cache)


def test_padding_on_the_left_comes_before_the_first_token():
    model = model_of()
    cache = model.new_cache(2)
    model(torch.zeros(2, 3, dtype=torch.int64), cache)
    with pytest.raises(InputError, match="before the first token"):
        cache.pad_left([1, 0])


def test_the_context_bounds_the_longest():
    model = model_of()
    cache = model.new_cache(2)
    model(torch.zeros(2, 250, dtype=torch.int64), cache, num_valid=[250, 3], last_only=True)
    with pytest.raises(InputError, match="257 tokens, but the model's context holds 256"):
        model(torch.zeros(2, 7, dtype=torch.int64), cache)
    model(torch.zeros(2, 7, dtype=torch.int64), cache, num_valid=[6, 7])
    assert cache.seq_lens.tolist() == [256, 10]


def test_which_caches_these_are():
    assert is_in_torch(model_of().new_cache()) == (not has_cpu_kernels())
    assert NoCache(ModelConfig.from_hf(small_config())).seq_lens.tolist() == [0]

"""Every mode of latent attention against transformers and against the plain one."""

import pytest
import torch
from support.architectures import random_weights, small_config
from support.array_source import ArraySource
from support.close import assert_close
from support.transformers_model import logits_of, transformers_model

from qbench.runtime import load_model
from qbench.runtime.attention.mla_modes import MODES, choose_mode
from qbench.runtime.caches.kinds import plan_cache
from qbench.runtime.caches.no_cache import NoCache
from qbench.runtime.caches.rules import Asked
from qbench.runtime.caches.storage.latent_format import MODE_VARIABLE
from qbench.runtime.layers.latent import LatentAttention
from qbench.runtime.layers.latent_kernel import KernelLatentAttention
from quant.errors import InputError
from quant.extension import has_cpu_kernels
from quant.kv import KV_FORMATS, KVScheme
from quant.models import ModelConfig

TOKENS = torch.randint(160, (2, 30), generator=torch.Generator().manual_seed(1))
STEPS = (13, 1, 6, 1, 1, 8)  # a prompt, single tokens, and more at once with others held
SHAPES = {
    "plain queries": {},
    "low-rank queries": {"q_lora_rank": 24},
    "kernels' sizes": {"kv_lora_rank": 64, "qk_rope_head_dim": 16},
    "values wider than keys' part": {"kv_lora_rank": 64, "qk_rope_head_dim": 16, "v_head_dim": 32},
}
TOLERANCE = 1e-4  # float32 logits of order 1 through 3 layers
# A row that float32 sums in another order round the other way is off by a step, of a logit of order 1.
STEPS_OF = {"kv-f16": 2**-11, "kv-bf16": 2**-8, "kv-fp8": 2**-4, "kv-int8": 2**-6, "kv-int4": 2**-2}


def source_of(shape: str, **changes) -> ArraySource:
    config = small_config("deepseek2", **SHAPES[shape], **changes)
    return ArraySource(config, random_weights(config))


def stepwise(model, cache) -> torch.Tensor:
    return torch.cat([model(part, cache) for part in TOKENS.split(STEPS, 1)], 1)


def needs_torch(shape: str, impl: str) -> bool:
    return impl == "reference" or "queries" in shape or not has_cpu_kernels()


@pytest.mark.parametrize("impl", ["auto", "reference"])
@pytest.mark.parametrize("shape", SHAPES)
def test_every_plan_gives_the_logits_of_transformers(tmp_path, shape, impl):
    source = source_of(shape)
    expected = logits_of(transformers_model(source.config, random_weights(source.config), tmp_path), TOKENS)
    model = load_model(source, impl=impl)
    assert type(model.blocks[0].attention) is (LatentAttention if needs_torch(shape, impl) else KernelLatentAttention)
    for mode in (None, *MODES):
        cache = model.new_cache(2, 4, mode=mode)
        assert (cache.latents is not None) == (mode != "decompressed")
        assert_close(stepwise(model, cache), expected, atol=TOLERANCE)
        assert cache.seq_len == TOKENS.shape[1]


def test_yarn_softmax_scale_reaches_every_plan(tmp_path):
    scaling = {"type": "yarn", "factor": 4.0, "original_max_position_embeddings": 64, "beta_fast": 32, "beta_slow": 1}
    source = source_of("kernels' sizes", rope_scaling=scaling | {"mscale": 0.707, "mscale_all_dim": 0.707})
    assert ModelConfig.of(source).rope.softmax_scale > 1
    model = load_model(source)
    expected = model(TOKENS)
    for mode in MODES:
        assert_close(stepwise(model, model.new_cache(2, 4, mode=mode)), expected, atol=TOLERANCE)


@pytest.mark.parametrize("name, row_bytes", [("kv-f16", 160), ("kv-bf16", 160), ("kv-int8", 100), ("kv-int4", 72)])
@pytest.mark.parametrize("impl", ["exact", "reference"])
def test_formats_round_rows_once_under_any_plan(impl, name, row_bytes):
    """Tiles of AMX, which "exact" does without, round queries and weights, too."""
    source = source_of("kernels' sizes")
    source.config["kv_cache"] = {"format": name}
    model = load_model(source, impl=impl)
    whole = model(TOKENS)
    for mode in ("compressed", "absorbed", "elided", "materialised"):
        cache = model.new_cache(2, 4, mode=mode)
        assert cache.bytes_per_token == 3 * row_bytes
        assert_close(stepwise(model, cache), whole, atol=STEPS_OF[name])
    del source.config["kv_cache"]
    assert (load_model(source, impl=impl)(TOKENS) - whole).abs().max() > STEPS_OF[name] / 2, "nothing was rounded"


def test_fp8_rows_take_656_bytes_of_the_published_size():
    source = source_of("plain queries", kv_lora_rank=512, qk_rope_head_dim=64)
    source.config["kv_cache"] = {"format": "kv-fp8"}
    model = load_model(source, impl="exact")
    whole = model(TOKENS)
    cache = model.new_cache(2, 4, mode="elided")
    assert cache.bytes_per_token == 3 * 656
    assert_close(stepwise(model, cache), whole, atol=STEPS_OF["kv-fp8"])


def test_a_format_without_rows_keeps_heads():
    source = source_of("kernels' sizes")
    source.config["kv_cache"] = {"format": "kv-fp8-e5m2"}
    model = load_model(source)
    assert model.new_cache().latents is None
    with pytest.raises(InputError, match="'elided' keeps latents, which kv-fp8-e5m2 does not hold here; known: kv-f16"):
        model.new_cache(mode="elided")


def test_a_batch_gives_the_results_of_separate_sequences():
    model = load_model(source_of("kernels' sizes"))
    for mode in ("absorbed", "elided"):
        both = stepwise(model, model.new_cache(2, 4, mode=mode))
        for row in range(2):
            cache = model.new_cache(1, 64, mode=mode)
            alone = [model(part[row : row + 1], cache) for part in TOKENS.split(STEPS, 1)]
            assert_close(torch.cat(alone, 1)[0], both[row], atol=TOLERANCE)


@pytest.mark.parametrize("impl", ["auto", "reference"])
@pytest.mark.parametrize("latent_tokens", [1, 40, 10_000], ids=["one sequence", "some", "all"])
def test_sequences_in_turn_give_the_bits_of_all_at_once(monkeypatch, impl, latent_tokens):
    model, tokens = load_model(source_of("kernels' sizes"), impl=impl), torch.cat((TOKENS, TOKENS.flip(1), TOKENS + 1))

    def logits() -> torch.Tensor:
        cache = model.new_cache(6, 4, mode="compressed")
        return torch.cat([model(part, cache) for part in (tokens % 160).split((13, 17), 1)], 1)

    expected = logits()
    monkeypatch.setattr("qbench.runtime.layers.latent.LATENT_TOKENS", latent_tokens)
    assert_close(logits(), expected)


def few_up_to(count: int):
    """choose_mode that takes so many tokens for few"""
    return lambda sizes, heads, held, new, window: MODES["elided" if new <= count else "compressed"]


@pytest.mark.parametrize("impl", ["auto", "reference"])
@pytest.mark.parametrize("mode", [None, *MODES])
def test_sequences_of_unlike_lengths_give_their_separate_results(monkeypatch, impl, mode):
    monkeypatch.setattr("qbench.runtime.layers.latent_kernel.choose_mode", few_up_to(4))
    model, counts = load_model(source_of("kernels' sizes"), impl=impl), [(12, 1), (1, 9), (7, 30 - 7)]
    cache = model.new_cache(3, 4, mode=mode)
    tokens = torch.cat((TOKENS, TOKENS.flip(1)[:1]))
    held, got = [0, 0, 0], [[], [], []]
    for step in range(2):
        rows = torch.zeros(3, max(count[step] for count in counts), dtype=torch.int64)
        for b, count in enumerate(counts):
            rows[b, : count[step]] = tokens[b, held[b] : held[b] + count[step]]
            held[b] += count[step]
        logits = model(rows, cache, num_valid=[count[step] for count in counts])
        for b, count in enumerate(counts):
            got[b].append(logits[b, : count[step]])
    assert cache.seq_lens.tolist() == held
    for b, count in enumerate(counts):
        alone = model.new_cache(1, 4, mode=mode)
        expected = [model(part, alone)[0] for part in tokens[b : b + 1, : sum(count)].split(count, 1)]
        assert_close(torch.cat(got[b]), torch.cat(expected), atol=TOLERANCE)


def test_truncated_it_goes_on_from_there():
    model = load_model(source_of("kernels' sizes"))
    cache = model.new_cache(2, 4)
    expected = stepwise(model, cache)
    cache.truncate(13)
    assert_close(model(TOKENS[:, 13:14], cache), expected[:, 13:14])
    with pytest.raises(ValueError, match="truncate to 15, expected 0 to 14"):
        cache.truncate(15)


def test_the_plan_comes_from_the_number_of_tokens(monkeypatch):
    mla = ModelConfig.from_hf(small_config("deepseek2", kv_lora_rank=512, qk_nope_head_dim=128, v_head_dim=128)).mla
    assert choose_mode(mla, 16, 4096, 1).name == "elided"
    assert choose_mode(mla, 16, 4096, 100000).name == "compressed"
    model = load_model(source_of("kernels' sizes"))
    monkeypatch.setenv(MODE_VARIABLE, "decompressed")
    assert model.new_cache().latents is None
    monkeypatch.setenv(MODE_VARIABLE, "absorbed")
    assert model.new_cache().latents.mode == "absorbed"
    assert model.new_cache(mode="compressed").latents.mode == "compressed"


def test_bad_plans():
    model = load_model(source_of("plain queries"))
    with pytest.raises(InputError, match="'fast' is unknown; known: decompressed, compressed, absorbed"):
        model.new_cache(mode="fast")
    config = small_config("llama")
    with pytest.raises(InputError, match="'elided' is one of latent attention, which LlamaForCausalLM has not"):
        load_model(ArraySource(config, random_weights(config))).new_cache(mode="elided")


@pytest.mark.parametrize("name", [None, "kv-bf16"])
def test_decompressed_values_keep_their_own_width(name):
    source = source_of("plain queries", v_head_dim=16)
    if name:
        source.config["kv_cache"] = {"format": name}
    model = load_model(source)
    cache = model.new_cache(2, 4, mode="decompressed")
    config = model.config
    assert cache.bytes_per_token == (2 if name else 4) * config.num_layers * config.num_heads * (24 + 16)
    assert cache.bytes_per_token == plan_cache(Asked(config, model.kv, mode="decompressed")).bytes_per_token
    past = NoCache(config, 2, model.kv) if name else None
    assert_close(stepwise(model, cache), model(TOKENS, past), atol=STEPS_OF[name] if name else TOLERANCE)


def test_predicted_bytes_are_the_published_ones_of_deepseek_v2():
    """128 heads x (192 + 128) x 2 bytes, and (512 + 64) x 2, per token and layer in bfloat16."""
    sizes = {"kv_lora_rank": 512, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "v_head_dim": 128}
    heads = {"num_attention_heads": 128, "num_key_value_heads": 128}
    config = ModelConfig.from_hf(small_config("deepseek2", num_hidden_layers=1, q_lora_rank=1536, **sizes, **heads))
    scheme = KVScheme(KV_FORMATS["kv-bf16"])
    in_mode = {
        mode: plan_cache(Asked(config, scheme, mode=mode)).bytes_per_token for mode in ("decompressed", "elided", None)
    }
    assert in_mode == {"decompressed": 81920, "elided": 1152, None: 1152}

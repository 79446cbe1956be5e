"""Layers that stream give the model's own logits, and show every linear's input on the way."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from support.architectures import EVERY_EXPERT, KINDS, random_weights, small_config
from support.array_source import ArraySource
from support.calibration import layer_tensors
from support.close import assert_close

from qbench.runtime import ModelConfig, load_model
from qbench.runtime.caches.step import Past
from qbench.runtime.streamed import StreamedDecoder
from quant.errors import InputError
from quant.formats import get_format
from quant.kv import KVScheme, get_kv_format
from quant.kv.source import KVSource

TOKENS = torch.randint(160, (2, 40), generator=torch.Generator().manual_seed(1))


class Recorder:
    def __init__(self) -> None:
        self.seen: dict[str, torch.Tensor] = {}
        self.shared: list[tuple[str, ...]] = []
        self.kv: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}

    def inputs(self, names, x):
        self.shared.append(tuple(names))
        assert not self.seen.keys() & set(names), "a linear was shown twice"
        self.seen |= {name: x.flatten(0, -2).clone() for name in names}

    def keys_values(self, layer, k, v):
        self.kv[layer] = (k.clone(), v.clone())


def decoder_of(kind: str, **changes):
    config = small_config(kind, **changes)
    source = ArraySource(config, random_weights(config))
    return source, StreamedDecoder(ModelConfig.of(source))


def hidden_states(source, decoder, observers=None) -> torch.Tensor:
    x = decoder.embed(layer_tensors(source, None), TOKENS)
    for index in range(decoder.config.num_layers):
        layer = decoder.layer(index, layer_tensors(source, index))
        x = layer(x, observers[index] if observers else None)
    return x


@pytest.mark.parametrize("kind", KINDS)
def test_streamed_layers_match_the_model(kind):
    source, decoder = decoder_of(kind)
    model = load_model(source, impl="reference")
    assert torch.equal(model.logits(hidden_states(source, decoder)), model(TOKENS))


@pytest.mark.parametrize("kv", ["kv-int8", "kv-fp8", "kv-f16"])
@pytest.mark.parametrize("kind", ["llama", "deepseek2"])
def test_layers_that_keep_a_kv_format(kind, kv):
    source, decoder = decoder_of(kind)
    x = decoder.embed(layer_tensors(source, None), TOKENS)
    for index in range(decoder.config.num_layers):
        x = decoder.layer(index, layer_tensors(source, index)).keeping(KVScheme(get_kv_format(kv)))(x)
    model = load_model(KVSource(source, kv), impl="reference")
    assert torch.equal(model.logits(x), model(TOKENS))
    assert not torch.equal(x, hidden_states(source, decoder))


@pytest.mark.parametrize("kind", KINDS)
def test_shown_rows_match_a_call(kind):
    source, decoder = decoder_of(kind)
    x = decoder.embed(layer_tensors(source, None), TOKENS)
    for index in range(decoder.config.num_layers):
        layer = decoder.layer(index, layer_tensors(source, index))
        called, shown = Recorder(), Recorder()
        y = layer(x, called)
        layer.show(x, shown)
        assert shown.seen.keys() == called.seen.keys()
        assert all(torch.equal(shown.seen[name], called.seen[name]) for name in called.seen)
        assert torch.equal(layer(x), y), "the layer gives its outputs again"
        x = y


@pytest.mark.parametrize("kind", KINDS)
def test_bf16_layers_are_close_to_the_model(kind):
    source, decoder = decoder_of(kind, **EVERY_EXPERT.get(kind, {}))
    rounding = StreamedDecoder(decoder.config, impl="bf16")
    x = decoder.embed(layer_tensors(source, None), TOKENS)
    for index in range(decoder.config.num_layers):
        tensors = layer_tensors(source, index)
        recorder = Recorder()
        exact, got = decoder.layer(index, tensors)(x), rounding.layer(index, tensors)(x, recorder)
        # Seven products on the longest way, each rounding three times by 2**-9, and each passing on earlier errors.
        # Gemma norms attention's outputs up to the size of the net's, with the softmax of rounded scores.
        change = (exact - x).norm()
        ways = 2 if kind.startswith("gemma") else 1
        assert 0 < (got - exact).norm() <= ways * 7 * 3 * 2**-9 * change
        x = exact


@pytest.mark.parametrize("kind", KINDS)
def test_an_observer_changes_nothing_and_sees_every_linear_once(kind):
    source, decoder = decoder_of(kind, **EVERY_EXPERT.get(kind, {}))
    observers = [Recorder() for _ in range(decoder.config.num_layers)]
    observed = hidden_states(source, decoder, observers)
    assert torch.equal(observed, hidden_states(source, decoder))
    for index, observer in enumerate(observers):
        linears = {name for name in layer_tensors(source, index) if len(source.tensors[name].shape) == 2}
        assert set(observer.seen) == linears
        assert all(x.shape[-1] == source.tensors[name].shape[1] for name, x in observer.seen.items())
        assert set(observer.kv) == {index}


def test_linears_of_one_input_are_shown_together():
    source, decoder = decoder_of("llama")
    observers = [Recorder() for _ in range(2)]
    hidden_states(source, decoder, observers)
    prefix = "model.layers.1"
    assert observers[1].shared == [
        tuple(f"{prefix}.self_attn.{name}_proj.weight" for name in "qkv"),
        (f"{prefix}.self_attn.o_proj.weight",),
        (f"{prefix}.mlp.gate_proj.weight", f"{prefix}.mlp.up_proj.weight"),
        (f"{prefix}.mlp.down_proj.weight",),
    ]


def test_shown_inputs_are_multiplied():
    source, decoder = decoder_of("llama", num_hidden_layers=1)
    recorder = Recorder()
    y = hidden_states(source, decoder, [recorder])
    weights = random_weights(small_config("llama", num_hidden_layers=1))

    def product(name):
        full = f"model.layers.0.{name}.weight"
        return F.linear(recorder.seen[full], torch.from_numpy(weights[full]))

    gate, up = product("mlp.gate_proj"), product("mlp.up_proj")
    assert_close(recorder.seen["model.layers.0.mlp.down_proj.weight"], F.silu(gate) * up, atol=1e-5)
    embedded = torch.from_numpy(weights["model.embed_tokens.weight"])[TOKENS].flatten(0, 1)
    assert_close(y.flatten(0, 1), embedded + product("self_attn.o_proj") + product("mlp.down_proj"), atol=1e-5)
    _, v = recorder.kv[0]
    assert_close(v.transpose(1, 2).flatten(2).flatten(0, 1), product("self_attn.v_proj"), atol=1e-5)


def test_keys_are_shown_rotated():
    source, decoder = decoder_of("llama", num_hidden_layers=1)
    recorder = Recorder()
    hidden_states(source, decoder, [recorder])
    model = load_model(source, impl="reference")
    cache = model.new_cache(batch=2)
    model(TOKENS, cache)
    k, v = recorder.kv[0]
    held = Past(cache.places.block_table, np.full(2, k.shape[2]))
    assert all(map(torch.equal, (k, v), cache.memories[0].read(held)))


def test_layers_take_any_format():
    source, decoder = decoder_of("qwen2", num_hidden_layers=1)
    q8_0 = {
        name: get_format("q8_0").quantize_ref(source.read(name).parts["blocks"].view(np.float32))
        if len(source.tensors[name].shape) == 2
        else source.read(name)
        for name in layer_tensors(source, 0)
    }
    x = decoder.embed(layer_tensors(source, None), TOKENS)
    exact = decoder.layer(0, layer_tensors(source, 0))(x)
    error = (decoder.layer(0, q8_0)(x) - exact).pow(2).mean().sqrt() / exact.std()
    assert 0 < error < 2**-7 * 7**0.5  # 7 products, each weight within half a step of 127


def test_windows_past_the_context_are_refused():
    source, decoder = decoder_of("llama", max_position_embeddings=39)
    with pytest.raises(InputError, match="40 tokens, but the model's context holds 39"):
        hidden_states(source, decoder)

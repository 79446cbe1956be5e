"""The step against transformers' Llama with the same weights, token by token over pages in no order."""

import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from gpu_kernels.decode.llama import LlamaShape, llama_logits, llama_step, random_llama
from gpu_kernels.decode.pages import step_inputs, zero_pages
from gpu_kernels.graphs import DecodeGraphs, eagerly

SHAPE = LlamaShape(
    hidden_size=128, num_layers=2, num_heads=4, num_kv_heads=2, head_dim=64, intermediate_size=160, vocab_size=61
)
PAGE_SIZE, NUM_STEPS = 16, 19  # on to a second page


@pytest.fixture(scope="module")
def model():
    return random_llama(SHAPE, dtype=torch.float16, device="cpu", positions=5 * PAGE_SIZE)


@pytest.fixture
def pages():
    return zero_pages(SHAPE.num_layers, 5, PAGE_SIZE, SHAPE.num_kv_heads, SHAPE.head_dim, torch.float16, "cpu")


@pytest.fixture(scope="module")
def theirs(model):
    """transformers' model in float64 with our weights, unstacked."""
    same = ("hidden_size", "head_dim", "intermediate_size", "vocab_size", "rope_theta", "rms_norm_eps")
    config = LlamaConfig(
        **{name: getattr(SHAPE, name) for name in same},
        num_hidden_layers=SHAPE.num_layers,
        num_attention_heads=SHAPE.num_heads,
        num_key_value_heads=SHAPE.num_kv_heads,
        tie_word_embeddings=True,
    )
    weights = {"model.embed_tokens.weight": model.head.weight, "model.norm.weight": model.norm}
    for i, layer in enumerate(model.layers):
        query, key, value = _weights(layer.qkv)
        gate, up = _weights(layer.gate_up)
        named = {"self_attn.q_proj": query, "self_attn.k_proj": key, "self_attn.v_proj": value}
        named |= {
            "self_attn.o_proj": _weights(layer.output)[0],
            "mlp.gate_proj": gate,
            "mlp.up_proj": up,
            "mlp.down_proj": _weights(layer.down)[0],
        }
        named |= {"input_layernorm": layer.input_norm, "post_attention_layernorm": layer.post_norm}
        weights |= {f"model.layers.{i}.{name}.weight": tensor for name, tensor in named.items()}
    reference = LlamaForCausalLM(config).double().eval()
    missing, unexpected = reference.load_state_dict({k: v.double() for k, v in weights.items()}, strict=False)
    assert missing == ["lm_head.weight"] and not unexpected  # tied
    return reference


def _weights(stack):
    ((linear, counts),) = stack.parts
    return linear.weight.split(list(counts))


def rows(tokens, position):
    """Two sequences whose pages alternate, at the same position."""
    block_table = torch.tensor([[3, 0], [1, 4]], dtype=torch.int32)
    slot = block_table[:, position // PAGE_SIZE].long() * PAGE_SIZE + position % PAGE_SIZE
    places = {"position": torch.tensor([position] * 2), "slot": slot, "block_table": block_table}
    return {"token": tokens, **places, "length": torch.tensor([position + 1] * 2, dtype=torch.int32)}


@torch.inference_mode()
def test_logits_are_transformers(model, pages, theirs):
    """Each layer rounds activations to float16 about 8 times, by 2**-12 of their size as a root mean square, and the

    residual carries the sum of independent ones: sqrt(8 * layers) * 2**-12 of the logits' norm. Thrice that for the
    effect of norms and products.
    """
    tokens = torch.randint(61, (2, NUM_STEPS), generator=torch.Generator().manual_seed(0))
    expected = theirs(tokens).logits  # [2, T, V]
    for position in range(NUM_STEPS):
        logits = llama_logits(model, pages, rows(tokens[:, position], position))
        error = (logits.double() - expected[:, position]).norm(dim=1) / expected[:, position].norm(dim=1)
        assert error.max() < 3 * (8 * SHAPE.num_layers) ** 0.5 * 2**-12


def test_bucketed_step_is_the_step(model, pages):
    """A batch of two in a bucket of four: the same tokens, and the padding writes nowhere."""
    graphs = DecodeGraphs(llama_step(model, pages), step_inputs(2), [1, 4], device="cpu", capture=eagerly)
    tokens = torch.tensor([3, 50])
    for position in range(4):
        given = rows(tokens, position)
        expected = llama_logits(model, pages, given).argmax(1)
        tokens = graphs(given).clone()
        assert torch.equal(tokens, expected)
    assert all(bool((cache[[0, 2, 4]] == 0).all()) for cache in (*pages.keys, *pages.values))

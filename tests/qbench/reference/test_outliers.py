import pytest
import torch
from support.close import assert_close

from qbench.reference.outliers import FACTOR, scale_channels
from training.model import Llama, Shape

SHAPE = Shape(vocab_size=97, hidden_size=64, intermediate_size=96, num_hidden_layers=3, max_position_embeddings=64)


@pytest.fixture
def model():
    torch.manual_seed(0)
    model = Llama(SHAPE)
    for weight in model.parameters():
        if weight.ndim == 1:
            torch.nn.init.uniform_(weight, 0.5, 1.5)  # norms that are not all one
        else:
            torch.nn.init.normal_(weight, std=weight.shape[1] ** -0.5)
    return model.eval()


def transformers_logits(tensors, tokens):
    transformers = pytest.importorskip("transformers")
    peer = transformers.LlamaForCausalLM(transformers.LlamaConfig(**SHAPE.hf_config(0))).float().eval()
    peer.load_state_dict(tensors, strict=False)
    return peer(tokens).logits


def our_logits(tensors, tokens):
    peer = Llama(SHAPE).eval()
    peer.load_state_dict(tensors)
    return peer(tokens)


@pytest.mark.parametrize("logits", [our_logits, transformers_logits], ids=["ours", "transformers"])
@torch.no_grad()
def test_same_function(model, logits):
    tensors = model.state_dict()
    tokens = torch.randint(SHAPE.vocab_size, (2, 64), generator=torch.Generator().manual_seed(1))
    expected = logits(tensors, tokens)
    got = logits(scale_channels(tensors), tokens)
    assert torch.equal(got, expected)


@torch.no_grad()
def test_norm_outputs_have_outliers(model):
    seen = {}
    scaled = Llama(SHAPE)
    scaled.load_state_dict(scale_channels(model.state_dict()))
    for name, peer in (("plain", model), ("scaled", scaled)):
        norm = peer.model.layers[1].input_layernorm
        norm.register_forward_hook(lambda _, __, out, name=name: seen.__setitem__(name, out))
        peer(torch.arange(32)[None])
    ratio = (seen["scaled"].abs().amax((0, 1)) / seen["plain"].abs().amax((0, 1))).sort().values
    assert_close(ratio[-4:], [FACTOR] * 4, rtol=2**-10)
    assert_close(ratio[:-4], [1.0] * 60, rtol=2**-10)


def test_input_is_untouched_and_a_seed_gives_one_choice(model):
    tensors = {name: weight.clone() for name, weight in model.state_dict().items()}
    first, second, other = (scale_channels(tensors, seed=seed) for seed in (0, 0, 1))
    for name, weight in model.state_dict().items():
        assert_close(tensors[name], weight)
        assert_close(first[name], second[name])
    assert any((first[name] != other[name]).any() for name in tensors)


def test_too_few_channels():
    with pytest.raises(ValueError, match="has 2 channels"):
        scale_channels({"model.layers.0.input_layernorm.weight": torch.ones(2)}, channels_per_norm=4)

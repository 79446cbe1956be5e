import pytest
import torch
from support.caches import torch_cache
from support.close import assert_close
from support.tiny_mla_moe import TINY

from qbench.runtime import load_model
from qbench.sources import open_source
from training.export import export, load
from training.mla_moe import Experts, MlaMoe


@pytest.fixture
def model():
    torch.manual_seed(0)
    model = MlaMoe(TINY)
    for name, weight in model.named_parameters():
        if weight.ndim == 1:
            torch.nn.init.uniform_(weight, 0.5, 1.5)  # norms that are not all one
        elif "embed" not in name:
            torch.nn.init.normal_(weight, std=weight.shape[1] ** -0.5)
    return model.eval()


def tolerance(expected) -> float:
    return 2**-23 * TINY.hidden_size * expected.abs().max().item()  # sums of hidden_size float32 products


@torch.no_grad()
def test_logits_equal_transformers(model):
    transformers = pytest.importorskip("transformers")
    peer = transformers.DeepseekV2ForCausalLM(transformers.DeepseekV2Config(**TINY.hf_config(0))).float().eval()
    theirs = peer.state_dict()
    ours = model.state_dict()
    if "model.layers.1.mlp.experts.gate_up_proj" in theirs:  # all experts of a layer in one tensor
        ours = stacked(ours)
    assert not any(peer.load_state_dict(ours, strict=False))
    tokens = torch.randint(TINY.vocab_size, (2, 200))
    expected = peer(tokens).logits
    assert_close(model(tokens), expected, atol=tolerance(expected))


def stacked(tensors):
    """Names and shapes of transformers 5: gate and up of all experts [E, 2 F, C], down [E, C, F]."""
    kept = {name: tensor for name, tensor in tensors.items() if ".experts." not in name}
    for layer in range(TINY.first_k_dense_replace, TINY.num_hidden_layers):
        prefix = f"model.layers.{layer}.mlp.experts"
        gate, up, down = (
            torch.stack([tensors[f"{prefix}.{e}.{name}_proj.weight"] for e in range(TINY.n_routed_experts)])
            for name in ("gate", "up", "down")
        )
        kept |= {f"{prefix}.gate_up_proj": torch.cat((gate, up), 1), f"{prefix}.down_proj": down}
    return kept


@torch.no_grad()
def test_logits_equal_the_runtimes(model, tokenizer, tmp_path):
    folder = export(model, TINY, tokenizer, {}, tmp_path / "out")
    tokens = torch.randint(TINY.vocab_size, (2, 100))
    expected = load(folder)(tokens)
    runtime = load_model(open_source(str(folder)), impl="reference")
    got = runtime(tokens, torch_cache(runtime.config, batch=2))
    assert_close(got, expected, atol=tolerance(expected))


def test_experts_by_hand(model):
    """Every token by itself, its two likeliest experts added up."""
    experts = next(iter(model.routed))
    x = torch.randn(5, TINY.hidden_size)
    with torch.no_grad():
        got = experts(x)
        for row, y in zip(x, got, strict=True):
            scores = (experts.gate.weight @ row).softmax(0)
            best = scores.argsort(descending=True)[:2].tolist()
            routed = sum(TINY.routed_scaling_factor * scores[e] * experts.experts[e](row) for e in best)
            assert_close(y, experts.shared_experts(row) + routed, atol=tolerance(got))
    assert experts.counts.sum() == 2 * len(x)


def test_balance_is_least_if_tokens_spread_evenly():
    experts = Experts(TINY)
    x = torch.eye(TINY.hidden_size)[: TINY.n_routed_experts]  # token e likes experts e and e + 1, or all like 0 and 1
    with torch.no_grad():
        experts.gate.weight.zero_()
        place = torch.arange(TINY.n_routed_experts)
        experts.gate.weight[place, place] = 8.0
        experts.gate.weight[(place + 1) % TINY.n_routed_experts, place] = 8.0
    experts(x)
    even = experts.balance.item()
    with torch.no_grad():
        experts.gate.weight.zero_()
        experts.gate.weight[:2] = 8.0
    experts(x)
    assert even == pytest.approx(1.0, abs=2**-20)
    assert experts.balance.item() == pytest.approx(TINY.n_routed_experts / 2, rel=2**-6)  # e**-8 is left to the others

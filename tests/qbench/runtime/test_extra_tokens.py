"""Extra tokens for rarely chosen experts: which they are, and that they change the statistics alone."""

from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
import torch.nn.functional as F
from support.architectures import random_weights, small_config
from support.array_source import ArraySource
from support.calibration import layer_tensors

from qbench.runtime import ModelConfig
from qbench.runtime.layers.moe import ExpertFeedForward, ExpertParts
from qbench.runtime.streamed import StreamedDecoder, extra_tokens
from quant.models import MoeConfig

NUM_TOKENS, HIDDEN, NUM_EXPERTS, CHOSEN = 30, 8, 5, 2
ROWS = torch.randn(NUM_TOKENS, HIDDEN, generator=torch.Generator().manual_seed(0))
ROUTER = torch.randn(NUM_EXPERTS, HIDDEN, generator=torch.Generator().manual_seed(1))
EXPERTS = ExpertFeedForward(ExpertParts(MoeConfig(NUM_EXPERTS, CHOSEN, 8), lambda x: (F.linear(x, ROUTER),), []))


def extra_ref(expert: int, number: int) -> list[int]:
    """Tokens by their own words: not among the token's two best, highest probability first."""
    probabilities = (ROWS.double() @ ROUTER.double().T).softmax(-1)
    others = [t for t in range(NUM_TOKENS) if expert not in probabilities[t].argsort(descending=True)[:CHOSEN]]
    return sorted(others, key=lambda t: -probabilities[t, expert])[:number]


@pytest.mark.parametrize("cuts", [[30], [1] * 30, [7, 23], [29, 1]], ids=["whole", "ones", "7+23", "29+1"])
def test_the_best_others_do_not_depend_on_the_division_of_tokens(cuts):
    wanted = {0: 4, 3: 1, 4: 11}
    got = extra_tokens(EXPERTS, ROWS.split(cuts), wanted)
    assert got.keys() == wanted.keys()
    for expert, number in wanted.items():
        assert torch.equal(got[expert], ROWS[extra_ref(expert, number)])


def test_no_more_than_there_are():
    got = extra_tokens(EXPERTS, ROWS.split(9), {1: 1000})
    assert torch.equal(got[1], ROWS[extra_ref(1, NUM_TOKENS)])
    assert CHOSEN * NUM_TOKENS / NUM_EXPERTS / 2 < NUM_TOKENS - len(got[1]) < NUM_TOKENS


class Counter:
    """Rows shown of each linear."""

    def __init__(self) -> None:
        self.rows: dict[str, int] = {}
        self.calls = 0

    def inputs(self, names, x):
        self.calls += 1
        for name in names:
            self.rows[name] = self.rows.get(name, 0) + x.flatten(0, -2).shape[0]

    def keys_values(self, layer, k, v):
        self.calls += 1


@pytest.fixture(scope="module")
def layer_and_x():
    config = small_config("qwen3moe", num_hidden_layers=1)
    weights = random_weights(config)
    weights["model.layers.0.mlp.gate.weight"][5] = 0  # an expert whose score is near 1 / 8 at best
    source = ArraySource(config, weights)
    decoder = StreamedDecoder(ModelConfig.of(source))
    tokens = torch.randint(160, (2, 20), generator=torch.Generator().manual_seed(2))
    x = decoder.embed(layer_tensors(source, None), tokens)
    return decoder.layer(0, layer_tensors(source, 0)), x


def test_every_token_counts_once_for_each_expert_that_it_chose(layer_and_x):
    layer, x = layer_and_x
    counter = Counter()
    layer(x, counter)
    for linear in ("gate_proj", "up_proj", "down_proj"):
        assert sum(rows for name, rows in counter.rows.items() if ".experts." in name and linear in name) == 2 * 20 * 3
    assert counter.rows["model.layers.0.mlp.gate.weight"] == 40


def test_extra_tokens_reach_only_the_linears_of_their_expert(layer_and_x):
    layer, x = layer_and_x
    before, counter = layer(x), Counter()
    layer.show_extra_tokens([x[:1], x[1:]], {5: 6, 2: 3}, counter)
    assert counter.rows == {
        f"model.layers.0.mlp.experts.{expert}.{linear}.weight": number
        for expert, number in ((5, 6), (2, 3))
        for linear in ("gate_proj", "up_proj", "down_proj")
    }
    assert torch.equal(layer(x), before)


def test_an_expert_without_tokens_is_not_shown_until_it_gets_extra_ones():
    config = small_config("qwen3moe", num_hidden_layers=1, num_experts_per_tok=1)
    weights = random_weights(config)
    router = weights["model.layers.0.mlp.gate.weight"]
    router[1] = -8 * router[0]  # where 0 scores low, 1 scores high, and the rest have no say
    router[2:] = 0
    source = ArraySource(config, weights)
    decoder = StreamedDecoder(ModelConfig.of(source))
    x = decoder.embed(layer_tensors(source, None), torch.arange(40)[None])
    layer = decoder.layer(0, layer_tensors(source, 0))
    counter = Counter()
    layer(x, counter)
    lacking = [e for e in range(8) if f"model.layers.0.mlp.experts.{e}.up_proj.weight" not in counter.rows]
    assert lacking
    layer.show_extra_tokens([x], {lacking[-1]: 4}, counter)
    assert counter.rows[f"model.layers.0.mlp.experts.{lacking[-1]}.down_proj.weight"] == 4


def test_threads_do_not_see_each_others_inputs(layer_and_x):
    layer, x = layer_and_x
    counters = [Counter() for _ in range(16)]
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda counter: layer(x, counter), counters))
    assert len({tuple(sorted(counter.rows.items())) for counter in counters}) == 1
    assert len({counter.calls for counter in counters}) == 1

"""Policies on a device keep the tokens that they keep on the CPU."""

from functools import partial

import pytest
from support.device_policies import held, load, logits_and_bytes
from support.device_run import UNIT, Run
from support.memory_source import MemorySource

from quant.errors import InputError

SHAPE = {
    "hidden_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 2,
    "head_dim": 64,
    "intermediate_size": 128,
    "vocab_size": 64,
    "max_position_embeddings": 512,
    "tie_word_embeddings": True,
}
PAGE_BYTES = 2 * 2 * 2 * 64 * 64  # keys and values of 2 heads, 16 bits, 64 tokens of 64 numbers
POLICIES = {
    "h2o, of two sequences": ("h2o:budget=8", None),
    "snapkv, in chunks": ("snapkv:budget=20,window=8", 32),
    "snapkv": ("snapkv:budget=20,window=8", None),
    "scissorhands": ("scissorhands:budget=40,recent=5,history=50,drop=0.1", None),
    "adakv": ("adakv:budget=20,window=8", None),
    "adakv, in chunks": ("adakv:budget=24,window=8", 32),  # at 16 and 20 two scores nearly tie
    "fastgen": ("fastgen:target=0.6", None),
    "tova": ("tova:budget=20", None),
    "pyramidkv": ("pyramidkv:budget=24,window=4,beta=2", None),
    "keydiff": ("keydiff:budget=24", None),
    "expected-attention": ("expected-attention:budget=24", None),
}
IN_EVERY_RUN = ("h2o, of two sequences", "snapkv, in chunks")
OTHERS = pytest.mark.exhaustive("the interpreter takes 5 seconds for each; two are in every run")


def bound(device: str) -> float:
    """8 roundings of activations in each of 2 layers, and 3 more; thrice that for norms and products."""
    return 3 * (2 * 8 + 3) ** 0.5 * UNIT[device]


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if name in IN_EVERY_RUN else OTHERS) for name in POLICIES]
)
def test_the_same_tokens_stay(run: Run, name: str) -> None:
    policy, prefill_chunk = POLICIES[name]
    source, function = MemorySource(**SHAPE), partial(held, policy=policy, prefill_chunk=prefill_chunk)
    got, expected = run(function, source), function(source, "cpu")
    size_bytes, peak_bytes = got.pop("bytes")
    expected.pop("bytes")
    for step, (logits, positions) in expected.items():
        assert got[step][1] == positions, step
        error = (got[step][0] - logits).norm(dim=-1) / logits.norm(dim=-1)
        assert error.max() < bound(run.device), step
    num_sequences = 2 if prefill_chunk is None else 1
    assert size_bytes == 2 * num_sequences * PAGE_BYTES, "each layer keeps one page of a sequence"
    if prefill_chunk is None:
        assert peak_bytes == 3 * num_sequences * PAGE_BYTES, "only one layer held the whole prompt"


@pytest.mark.parametrize(
    "num_steps, pages",
    [(2, 1), pytest.param(66, 1, marks=pytest.mark.exhaustive("66 steps take a minute"))],
)
def test_a_window(run: Run, num_steps: int, pages: int) -> None:
    """The same logits as on the CPU, and pages are freed: a window is cut when some spare tokens have come together."""
    source = MemorySource(**SHAPE)
    function = partial(logits_and_bytes, policy="window:24", num_steps=num_steps)
    (got, size_bytes), (expected, _) = run(function, source), function(source, "cpu")
    full, _ = logits_and_bytes(source, "cpu", "full", num_steps)
    for name, logits in expected.items():
        error = (got[name] - logits).norm(dim=-1) / logits.norm(dim=-1)
        assert error.max() < bound(run.device) < (full[name] - logits).norm() / logits.norm(), name
    assert size_bytes == 2 * 2 * pages * PAGE_BYTES


REFUSALS = {
    "window": "all layers of this model attend to all tokens",
    "sinks:2+8": r"policy sinks:2\+8 turns each query twice",
    "quest:budget=48": "policy quest:budget=48 lets each query choose its pages",
    "oracle:budget=32": "reads a text twice",
}


@pytest.mark.parametrize("policy", REFUSALS)
def test_policies_that_a_device_does_not_have(run: Run, policy: str) -> None:
    """Before any weight is read, since the source has no weights."""
    source = MemorySource(**SHAPE)
    source.weights.clear()
    with pytest.raises(InputError, match=REFUSALS[policy]):
        run(partial(load, policy=policy), source)


def test_attention_in_torch_is_refused(run: Run) -> None:
    with pytest.raises(InputError, match="needs attention triton on device"):
        run(partial(load, policy="h2o:budget=8", attention="textbook"), MemorySource(**SHAPE))

"""Refusals of load before it reads, and its report of the implementations."""

import numpy as np
import pytest
import torch
from support.architectures import random_weights, small_config
from support.array_source import ArraySource
from support.close import assert_close

from qbench.run.options import RunOptions
from qbench.runtime import load_model
from quant.errors import InputError
from quant.extension import has_cpu_kernels

Q_PROJ = "model.layers.1.self_attn.q_proj.weight"


class UnreadableSource(ArraySource):
    def read(self, name):
        raise AssertionError(f"{name} was read")


def with_tensor(name: str, weight: np.ndarray | None) -> dict[str, np.ndarray]:
    weights = random_weights(small_config()) | {name: weight}
    return {name: weight for name, weight in weights.items() if weight is not None}


@pytest.mark.parametrize(
    "name, weight, message",
    [
        pytest.param(Q_PROJ, None, f"tensor {Q_PROJ} is missing, expected shape \\[64, 64\\]", id="missing"),
        pytest.param(Q_PROJ, np.zeros((32, 64)), "has shape \\[32, 64\\], expected \\[64, 64\\]", id="wrong shape"),
        pytest.param("lm_head.weight", None, "tensor lm_head.weight is missing", id="untied head missing"),
        pytest.param("model.layers.0.self_attn.q_proj.bias", np.zeros(64), "has no place", id="bias without the flag"),
        pytest.param("model.layers.2.mlp.up_proj.weight", np.zeros((96, 64)), "has no place", id="a layer too many"),
    ],
)
def test_tensors_are_checked_before_any_is_read(name, weight, message):
    with pytest.raises(InputError, match=message):
        load_model(UnreadableSource(small_config(), with_tensor(name, weight)))


def test_meaningless_leftovers_are_ignored():
    config = small_config(tie_word_embeddings=True)
    weights = random_weights(config)
    leftovers = {
        "model.layers.0.self_attn.rotary_emb.inv_freq": np.zeros(8),
        "lm_head.weight": np.zeros((160, 64)),
    }
    tokens = torch.tensor([[1, 2, 3]])
    logits = load_model(ArraySource(config, weights | leftovers))(tokens)
    assert_close(logits, load_model(ArraySource(config, weights))(tokens))


def test_layers_that_draft_are_passed_by():
    """As checkpoints of DeepSeek-V3 end in one; a Llama with a layer more is another model."""
    for kind, number in (("deepseek3", 3), ("llama", 2)):
        config = small_config(kind)
        weights = random_weights(config)
        source = ArraySource(config, weights | {f"model.layers.{number}.eh_proj.weight": np.zeros((64, 128))})
        if kind == "llama":
            with pytest.raises(InputError, match=r"model\.layers\.2\.eh_proj\.weight has no place"):
                load_model(source)
        else:
            tokens = torch.tensor([[1, 2, 3]])
            assert_close(load_model(source)(tokens), load_model(ArraySource(config, weights))(tokens))


@pytest.mark.parametrize("threads", [0, -2])
def test_fewer_threads_than_one(threads):
    with pytest.raises(InputError, match=f"threads is {threads}, expected 1 to 1024"):
        load_model(ArraySource(small_config(), {}), RunOptions(threads=threads))


def test_threads_are_set():
    config = small_config()
    source = ArraySource(config, random_weights(config))
    before = torch.get_num_threads()
    try:
        load_model(source, RunOptions(threads=before + 1))
        assert torch.get_num_threads() == before + 1
        load_model(source)
        assert torch.get_num_threads() == before + 1, "None leaves threads as they are"
    finally:
        load_model(source, RunOptions(threads=before))


def test_unknown_impl_lists_the_known():
    with pytest.raises(InputError, match="impl 'fast' is unknown; known: auto, exact, reference"):
        load_model(ArraySource(small_config(), {}), impl="fast")


@pytest.mark.parametrize("tied", [False, True], ids=["untied", "tied"])
def test_impls_name_every_linear(tied):
    config = small_config(tie_word_embeddings=tied)
    weights = random_weights(config)
    formats = dict.fromkeys((name for name, weight in weights.items() if weight.ndim == 2), "bf16")
    formats[Q_PROJ] = "w3g4"  # groups of no whole step of 32: no kernel
    impls = load_model(ArraySource(config, weights, formats)).impls
    linears = {name.removesuffix(".weight") for name, weight in weights.items() if weight.ndim == 2}
    assert set(impls) == linears - {"model.embed_tokens"} | {"lm_head"}
    assert impls.pop(Q_PROJ.removesuffix(".weight")) == "reference"
    (name,) = set(impls.values())
    assert name.startswith("cpu-bf16[") if has_cpu_kernels() else name == "reference"


def test_reference_runs_everywhere_when_asked():
    config = small_config()
    weights = random_weights(config)
    formats = dict.fromkeys((name for name, weight in weights.items() if weight.ndim == 2), "bf16")
    model = load_model(ArraySource(config, weights, formats), impl="reference")
    assert set(model.impls.values()) == {"reference"}

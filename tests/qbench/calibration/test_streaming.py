"""Calibrated quantization, layer by layer, over the runtime's own layers."""

import numpy as np
import pytest
import torch
from support.calibration import layer_tensors, small_source, windows
from support.close import assert_close

from qbench.runtime.streamed import StreamedDecoder
from quant.calibrated import CalibrationKey, ImatrixCalibration
from quant.calibration import streaming
from quant.calibration.live import LiveStatistics
from quant.calibration.streaming import quantize_layers
from quant.calibration.tokens import CalibrationTokens
from quant.errors import InputError
from quant.formats import dequantize, get_format
from quant.job import make_job
from quant.models import EMBEDDING, HEAD, ModelConfig, names_by_layer
from quant.quantize import QuantizedSource
from quant.recipes.policies import Linears, Rule, Rules, Uniform
from quant.recipes.recipe import Recipe
from quant.stage import open_stage
from quant.stats import merge_stats

Q = "model.layers.1.self_attn.q_proj.weight"
IMATRIX = Recipe("test", "gguf", "imatrix", Uniform("q4_0"))
KEY = CalibrationKey(model="test", calibration=ImatrixCalibration(imatrix="none", sha256=""))
GPTQ = Recipe("test", "hf", "gptq", Linears("w4g32"), packing="gptq")


def make(source, recipe, folder, *, calibration=None, resume=False, **options):
    """All tensors of the calibrated model, and the stage's notes."""
    config = ModelConfig.of(source)
    statistics = LiveStatistics(StreamedDecoder(config), calibration or windows(), folder, **options)
    with open_stage(folder, KEY, resume=resume) as stage:
        quantized = quantize_layers(make_job(source, recipe), statistics, stage)
        return {name: quantized.read(name) for name in quantized.tensors}, stage.notes


def assert_equal(got, want):
    assert got.keys() == want.keys()
    for name, qtensor in want.items():
        assert got[name].format == qtensor.format
        for part, array in (qtensor.parts | qtensor.shared).items():
            assert np.array_equal((got[name].parts | got[name].shared)[part], array), f"{name} {part}"


class Spy:
    """Statistics that remember their results."""

    def __init__(self, live):
        self.live, self.seen = live, {}

    def __getattr__(self, name):
        return getattr(self.live, name)

    def through(self, index, tensors, needs, quantize, *, in_steps):
        seen = []

        def keep(stats, names):
            seen.append(stats)
            return quantize(stats, names)

        self.live.through(index, tensors, needs, keep, in_steps=in_steps)
        self.seen[index] = merge_stats(seen)


def spied(source, recipe, folder, **options):
    config = ModelConfig.of(source)
    spy = Spy(LiveStatistics(StreamedDecoder(config), windows(), folder, **options))
    with open_stage(folder, KEY) as stage:
        quantized = quantize_layers(make_job(source, recipe), spy, stage)
        return spy.seen, {name: quantized.read(name) for name in quantized.tensors}


def inputs_of_layer_1(source, layer_0, layer_1=None):
    """The whole model in one go: the input of layer 1, with the source's tensors except these, after these of layer 0.

    returns   name of a weight -> [num_tokens, K] float64
    """
    decoder = StreamedDecoder(ModelConfig.of(source))
    x = decoder.embed(layer_tensors(source, None), torch.from_numpy(windows().tokens))
    x = decoder.layer(0, layer_0)(x)
    seen = {}

    class Keep:
        def inputs(self, names, x):
            seen.update(dict.fromkeys(names, x.flatten(0, -2)))

        def keys_values(self, layer, k, v):
            pass

    decoder.layer(1, layer_tensors(source, 1) | (layer_1 or {}))(x, Keep())
    return {name: x.double().numpy() for name, x in seen.items()}


ON = {"quantized": {}, "steps": {"in_steps": True}, "original": {"on_quantized": False}}


@pytest.mark.parametrize("on", ON)
def test_a_layer_is_calibrated_on_the_outputs_of_earlier_layers(tmp_path, on):
    source, on_quantized = small_source(), on != "original"
    seen, made = spied(source, GPTQ, tmp_path / "s", **ON[on])
    layers = names_by_layer(ModelConfig.of(source))
    vectors = {name: made[name] for name in layers[1] if on == "steps" and len(made[name].shape) == 1}
    layer_0 = {name: made[name] if on_quantized else source.read(name) for name in layers[0]}
    x = inputs_of_layer_1(source, layer_0, vectors)[Q]
    norms = np.linalg.norm(x, axis=0)
    # float32 through one decoder layer, in other batches than here
    assert_close(seen[1].inputs[Q].hessian / np.outer(norms, norms), x.T @ x / np.outer(norms, norms), atol=2.0**-18)
    assert seen[1].inputs[Q].num_tokens == windows().num_tokens


def test_a_linear_is_calibrated_on_the_outputs_of_earlier_linears_in_its_layer(tmp_path):
    """Every input of layer 1 is the one that the layer has when all of it is quantized."""
    source = small_source()
    seen, made = spied(source, GPTQ, tmp_path / "s", in_steps=True)
    layers = names_by_layer(ModelConfig.of(source))
    inputs = inputs_of_layer_1(source, *({name: made[name] for name in layers[index]} for index in (0, 1)))
    assert len(inputs) == 7
    for name, x in inputs.items():
        norms = np.linalg.norm(x, axis=0)
        scale = np.outer(norms, norms)
        assert_close(seen[1].inputs[name].hessian / scale, x.T @ x / scale, atol=2.0**-18)


@pytest.mark.parametrize(
    "kind, method, options, fmt", [("qwen3moe", "gptq", {}, "w4g32"), ("llama", "smoothquant", {}, "w8a8")]
)
def test_a_layer_that_does_not_run_in_steps_is_calibrated_as_a_whole(tmp_path, kind, method, options, fmt):
    source = small_source(kind)
    packing = "gptq" if method == "gptq" else "compressed-tensors"
    recipe = Recipe("test", "hf", method, Linears(fmt), options, packing=packing)
    more = {"min_expert_tokens": 8} if kind == "qwen3moe" else {}
    seen, made = spied(source, recipe, tmp_path / "s", in_steps=True, **more)
    layer_0 = {name: made[name] for name in names_by_layer(ModelConfig.of(source))[0]}
    inputs = inputs_of_layer_1(source, layer_0)
    for name in ("self_attn.q_proj", "self_attn.o_proj"):
        x = inputs[f"model.layers.1.{name}.weight"]
        got = seen[1].inputs[f"model.layers.1.{name}.weight"].sum_squares
        assert_close(got, np.square(x).sum(axis=0), rtol=2.0**-16)


@pytest.mark.parametrize("in_steps", [False, True], ids=["layers", "steps"])
@pytest.mark.parametrize("recipe", [IMATRIX, GPTQ], ids=["imatrix", "gptq"])
def test_threads_change_no_byte(tmp_path, recipe, in_steps):
    source, calibration = small_source(), windows(samples=24, length=256)  # three batches
    one, _ = make(source, recipe, tmp_path / "a", calibration=calibration, in_steps=in_steps, num_threads=1)
    two, _ = make(source, recipe, tmp_path / "b", calibration=calibration, in_steps=in_steps, num_threads=2)
    assert_equal(two, one)


@pytest.mark.parametrize("kind", ["llama", "qwen2", "qwen3moe"])
def test_every_tensor_gets_its_planned_format(tmp_path, kind):
    source = small_source(kind)
    options = {"min_expert_tokens": 8} if kind == "qwen3moe" else {}
    made, notes = make(source, IMATRIX, tmp_path / "s", **options)
    expected = {name: row.format for name, row in IMATRIX.choose(source).items()}
    assert {name: qtensor.format for name, qtensor in made.items()} == expected
    assert len(notes.kv_absmax) == 2 and np.shape(notes.kv_absmax)[1:3] == (2, 2)


def test_importance_lowers_the_error_of_outputs(tmp_path):
    source = small_source()
    plain = Recipe("plain", "gguf", "rtn", Uniform("q4_0"), options={"effort": "best"})
    seen, made = spied(source, Recipe("i", "gguf", "imatrix", Uniform("q4_0"), {"effort": "best"}), tmp_path / "s")
    importance, weight = seen[1].inputs[Q].importance, dequantize(source.read(Q))
    errors = {}
    for name, qtensor in (("imatrix", made[Q]), ("plain", QuantizedSource(make_job(source, plain)).read(Q))):
        errors[name] = float((np.square(dequantize(qtensor) - weight) * importance).sum())
    assert errors["imatrix"] < errors["plain"]


def test_the_head_is_calibrated_on_its_inputs(tmp_path):
    source = small_source()
    made, _ = make(source, IMATRIX, tmp_path / "s")
    assert not np.array_equal(
        made[HEAD].parts["blocks"], get_format("q4_0").quantize(dequantize(source.read(HEAD))).parts["blocks"]
    )


@pytest.mark.parametrize("method, weighs", [("imatrix", False), ("gptq", True)])
def test_a_tied_table_is_weighed_as_a_head_if_that_helps(tmp_path, method, weighs):
    source = small_source(tie_word_embeddings=True)
    recipe = Recipe("test", "gguf", method, Uniform("q4_0"), {"effort": "best"})
    made, _ = make(source, recipe, tmp_path / "s")
    plain = get_format("q4_0").quantize(dequantize(source.read(EMBEDDING)), effort="best")
    assert np.array_equal(made[EMBEDDING].parts["blocks"], plain.parts["blocks"]) is not weighs
    assert make_job(source, recipe).method_name(EMBEDDING) == (method if weighs else "rtn")


@pytest.mark.parametrize(
    "method, options, fmt",
    [("gptq", {"act_order": True}, "w4g32"), ("smoothquant", {}, "w8a8-wtensor-astatic"), ("awq", {}, "w4g32-asym")],
)
def test_chunks_of_a_head_change_nothing(tmp_path, monkeypatch, method, options, fmt):
    head = Rules((Rule(HEAD, fmt),), Linears("w8a8"))
    other = Rules((Rule("*_proj*", "bf16"),), head)
    source, recipe = small_source(), Recipe("test", "hf", method, other, options)
    whole, _ = make(source, recipe, tmp_path / "whole")
    monkeypatch.setattr(streaming, "HEAD_CHUNK_WEIGHTS", 37 * 64)  # 160 rows in chunks of 37: the last one is short
    chunked, _ = make(source, recipe, tmp_path / "chunked")
    assert whole[HEAD].format == fmt
    assert_equal(chunked, whole)


def test_experts_without_tokens_are_named(tmp_path):
    source = small_source("qwen3moe")
    few = windows(samples=1, length=2)
    with pytest.raises(
        InputError, match=r"no calibration token reached expert [\d, ]+ of layer 0; .*--min-expert-tokens"
    ):
        make(source, IMATRIX, tmp_path / "s", calibration=few)
    assert not (tmp_path / "s").exists()


def test_tokens_are_routed_to_experts_that_have_too_few(tmp_path):
    source, calibration = small_source("qwen3moe"), windows(samples=2, length=20)
    _, notes = make(source, IMATRIX, tmp_path / "s", calibration=calibration, min_expert_tokens=30)
    for layer in ("0", "1"):
        row = notes.experts[layer]
        assert len(row.tokens) == 8 and min(row.tokens) >= 30 and row.extra
        natural = sum(row.tokens) - sum(row.extra.values())
        assert natural == calibration.num_tokens * 3, "each token chooses three experts"


@pytest.mark.parametrize(
    "tokens, words",
    [
        pytest.param(np.array([[0, 160]]), "token ids from 0 to 160, but the model's vocabulary has 160", id="above"),
        pytest.param(np.array([[-1, 3]]), "token ids from -1 to 3", id="below"),
        pytest.param(np.zeros((1, 300), int), "windows of 300 tokens, but the model's context holds 256", id="long"),
    ],
)
def test_tokens_that_the_model_cannot_read(tmp_path, tokens, words):
    with pytest.raises(InputError, match=words):
        make(small_source(), IMATRIX, tmp_path / "s", calibration=CalibrationTokens(tokens, "random", 0, len(tokens)))


def test_weights_with_nan(tmp_path):
    source = small_source()
    weight = dequantize(source.read(Q)).copy()
    weight[3, 5] = np.nan
    source._qtensors[Q] = get_format("f32").quantize_ref(weight)
    with pytest.raises(InputError, match=r"layers\.1\.self_attn\.q_proj\.weight: weights with NaN"):
        make(source, GPTQ, tmp_path / "s")
    assert not (tmp_path / "s").exists()


class Killed(BaseException):
    """An exception that no handler of the code catches."""


@pytest.mark.parametrize(
    "recipe, moment",
    [
        pytest.param(recipe, moment, id=f"{recipe.method} {moment}")
        for recipe in (IMATRIX, GPTQ)
        for moment in ("begin", "layer", "advance", "_step", "done", "head")
        if (recipe, moment) != (GPTQ, "head")  # which stays bf16 there
    ],
)
def test_a_run_killed_anywhere_resumes_to_the_same_bytes(tmp_path, monkeypatch, recipe, moment):
    source, options = small_source(), {"in_steps": moment == "_step"}
    want, notes = make(source, recipe, tmp_path / "whole", **options)
    original, calls = getattr(LiveStatistics, moment), []

    def dies_later(self, *args):
        result = original(self, *args)
        calls.append(moment)
        if len(calls) == (1 if moment in ("begin", "head") else 2):
            raise Killed
        return result

    with monkeypatch.context() as patch:
        patch.setattr(LiveStatistics, moment, dies_later)
        with pytest.raises(Killed):
            make(source, recipe, tmp_path / "killed", **options)
    got, resumed = make(source, recipe, tmp_path / "killed", resume=True, **options)
    assert_equal(got, want)
    assert resumed == notes

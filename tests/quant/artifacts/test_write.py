"""write_artifact: the container, the manifest, and llama.cpp's word on the result."""

import hashlib
import json

import numpy as np
import pytest
from support.artifact import write_artifact
from support.data import STORIES260K, needs_stories
from support.memory_source import MemorySource

from quant import atomic
from quant.artifacts import GGUFSource, HFSource, read_manifest
from quant.artifacts.manifest import ManifestSource, manifest_path
from quant.errors import InputError
from quant.formats import get_format
from quant.recipes import get_recipe
from quant.sizes import size_summary

PROMPT = "Once upon a time"


@pytest.mark.parametrize(
    "name, recipe, reader",
    [
        pytest.param("x.gguf", "q8_0", GGUFSource, id="GGUF recipe"),
        pytest.param("x", "rtn-w4g128", HFSource, id="directory recipe"),
        pytest.param("x.gguf", "bf16", GGUFSource, id="the suffix overrides"),
        pytest.param("x.gguf", None, GGUFSource, id="as it is, GGUF"),
        pytest.param("x", None, HFSource, id="as it is, directory"),
    ],
)
def test_container_and_manifest(tmp_path, name, recipe, reader):
    source, heard = MemorySource(), []
    out = write_artifact(
        source,
        tmp_path / name,
        recipe=recipe and get_recipe(recipe),
        progress=lambda done, total, tensor: heard.append((done, total, tensor)),
    )
    again, manifest = reader(out), read_manifest(out)
    assert manifest.recipe == recipe and manifest.source == ManifestSource("memory", "0" * 64)
    assert manifest.size == size_summary(again.tensors)
    assert {key: entry.format for key, entry in manifest.tensors.items()} == {
        key: info.format for key, info in again.tensors.items()
    }
    assert [tensor for _, _, tensor in heard] == list(source.tensors)
    assert heard[-1][0] == heard[-1][1] == manifest.size.size_bytes
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(
        {out.name, manifest_path(out).relative_to(tmp_path).parts[0]}
    )


def test_hashes_match_the_bytes_in_the_file(tmp_path):
    out = write_artifact(MemorySource(), tmp_path / "x", recipe=get_recipe("rtn-w8"))
    name = "model.layers.0.mlp.up_proj.weight"
    parts = HFSource(out).read(name).parts
    digest = hashlib.sha256(b"".join(array.tobytes() for array in parts.values())).hexdigest()
    assert read_manifest(out).tensors[name].sha256 == digest


def test_same_input_same_bytes(tmp_path):
    for name in ("a.gguf", "b.gguf"):
        write_artifact(MemorySource(), tmp_path / name, recipe=get_recipe("q4_0"))
    assert (tmp_path / "a.gguf").read_bytes() == (tmp_path / "b.gguf").read_bytes()


@pytest.mark.parametrize(
    "name, recipe, words",
    [
        pytest.param("x.gguf", "rtn-w4g128", "a gguf artifact cannot hold w4g128", id="format of the other container"),
        pytest.param("x", "q8_0", r"write to .*x\.gguf", id="no suffix"),
        pytest.param("no/x.gguf", "q8_0", "does not exist", id="missing folder, GGUF"),
        pytest.param("no/x", "bf16", "does not exist", id="missing folder, directory"),
        pytest.param("notes", "bf16", "is something else", id="a directory of other things"),
        pytest.param("notes.gguf", "q8_0", "is something else", id="a directory named .gguf"),
    ],
)
def test_places_that_are_refused(tmp_path, name, recipe, words):
    for folder in ("notes", "notes.gguf"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "diary.txt").write_text("mine")
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(InputError, match=words):
        write_artifact(MemorySource(), tmp_path / name, recipe=get_recipe(recipe))
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.parametrize("name, recipe", [("x.gguf", "q8_0"), ("x", "bf16")], ids=["GGUF", "directory"])
def test_disk_too_small(tmp_path, monkeypatch, name, recipe):
    monkeypatch.setattr(atomic.shutil, "disk_usage", lambda folder: type("Usage", (), {"free": 1000}))
    with pytest.raises(InputError, match="bytes are needed and 1000 are free"):
        write_artifact(MemorySource(), tmp_path / name, recipe=get_recipe(recipe))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name, recipe", [("x.gguf", "q8_0"), ("x", "bf16")], ids=["GGUF", "directory"])
def test_only_an_artifact_is_replaced(tmp_path, name, recipe):
    out = write_artifact(MemorySource(), tmp_path / name, recipe=get_recipe(recipe))
    first = read_manifest(out)
    write_artifact(MemorySource(seed=1), out, recipe=get_recipe(recipe))
    assert read_manifest(out).tensors != first.tensors


def test_an_artifact_made_over_its_source_names_the_former_source(tmp_path):
    out = write_artifact(MemorySource(), tmp_path / "x.gguf", recipe=get_recipe("q8_0"))
    source = GGUFSource(out)
    before = source.fingerprint()
    write_artifact(source, out, recipe=get_recipe("q4_0"))
    assert read_manifest(out).source.fingerprint == before != GGUFSource(out).fingerprint()


@pytest.mark.parametrize("name", ["x.gguf", "x"], ids=["GGUF", "directory"])
def test_a_failed_replacement_leaves_the_old_artifact(tmp_path, name):
    class Failing(MemorySource):
        def read(self, name):
            raise InputError("gone")

    out = write_artifact(MemorySource(), tmp_path / name, recipe=get_recipe("bf16"))
    before = read_manifest(out)
    with pytest.raises(InputError, match="gone"):
        write_artifact(Failing(), out, recipe=get_recipe("bf16"))
    assert read_manifest(out) == before


def test_weights_that_a_format_cannot_hold_name_their_tensor(tmp_path):
    source = MemorySource()
    source.weights["model.layers.1.mlp.up_proj.weight"][3, 5] = np.nan
    with pytest.raises(InputError, match=r"model\.layers\.1\.mlp\.up_proj\.weight"):
        write_artifact(source, tmp_path / "x", recipe=get_recipe("rtn-w8"))
    assert list(tmp_path.iterdir()) == []


def test_manifest_that_is_damaged(tmp_path):
    assert read_manifest(tmp_path / "none.gguf") is None
    manifest_path(tmp_path / "x.gguf").write_text("{")
    with pytest.raises(InputError, match="not valid JSON"):
        read_manifest(tmp_path / "x.gguf")


@pytest.fixture
def llama_cpp():
    return pytest.importorskip("llama_cpp")


@pytest.fixture(scope="module")
def greedy_text():
    """40 tokens by transformers from the float32 model."""
    transformers = pytest.importorskip("transformers")
    model = transformers.AutoModelForCausalLM.from_pretrained(STORIES260K)
    tokenizer = transformers.AutoTokenizer.from_pretrained(STORIES260K)
    tokens = tokenizer(PROMPT, return_tensors="pt").input_ids
    return tokenizer.decode(model.generate(tokens, max_new_tokens=40, do_sample=False)[0, tokens.shape[1] :])


@needs_stories
@pytest.mark.parametrize("recipe", [None, "bf16", "q8_0"])
def test_llama_cpp_continues_stories_as_transformers(tmp_path, llama_cpp, greedy_text, recipe):
    """8 bits are not enough of a change to alter the text."""
    out = write_artifact(HFSource(STORIES260K), tmp_path / "s.gguf", recipe=recipe and get_recipe(recipe))
    theirs = llama_cpp.Llama(str(out), verbose=False, n_ctx=128, n_threads=1, n_threads_batch=1)
    got = theirs.create_completion(PROMPT, max_tokens=40, temperature=0)["choices"][0]["text"]
    assert got.strip() == greedy_text.strip()


LLAMA3 = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0}


@pytest.mark.parametrize(
    "scaling",
    [None, {"rope_type": "linear", "factor": 4.0}, {**LLAMA3, "original_max_position_embeddings": 64}],
    ids=["plain rope", "linear", "llama3"],
)
def test_llama_cpp_computes_transformers_logits(tmp_path, llama_cpp, byte_level_tokenizer, scaling):
    """Random f32 weights, grouped heads, every RoPE: the row order and the metadata say the same function."""
    transformers = pytest.importorskip("transformers")
    import torch

    source = MemorySource(byte_level_tokenizer, rope_scaling=scaling)
    out = write_artifact(source, tmp_path / "x.gguf")
    tokens = list(range(5, 105))
    theirs = llama_cpp.Llama(str(out), verbose=False, n_ctx=128, n_threads=1, n_threads_batch=1, logits_all=True)
    theirs.eval(tokens)
    config = transformers.LlamaConfig(**source.config)
    model = transformers.LlamaForCausalLM(config).eval()
    model.load_state_dict({name: torch.from_numpy(weight) for name, weight in source.weights.items()})
    with torch.no_grad():
        expected = model(torch.tensor([tokens])).logits[0].numpy()
    got = np.array(theirs.scores[: len(tokens)])
    # llama.cpp keeps keys and values, and multiplies them, in f16: 2**-11 relative, through two layers and the head.
    bound = 2**-11 * np.sqrt(source.config["hidden_size"]) * expected.std()
    assert np.abs(got - expected).max() < bound
    shifted = np.roll(expected, 1, axis=0)
    assert np.abs(got - shifted).max() > 10 * bound  # the bound distinguishes positions


def test_manifest_is_plain_json(tmp_path):
    out = write_artifact(MemorySource(), tmp_path / "x.gguf", recipe=get_recipe("q8_0"))
    manifest = json.loads(manifest_path(out).read_text())
    assert manifest["schema"] == 2 and manifest["versions"]["numpy"] == np.__version__
    assert manifest["size_bytes"] == sum(
        get_format(entry["format"]).size_bytes(tuple(entry["shape"])) for entry in manifest["tensors"].values()
    )

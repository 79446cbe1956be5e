import huggingface_hub
import numpy as np
import pytest
from huggingface_hub.errors import HFValidationError, LocalEntryNotFoundError
from support.artifact import write_artifact
from support.data import STORIES260K, needs_stories
from support.memory_source import MemorySource

from qbench.sources import list_models, open_source
from quant.artifacts import GGUFSource, HFSource
from quant.errors import InputError
from quant.formats import dequantize
from quant.recipes import get_recipe


@pytest.fixture
def model_dir(tmp_path):
    return write_artifact(MemorySource(), tmp_path / "model", recipe=get_recipe("bf16"))


def test_a_directory_is_opened(model_dir):
    source = open_source(str(model_dir))
    assert isinstance(source, HFSource) and source.spec == str(model_dir)


def test_gguf_file(tmp_path):
    path = write_artifact(MemorySource(), tmp_path / "x.gguf", recipe=get_recipe("q8_0"))
    source = open_source(str(path))
    assert isinstance(source, GGUFSource) and source.spec == str(path)


@needs_stories
def test_home_is_expanded(monkeypatch):
    monkeypatch.setenv("HOME", str(STORIES260K.parent))
    assert open_source("~/stories260K").config["vocab_size"] == 512


def test_directory_of_gguf_files(tmp_path):
    write_artifact(MemorySource(), tmp_path / "x.gguf", recipe=get_recipe("q8_0"))
    with pytest.raises(InputError, match=r"name one of them, e\.g\. .*x\.gguf"):
        open_source(str(tmp_path))


@pytest.mark.parametrize(
    "spec, words",
    [
        pytest.param("no/such/model", "is not there; expected a directory, a .gguf file, ref:NAME", id="nothing"),
        pytest.param("rand:no", "'no' is unknown; known: tiny", id="random shape"),
        pytest.param("ref:no", "ref:llama, ref:llama-outliers", id="reference name"),
        pytest.param("hf:no", "expected hf:ORG/NAME", id="hub name"),
        pytest.param(__file__, "must be GGUF with the suffix .gguf", id="a file of another kind"),
    ],
)
def test_specs_that_name_nothing(spec, words):
    with pytest.raises(InputError, match=words.replace(".", r"\.")):
        open_source(spec)


def test_hub_downloads_only_needed_files(model_dir, monkeypatch):
    asked = {}

    def snapshot_download(name, **options):
        asked.update(name=name, **options)
        return str(model_dir)

    monkeypatch.setattr(huggingface_hub, "snapshot_download", snapshot_download)
    source = open_source("hf:org/name")
    assert asked["name"] == "org/name" and "*.safetensors" in asked["allow_patterns"]
    assert asked["revision"] is None
    open_source("hf:org/name@v1.2")
    assert (asked["name"], asked["revision"]) == ("org/name", "v1.2")
    assert source.spec == "hf:org/name" and source.tensors == open_source(str(model_dir)).tensors


@pytest.mark.parametrize(
    "error, words",
    [
        pytest.param(
            LocalEntryNotFoundError("offline\n\nsecond line"), r"cannot download \(offline\); go", id="offline"
        ),
        pytest.param(ConnectionError("refused"), r"cannot download \(refused\); go online", id="socket"),
        pytest.param(HFValidationError("bad name"), r"no such name can be on the Hugging Face hub", id="name"),
    ],
)
def test_hub_errors_are_one_line(monkeypatch, error, words):
    def snapshot_download(name, **options):
        raise error

    monkeypatch.setattr(huggingface_hub, "snapshot_download", snapshot_download)
    with pytest.raises(InputError, match=words) as caught:
        open_source("hf:org/name")
    assert "\n" not in str(caught.value)


def test_hub_offline_for_real(monkeypatch, tmp_path):
    """The library's own error: nothing cached, and ordered not to go online."""
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path))
    with pytest.raises(InputError, match="cannot download") as caught:
        open_source("hf:org/name-that-nobody-has")
    assert "\n" not in str(caught.value)


@pytest.fixture
def llama():
    try:
        return open_source("ref:llama")
    except InputError as error:
        pytest.skip(f"ref:llama is not usable: {error}")


def test_outliers_change_the_weights_and_not_the_shapes(llama):
    outliers = open_source("ref:llama-outliers")
    name = "model.layers.0.input_layernorm.weight"
    ratio = dequantize(outliers.read(name)) / dequantize(llama.read(name))
    assert sorted(np.round(ratio, 3))[-1] == 128 and np.median(ratio) == 1
    assert outliers.tensors == llama.tensors
    assert outliers.fingerprint() != llama.fingerprint()
    assert outliers.read(name).format == outliers.tensors[name].format


def test_every_listed_model_opens():
    for row in list_models():
        assert list(row.to_json()) == ["spec", "kind", "params", "description"] and row.description
        if row.params is not None:
            source = open_source(row.spec)
            assert row.params == sum(int(np.prod(info.shape)) for info in source.tensors.values())
    assert {row.kind for row in list_models()} == {"ref", "real", "rand", "shape"}

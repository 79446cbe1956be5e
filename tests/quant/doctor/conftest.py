"""A small model, its artifacts, and the doctor's findings on them."""

import shutil
from functools import cache
from pathlib import Path

import pytest
from support.architectures import KINDS, random_weights, small_config
from support.array_source import ArraySource
from support.artifact import write_artifact
from support.memory_source import MemorySource

from quant.artifacts import GGUFSource, HFSource
from quant.doctor import examine
from quant.formats import get_format
from quant.recipes import Recipe
from quant.recipes.policies import Default

SPECS = {"memory": MemorySource(), "tied": MemorySource(tie_word_embeddings=True), "other": MemorySource(seed=1)}
SPECS |= {kind: ArraySource(small_config(kind), random_weights(small_config(kind))) for kind in KINDS}
SPECS |= {"wide": MemorySource(hidden_size=256, num_attention_heads=8)}
for spec, source in SPECS.items():
    source.spec = spec


def open_source(spec):
    if spec in SPECS:
        return SPECS[spec]
    return (GGUFSource if spec.endswith(".gguf") else HFSource)(Path(spec), spec)


@pytest.fixture(scope="session")
def made(tmp_path_factory):
    """made(format, spec="memory", packing=...): the path of an artifact, written once and not to be touched"""
    folder = tmp_path_factory.mktemp("artifacts")

    @cache
    def write(fmt: str, spec: str = "memory", packing: str = "compressed-tensors"):
        is_gguf = fmt != "bf16" and get_format(fmt).gguf_type is not None
        recipe = Recipe(fmt, "gguf" if is_gguf else "hf", "rtn", Default(fmt), packing=packing)
        name = f"{spec}-{packing}-{fmt}"
        return write_artifact(SPECS[spec], folder / (f"{name}.gguf" if is_gguf else name), recipe=recipe)

    return write


@pytest.fixture
def copy_of(made, tmp_path):
    """The same artifact, for this test alone; with its manifest by default"""

    def copy(*which: str, manifest: bool = True):
        path = made(*which)
        if path.is_dir():
            out = shutil.copytree(path, tmp_path / "artifact")
            own = out / "qbench.json"
        else:
            out, own = tmp_path / "artifact.gguf", tmp_path / "artifact.gguf.qbench.json"
            shutil.copy(path, out)
            shutil.copy(f"{path}.qbench.json", own)
        if not manifest:
            own.unlink()
        return out

    return copy


@pytest.fixture
def findings():
    """findings(path, spec=None): {(check, where)}"""

    def find(path, spec=None):
        return {(found.check, found.where) for found in examine(path, open_source, spec=spec).findings}

    return find


@pytest.fixture
def report():
    return lambda path, spec=None: examine(path, open_source, spec=spec)

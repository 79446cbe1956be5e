"""A run that is killed between two calls leaves a model with its own manifest, the older pair, or nothing."""

import os

import pytest
from support.artifact import write_artifact
from support.memory_source import MemorySource

from qbench.sources import open_source
from quant.artifacts import read_manifest
from quant.doctor.examine import stored_hash
from quant.recipes import get_recipe

NUM_CALLS = 12  # more than a run makes of those below


def write_and_die(path, recipe, at, shard_bytes):
    """In a process that ends without a cleanup before its `at`-th call; the status is 0 if there were fewer."""
    child = os.fork()
    if child == 0:
        calls = iter(range(1, at + 1))

        def counted(call):
            return lambda *args, **more: os._exit(9) if next(calls, at) == at else call(*args, **more)

        for name in ("rename", "replace", "unlink", "fsync"):
            setattr(os, name, counted(getattr(os, name)))
        write_artifact(MemorySource(), path, recipe=get_recipe(recipe), max_shard_bytes=shard_bytes)
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def recipe_of_whole_pair(folder):
    """The recipe of the model in the folder, which is checked against its manifest; None if there is no model."""
    shown = sorted(path for path in folder.glob("*.gguf") if not path.name.startswith("."))
    if not shown or (shown[0].name != "m.gguf" and "-00001-of-" not in shown[0].name):
        return None
    model, manifest = open_source(str(shown[0])), read_manifest(shown[0])
    assert manifest is not None, "a model without its manifest"
    assert {name: tensor.sha256 for name, tensor in manifest.tensors.items()} == {
        name: stored_hash(model, name, model.read(name)) for name in model.tensors
    }, "the manifest of another model"
    return manifest.recipe


@pytest.mark.parametrize("at", range(1, NUM_CALLS + 1))
@pytest.mark.parametrize(
    "had, shard_bytes",
    [
        pytest.param("q4_0", None, id="replaced"),
        pytest.param(None, None, id="new", marks=pytest.mark.exhaustive("a part of what replaced goes through")),
        pytest.param("q4_0", 200_000, id="shards replaced", marks=pytest.mark.exhaustive("12 more pairs of runs")),
        pytest.param(None, 200_000, id="new shards", marks=pytest.mark.exhaustive("12 more pairs of runs")),
    ],
)
def test_a_model_has_its_manifest_after_a_kill(tmp_path, had, shard_bytes, at):
    path = tmp_path / "m.gguf"
    if had is not None:
        write_artifact(MemorySource(), path, recipe=get_recipe(had), max_shard_bytes=shard_bytes)
    status = write_and_die(path, "q8_0", at, shard_bytes)
    found = recipe_of_whole_pair(tmp_path)
    if status == 0:
        assert found == "q8_0"
    else:
        assert status == 9 and found in ((None, had, "q8_0") if shard_bytes or had is None else (had, "q8_0"))
    write_artifact(MemorySource(), path, recipe=get_recipe("q8_0"), max_shard_bytes=shard_bytes)
    assert recipe_of_whole_pair(tmp_path) == "q8_0" and not list(tmp_path.glob(".*"))


def test_a_folder_that_cannot_be_written_still_shows_the_manifest(tmp_path, monkeypatch):
    path = tmp_path / "m.gguf"
    statuses = []
    for at in range(1, NUM_CALLS + 1):  # the last call that leaves the manifest under its hidden name
        path.unlink(missing_ok=True)
        statuses.append(write_and_die(path, "q8_0", at, None))
        if path.exists():
            break
    monkeypatch.setattr(os, "replace", lambda *_: (_ for _ in ()).throw(PermissionError()))
    assert statuses[-1] == 9 and recipe_of_whole_pair(tmp_path) == "q8_0"

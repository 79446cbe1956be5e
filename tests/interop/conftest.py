"""The reference model as others load it, and the tokens on which all are compared."""

import importlib.util
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from support.artifact import write_artifact
from support.perplexity import REFERENCE, reference_windows

from qbench.calibration.write import write_quantized
from qbench.run.work import CalibrationWork
from qbench.sources import open_source
from quant.artifacts import make_artifact_job
from quant.formats import ActivationFormat, get_format
from quant.recipes import Recipe, get_recipe
from quant.recipes.policies import Linears

NUM_WINDOWS = 2
WriteModel = Callable[[str, str], Path]


@pytest.fixture(scope="session", autouse=True)
def peers() -> None:
    """Minutes of others' code: it runs where the group of its packages is installed."""
    if importlib.util.find_spec("gptqmodel") is None or importlib.util.find_spec("bitsandbytes") is None:
        pytest.skip("the dependency group `interop` is not installed; `make test-interop` does it")


@pytest.fixture(scope="session")
def windows() -> np.ndarray:
    """[W, T] int64"""
    return reference_windows(NUM_WINDOWS)


@pytest.fixture(scope="session")
def calibration() -> np.ndarray:
    """[W, T] int64, text that is not compared on"""
    return reference_windows(NUM_WINDOWS + 8)[NUM_WINDOWS:]


@pytest.fixture(scope="session")
def reference_dir(tmp_path_factory) -> Path:
    """The reference model in bfloat16."""
    return write_artifact(
        open_source(REFERENCE), tmp_path_factory.mktemp("models") / "reference", recipe=get_recipe("bf16")
    )


@pytest.fixture
def write_model(tmp_path) -> WriteModel:
    """(format, packing) -> a directory with the reference model's linears rounded to nearest. Scales of static inputs
    come from a calibration.
    """

    def write(format_name: str, packing: str) -> Path:
        fmt = get_format(format_name)
        method = "static" if isinstance(fmt, ActivationFormat) and fmt.static_inputs else "rtn"
        recipe = Recipe(format_name, "hf", method, Linears(format_name), packing=packing)
        job = make_artifact_job(open_source(REFERENCE), recipe, tmp_path / format_name)
        return write_quantized(job, CalibrationWork(samples=8))

    return write

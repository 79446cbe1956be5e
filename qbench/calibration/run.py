"""From a source, a recipe and what a user says of calibration to a quantized model."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from qbench.calibration.options import CalibrationOptions
from qbench.calibration.windows import calibration_tokens
from qbench.runtime.streamed import StreamedDecoder
from quant.calibration.live import LiveStatistics
from quant.models import ModelConfig
from quant.quantize import QuantizedSource, describe_recipe, needs_calibration
from quant.recipes import Recipe
from quant.source import Source
from quant.stage import open_stage
from quant.streaming import quantize_layers

Progress = Callable[[int, int, str], None]


@contextmanager
def quantized_model(
    source: Source,
    recipe: Recipe,
    options: CalibrationOptions,
    folder: Path,
    *,
    threads: int = 1,
    resume: bool = False,
    progress: Progress | None = None,
) -> Iterator[QuantizedSource]:
    """Yields the model as the recipe makes it, calibrated where its methods need that.

    folder   where the layers lie until the block ends; a killed run leaves it for `resume`. Not made for a recipe
             without calibration, which quantizes as it is read
    threads  for calibration; any number gives the same bytes
    raises   InputError for text, statistics or weights that cannot be used
    """
    plan = recipe.plan(source)
    if not needs_calibration(recipe, plan):
        yield QuantizedSource(source, recipe)
        return
    calibration = calibration_tokens(source, options)
    described = {**calibration.describe(), "on": options.on, "min_expert_tokens": options.min_expert_tokens}
    key = stage_key(source, describe_recipe(recipe, plan), described)
    with open_stage(folder, key, resume=resume) as stage:
        stage.notes["calibration"] = described
        config = ModelConfig.of(source)
        statistics = LiveStatistics(
            StreamedDecoder(config),
            config,
            calibration,
            folder,
            on_quantized=options.on == "quantized",
            min_expert_tokens=options.min_expert_tokens,
            num_threads=threads,
        )
        yield quantize_layers(source, recipe, statistics, stage, progress)


def stage_key(source: Source, recipe: str, calibration: dict[str, Any]) -> dict[str, Any]:
    """Everything that decides the bytes of the quantized layers, the code included."""
    from qbench.harness.commit import QUANTIZING, code_hash

    return {
        "model": source.fingerprint(),
        "recipe": recipe,
        "calibration": calibration,
        "version": code_hash(QUANTIZING),
    }

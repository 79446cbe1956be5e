"""KLD of finished candidates on held-out text, paired: the mix must be better than every fixed recipe it meets."""

import shutil
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from qbench.measure.quality_figures import Quality
from qbench.measure.records.kept_searches import SearchedFile
from qbench.progress import Progress
from qbench.quality.kld.reference_logits import KeptLogits, mode_that_fits, save_logits
from qbench.quality.protocols.scoring import Scoring
from qbench.quality.quality import Reference, measure_quality
from qbench.run_options import RunOptions
from qbench.runtime import load_model
from qbench.statistics.estimate import Estimate
from qbench.statistics.holm import holm
from qbench.statistics.paired import kld_ratio
from quant.models import ModelConfig
from quant.present import present
from quant.source import Source

EXACT = "exact"


def measure_all(
    source: Source,
    candidates: Mapping[str, Source],
    scorings: Sequence[Scoring],
    folder: Path,
    threads: int,
    progress: Progress | None = None,
) -> dict[str, Quality]:
    """Name -> quality, all against the unquantized model on the same windows. folder: for its logits"""
    vocab_size = ModelConfig.of(source).vocab_size
    options = RunOptions(threads=threads)
    model = load_model(source, options, impl="reference")
    if mode_that_fits(scorings[0], vocab_size, shutil.disk_usage(folder).free // 2) == EXACT:
        path = folder / "reference.logits"
        save_logits(path, model, scorings[0], vocab_size, mode=EXACT, named={"model": source.spec}, progress=progress)
        reference = Reference(vocab_size, kept=[KeptLogits(path)])
    else:  # too many to keep exactly, so that the reference runs next to each candidate
        reference = Reference(vocab_size, model)
    return {
        name: measure_quality(
            load_model(candidate, options), scorings, vocab_size, reference=reference, progress=progress
        )[0]
        for name, candidate in candidates.items()
    }


def compare(
    qualities: Mapping[str, Quality], predicted: Mapping[str, tuple[int, float]], mix: str
) -> list[SearchedFile]:
    """predicted: name -> size in bytes and predicted KLD. mix: the name of the searched candidate"""
    rivals = [name for name in qualities if name != mix]
    own = present(qualities[mix].blocks)
    ratios = {name: kld_ratio(present(qualities[name].blocks), own) for name in rivals}
    corrected = dict(zip(rivals, holm([ratios[name].p_value for name in rivals]), strict=True))
    ratios = {name: replace(ratio, p_value=corrected[name]) for name, ratio in ratios.items()}
    return [
        SearchedFile(name, *predicted[name], _mean(quality), ratios.get(name), quality.blocks)
        for name, quality in qualities.items()
    ]


def _mean(quality: Quality) -> Estimate:
    low, high = quality.kld_interval or (None, None)
    return Estimate(present(present(quality.kld)["mean"]), quality.kld_error, low, high)

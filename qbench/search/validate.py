"""KLD of finished candidates on held-out text, paired: the mix must be better than every fixed recipe it meets.

It looks at the text while it is scored, so that a clear winner ends the check early.
Each look sees all windows so far. An error in any of the looks has at most the probability of one look times their
number (union bound), so p values are multiplied by that number.
"""

import shutil
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from qbench.measure.quality_figures import Blocks
from qbench.measure.records.kept_searches import SearchedFile
from qbench.progress import Progress
from qbench.quality.kld.reference_logits import KeptLogits, mode_that_fits, save_logits
from qbench.quality.protocols.scoring import Scoring
from qbench.quality.quality import Reference, measure_quality
from qbench.run.cache_spec import FULL
from qbench.run.options import RunOptions
from qbench.runtime import load_model
from qbench.statistics.estimate import Estimate
from qbench.statistics.intervals import MIN_BLOCKS, block_mean
from qbench.statistics.paired import kld_log_ratio, kld_ratio
from qbench.statistics.verdict import holm
from quant.errors import InputError
from quant.models import ModelConfig
from quant.present import present
from quant.source import Source

SHARES = (4, 2)  # of the windows that the looks before the last have seen: a quarter, a half


def look_ends(num_windows: int, exhaustive: bool) -> list[int]:
    """Number of windows at each look, the last at all of them. exhaustive: there is one look"""
    early = [] if exhaustive else [num_windows // share for share in SHARES]
    return [end for end in early if end >= MIN_BLOCKS] + [num_windows]


def part_of(scoring: Scoring, start: int, end: int) -> Scoring:
    """The windows from `start` to `end`, for a protocol with a block per window."""
    assert scoring.block_unit == "window" and scoring.units is None
    windows = [replace(window, block=place) for place, window in enumerate(scoring.windows[start:end])]
    return Scoring(scoring.protocol, windows, scoring.block_unit)


def joined(parts: Sequence[Blocks]) -> Blocks:
    """The blocks of all parts, in their order."""
    return Blocks(
        parts[0].unit,
        tokens=_column(parts, "tokens"),
        nll=_column(parts, "nll"),
        kld=_column(parts, "kld"),
        same_top=_column(parts, "same_top"),
    )


def _column(parts: Sequence[Blocks], name: str) -> list | None:
    values = [getattr(part, name) for part in parts]
    return None if values[0] is None else [each for some in values for each in some]


EXACT = "exact"


@dataclass(frozen=True, slots=True)
class Check:
    """Files of candidates, by name, and the windows that they are scored on.

    predicted   name -> size in bytes and predicted KLD
    mix         name of the searched candidate
    exhaustive  score all windows, however clear the first ones are
    folder      for the reference's logits
    policies    name -> cache policy that the file runs under; full if it is not here
    """

    source: Source
    files: Mapping[str, Source]
    predicted: Mapping[str, tuple[int, float]]
    mix: str
    scoring: Scoring
    exhaustive: bool
    folder: Path
    threads: int
    policies: Mapping[str, str] = field(default_factory=dict)


def check(wanted: Check, progress: Progress | None = None) -> list[SearchedFile]:
    """The candidates with their measured KLD; ends at the first look at which the mix is surely better than the rest.

    raises   InputError for logits that are not finite
    """
    ends, start = look_ends(len(wanted.scoring.windows), wanted.exhaustive), 0
    found: dict[str, list[Blocks]] = {name: [] for name in wanted.files}
    measured: list[SearchedFile] = []
    for end in ends:
        for name, blocks in measure_all(wanted, part_of(wanted.scoring, start, end), progress).items():
            found[name].append(blocks)
        blocks = {name: joined(parts) for name, parts in found.items()}
        measured = compare(blocks, wanted.predicted, wanted.mix, num_looks=len(ends))
        if end == ends[-1] or beats_all(measured):
            break
        start = end
    return measured


def predict(wanted: Check, unused: Scoring, names: Iterable[str], progress: Progress | None = None) -> dict[str, float]:
    """Name -> mean KLD in nats of these candidates on text that neither the survey nor GPTQ has read."""
    some = replace(wanted, files={name: wanted.files[name] for name in names})
    return {name: _mean(blocks).value for name, blocks in measure_all(some, unused, progress).items()}


def beats_all(measured: Sequence[SearchedFile]) -> bool:
    return all(each.is_beaten for each in measured if each.ratio is not None)


def measure_all(wanted: Check, scoring: Scoring, progress: Progress | None = None) -> dict[str, Blocks]:
    """Name -> sums per window, all against the unquantized model on the same windows."""
    vocab_size, folder = ModelConfig.of(wanted.source).vocab_size, wanted.folder
    options = RunOptions(threads=wanted.threads)
    model = load_model(wanted.source, options, impl="reference")
    if mode_that_fits(scoring, vocab_size, shutil.disk_usage(folder).free // 2) == EXACT:
        path = folder / "reference.logits"
        named = {"model": wanted.source.spec}
        save_logits(path, model, scoring, vocab_size, mode=EXACT, named=named, progress=progress)
        reference = Reference(vocab_size, kept=[KeptLogits(path)])
    else:  # too many to keep exactly, so that the reference runs next to each candidate
        reference = Reference(vocab_size, model)
    found = {}
    for name, file in wanted.files.items():
        (quality,) = measure_quality(
            load_model(file, replace(options, policy=wanted.policies.get(name, FULL))),
            [scoring],
            vocab_size,
            reference=reference,
            progress=progress,
        )
        if quality.blocks is None:
            raise InputError(f"{name}: its logits on the held-out text are not finite, so it has no divergence")
        found[name] = quality.blocks
    return found


def compare(
    blocks: Mapping[str, Blocks], predicted: Mapping[str, tuple[int, float]], mix: str, num_looks: int = 1
) -> list[SearchedFile]:
    """The candidates, with p values of the ratios corrected for their number and that of the looks."""
    rivals = [name for name in blocks if name != mix]
    ratios = {name: kld_ratio(blocks[name], blocks[mix]) for name in rivals}
    # Logarithms show a large ratio on the few windows of an early look; a single look tests the reported ratio itself.
    tested = ratios if num_looks == 1 else {name: kld_log_ratio(blocks[name], blocks[mix]) for name in rivals}
    corrected = holm([tested[name].p_value for name in rivals])
    ratios = {
        name: replace(ratios[name], p_value=None if p is None else min(1.0, num_looks * p))
        for name, p in zip(rivals, corrected, strict=True)
    }
    return [SearchedFile(name, *predicted[name], _mean(each), ratios.get(name), each) for name, each in blocks.items()]


def _mean(blocks: Blocks) -> Estimate:
    return replace(block_mean(present(blocks.kld), present(blocks.tokens)).at_least(0.0), p_value=None)

"""Checks before a search: bytes of a directory's head, overlap of two texts, and windows that no statistics used.

The errors of rounding fall in directions that the survey's sum over tensors does not see, so a finished mix is measured
on windows that no statistics were collected on.
"""

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from qbench.calibration.windows import unused_tokens, window_seq_len
from qbench.quality.protocols.scoring import Scoring
from qbench.quality.protocols.windows import whole
from qbench.run.work import CalibrationWork
from quant.artifacts.hf_tokenizer import write_tokenizer
from quant.errors import InputError
from quant.models import ModelConfig
from quant.source import Source

PARTS = 3  # of a quantized linear: codes, scales, shape
# An entry of the header and one of the index of shards, apart from the tensor's name: dtype, shape and offsets of up to
# 13 digits each, and the name of a shard. The shape of a quantized linear is a tensor of 16 bytes.
ENTRY_BYTES = 256
NAMED = 3  # times that config.json and the header of a part may say a module: target, index, entry
SCHEMES_BYTES = 8192  # of config.json: the schemes of all formats, and the KV format


def directory_head_bytes(source: Source) -> int:
    """config.json, tokenizer, headers and index; no manifest, which no loader reads."""
    config = json.dumps(source.config, indent=2, ensure_ascii=False).encode()
    names = PARTS * sum(NAMED * len(name.encode()) + ENTRY_BYTES for name in source.tensors)
    return len(config) + SCHEMES_BYTES + names + _tokenizer_bytes(source)


def _tokenizer_bytes(source: Source) -> int:
    if source.tokenizer is None:
        return 0
    with TemporaryDirectory() as folder:
        write_tokenizer(Path(folder), source.tokenizer, ModelConfig.of(source).max_positions)
        return sum(path.stat().st_size for path in Path(folder).iterdir())


# Independent texts of one author share phrases, not runs of this length.
RUN = 64
MOST_SHARED = 0.01  # of the evaluation's runs: quotations and boilerplate
MULTIPLIER = np.uint64(6364136223846793005)  # odd; Knuth's, so that the low bits of ids reach all bits of the hash


def check_overlap(calibration: Iterable[np.ndarray], evaluation: Sequence[np.ndarray]) -> None:
    """Token ids, [T] each.

    raises   InputError if more than MOST_SHARED of the evaluation's runs of RUN tokens are in the calibration text
    """
    known = np.unique(np.concatenate([run_hashes(window) for window in calibration]))
    runs = [run_hashes(window) for window in evaluation]
    found = np.concatenate([np.isin(each, known) for each in runs])
    if len(found) and found.mean() > MOST_SHARED:
        raise InputError(
            f"{found.mean():.0%} of the evaluation text is in the calibration text too; a mix that is fitted to a text "
            "cannot be checked on it: give --text a text that --calibration does not have"
        )


def run_hashes(tokens: np.ndarray) -> np.ndarray:
    """[T] -> [T - RUN + 1] uint64, one per run of RUN tokens; empty for a shorter text"""
    count = max(0, len(tokens) - RUN + 1)
    hashes = np.zeros(count, dtype=np.uint64)
    for start in range(RUN):
        hashes = hashes * MULTIPLIER + tokens[start : start + count].astype(np.uint64) + np.uint64(1)
    return hashes


FEWEST_WINDOWS = 6  # divergence differs several times over from window to window
SHARE = 0.2  # tokens of a pass over the finished mix, over those of the calibration text


def unused_text(source: Source, options: CalibrationWork, check: Scoring) -> Scoring | None:
    """Windows as long as those of the check, and at most as many; None if the text has too few that are not used.

    check   the windows of the held-out text
    """
    length = max(len(window.tokens) for window in check.windows)
    wanted = SHARE * options.samples * window_seq_len(source, options) / length
    num_windows = min(len(check.windows), max(FEWEST_WINDOWS, round(wanted)))
    windows = whole(unused_tokens(source, options, num_windows * length), length, None)
    return Scoring(check.protocol, windows, "window") if len(windows) >= min(FEWEST_WINDOWS, num_windows) else None

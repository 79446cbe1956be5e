"""The options of every command that may calibrate, as one CalibrationWork."""

from collections.abc import Callable
from pathlib import Path

import click

from qbench.cli.option_group import with_options
from qbench.cli.types import count_option
from qbench.run.work import ARITHMETICS, LAYER_INPUTS, SAMPLES, SEQ_LEN, CalibrationWork

# parameter -> field of CalibrationWork
CALIBRATION = {
    "calibration": "text",
    "samples": "samples",
    "seq_len": "seq_len",
    "seed": "seed",
    "calibrate_on": "on",
    "min_expert_tokens": "min_expert_tokens",
    "calibrate_in": "arithmetic",
    "stats": "stats",
    "imatrix": "imatrix",
    "export_imatrix": "export_imatrix",
}
_path = click.Path(path_type=Path)
OPTIONS = (
    click.option(
        "--calibration",
        help="Text to calibrate on: a .txt file, .jsonl (text or token ids), .npy (token ids), "
        "hf:DATASET[@SPLIT] or generated  [default: generated, for ref: models]",
    ),
    count_option("--samples", default=SAMPLES, help="Largest number of windows."),
    count_option("--seq-len", least=2, help=f"Tokens per window  [default: {SEQ_LEN}]"),
    count_option("--seed", least=0, default=0, help="Seed of the choice of windows."),
    click.option(
        "--calibrate-on",
        type=click.Choice(LAYER_INPUTS),
        default=LAYER_INPUTS[0],
        show_default=True,
        help="Inputs of each layer: outputs of the quantized layers before it, the same in one pass (steps), or "
        "outputs of the original layers.",
    ),
    count_option(
        "--min-expert-tokens",
        help="Smallest number of calibration tokens per expert; the router's next choices fill up.",
    ),
    click.option(
        "--calibrate-in",
        type=click.Choice(ARITHMETICS),
        help="Arithmetic of the calibration's passes  [default: bf16 if the CPU is faster with it]",
    ),
    click.option("--stats", type=_path, help="File of statistics: read if it exists, otherwise written."),
    click.option("--imatrix", type=_path, help="Importance matrix of llama.cpp, instead of calibrating."),
    click.option("--export-imatrix", type=_path, help="Write this calibration's importance matrix for llama.cpp."),
)


def calibration_options(command: Callable) -> Callable:
    """Adds the options; the command gets them as `calibration`, a CalibrationWork."""
    return with_options("calibration", CalibrationWork, OPTIONS, command, CALIBRATION)

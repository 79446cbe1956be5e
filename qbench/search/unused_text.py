"""Windows of the calibration text that no statistics were collected on: a finished mix is measured on them.

The errors of rounding fall in directions that the survey's sum over tensors does not see. The finished file has them.
"""

from qbench.calibration.options import CalibrationOptions
from qbench.calibration.windows import unused_tokens, window_seq_len
from qbench.quality.protocols.scoring import Scoring
from qbench.quality.protocols.windows import whole
from quant.source import Source

FEWEST_WINDOWS = 6  # divergence differs several times over from window to window
SHARE = 0.2  # tokens of a pass over the finished mix, over those of the calibration text


def unused_text(source: Source, options: CalibrationOptions, check: Scoring) -> Scoring | None:
    """Windows as long as those of the check, and at most as many; None if the text has too few that are not used.

    check   the windows of the held-out text
    """
    length = max(len(window.tokens) for window in check.windows)
    wanted = SHARE * options.samples * window_seq_len(source, options) / length
    num_windows = min(len(check.windows), max(FEWEST_WINDOWS, round(wanted)))
    windows = whole(unused_tokens(source, options, num_windows * length), length, None)
    return Scoring(check.protocol, windows, "window") if len(windows) >= min(FEWEST_WINDOWS, num_windows) else None

"""CalibrationOptions: the choices of a user about calibration."""

from dataclasses import dataclass
from pathlib import Path

from quant.errors import InputError

SAMPLES = 128
SEQ_LEN = 512  # as llama.cpp's imatrix tool; a GPTQ Hessian of 65k tokens has far more rows than a layer has features
MODELS = ("quantized", "steps", "original")
ARITHMETICS = ("fp32", "bf16")
# Texts that no file holds, see `qbench.calibration.texts`.
GENERATED = "generated"
RANDOM = "random"
HUB = "hf:"


@dataclass(frozen=True, slots=True)
class CalibrationOptions:
    """text       spec of the text, see `qbench.calibration.texts`; None: one that fits the model
    samples       windows at most; a shorter text gives fewer
    seq_len       tokens per window; None: SEQ_LEN, or the model's context if that is shorter
    seed          which windows are taken, and which documents are generated
    on            "quantized": each layer sees the outputs of the quantized ones before it; "steps": each linear of a
                  layer does, too, which takes one pass instead of two if possible; or "original"
    min_expert_tokens   experts that get fewer are calibrated on extra tokens routed to them; None: no expert is
    arithmetic    of the model's run: "fp32", or "bf16" products; None: the fastest on this machine
    stats         file of statistics: read if it exists, written otherwise
    imatrix       importance matrix of llama.cpp to use instead of calibrating
    export_imatrix   where to write the importance matrix of this calibration, as llama.cpp reads it
    raises        InputError for values that cannot be
    """

    text: str | None = None
    samples: int = SAMPLES
    seq_len: int | None = None
    seed: int = 0
    on: str = "quantized"
    min_expert_tokens: int | None = None
    arithmetic: str | None = None
    stats: Path | None = None
    imatrix: Path | None = None
    export_imatrix: Path | None = None

    @property
    def reads_statistics(self) -> bool:
        """Whether the file of statistics is there, from an earlier run."""
        return self.stats is not None and self.stats.exists()

    @property
    def keeps_statistics(self) -> bool:
        """Whether statistics that are collected outlive the run."""
        collected = self.imatrix is None and not self.reads_statistics
        return collected and (self.stats is not None or self.export_imatrix is not None)

    def __post_init__(self) -> None:
        for name, least in (("samples", 1), ("seq_len", 2), ("min_expert_tokens", 1)):
            value = getattr(self, name)
            if value is not None and value < least:
                raise InputError(f"calibration: {name} is {value}, expected {least} or more")
        if self.on not in MODELS:
            raise InputError(f"calibration: on is {self.on!r}, expected one of {', '.join(MODELS)}")
        if self.arithmetic not in (None, *ARITHMETICS):
            known = ", ".join(ARITHMETICS)
            raise InputError(f"calibration: arithmetic is {self.arithmetic!r}, expected one of {known}")


def is_file_spec(text: str) -> bool:
    """Whether a spec of a text is a path."""
    return text not in (GENERATED, RANDOM) and not text.startswith(HUB)

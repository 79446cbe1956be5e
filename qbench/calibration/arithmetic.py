"""In which arithmetic a model is run for its calibration, and the Hessians are summed."""

from qbench.run.work import CalibrationWork
from quant.calibrated import TextCalibration
from quant.calibration.stats_file import StatsFile
from quant.extension import import_kernels
from quant.present import present

# Name in options and manifests, which is that of the Hessians' sum in quant.calibration.gram -> impl of the decoder
DECODER_IMPL = {"fp32": "reference", "bf16": "bf16"}
BF16_ISAS = ("avx512_bf16", "amx")


def choose_arithmetic(options: CalibrationWork) -> str:
    """The one asked for, else that of the statistics to be read, else bf16 if this CPU multiplies it faster."""
    if options.arithmetic is not None:
        return options.arithmetic
    if options.reads_statistics:
        by = StatsFile(present(options.stats)).about.calibration
        return by.arithmetic if isinstance(by, TextCalibration) else "fp32"
    return "bf16" if has_fast_bf16() else "fp32"


def has_fast_bf16() -> bool:
    """Whether the CPU has products of bfloat16, as far as this installation can detect."""
    kernels = import_kernels("cpu_kernels")
    return kernels is not None and any(isa in kernels.features() for isa in BF16_ISAS)

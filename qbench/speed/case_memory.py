"""Whether a speed case fits into this machine's memory, asked before anything of its size is made."""

from qbench.measure.host.memory import usable_memory_bytes
from qbench.run_options import RunOptions
from qbench.runtime.memory import predict_memory
from qbench.speed.speed_case import SpeedCase
from quant.errors import InputError
from quant.source import Source

TOKEN_BYTES = 16  # one pointer in a list of token ids, and one id in its tensor


def check_case_memory(source: Source, options: RunOptions, case: SpeedCase) -> None:
    """Refuse a case that needs more memory than the machine has; weights are left out, as they may stay on disk.

    raises   InputError
    """
    parts = predict_memory(source, case.longest, case.batch, spec=options.cache_spec, attention=options.attention)
    kv_bytes = 0 if options.kv_ram is not None else parts.kv_bytes
    needed = kv_bytes + parts.workspace_bytes + case.batch * case.longest * TOKEN_BYTES
    limit = usable_memory_bytes()
    if needed > limit:
        raise InputError(
            f"batch {case.batch} of {case.longest} tokens needs {needed} bytes for keys, values and activations; "
            f"this machine has {limit} bytes of memory; ask for a smaller batch or for fewer tokens"
        )
